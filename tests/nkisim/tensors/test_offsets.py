"""Run-time offsets: gathered rows, dynamic selects and slices, and tensor indirection."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.kernel import run
from nkisim.tensors.indirection import write_held
from nkisim.tensors.registers import VirtualRegister
from numbered_tensor import HBM, PSUM, SBUF, read, tensor

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core


def row_numbers(values, dtype="int32"):
    return tensor((len(values), 1), SBUF, dtype, values)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_vector_select_gathers_rows(dtype):
    t = tensor((5, 2, 3))
    rows = [4, 0, 0, 3]
    gathered = t.vector_select(0, row_numbers(rows, dtype))
    reference = np.arange(30, dtype=np.float32).reshape(5, 2, 3)[rows]
    assert gathered.is_indirect()
    assert gathered.shape == (4, 2, 3)
    assert np.array_equal(read(gathered), reference)
    assert np.array_equal(read(gathered[:, 1, 0:2]), reference[:, 1, 0:2])
    assert np.array_equal(read(gathered.permute((0, 2, 1))), reference.transpose(0, 2, 1))
    assert np.array_equal(read(gathered.reshape((4, 6))), reference.reshape(4, 6))
    assert np.array_equal(read(gathered.flatten_dims(1, 2)), reference.reshape(4, 6))
    assert np.array_equal(read(gathered.select(1, 1)), reference[:, 1])


def test_vector_select_counts_rows_of_the_view_it_is_called_on():
    t = tensor((8, 6))
    window = t[2:6, ::2]
    gathered = window.vector_select(0, row_numbers([3, 1]))
    assert np.array_equal(read(gathered), np.arange(48.0).reshape(8, 6)[[5, 3], ::2])
    beyond = window.vector_select(0, row_numbers([0, 4]))
    with pytest.raises(NkiValidationError, match=r"row 4(.|\n)*rows 0..3"):
        read(beyond)


def test_writes_through_vector_select_scatter_rows():
    t = tensor((5, 3))
    write_held(t.vector_select(0, row_numbers([4, 1])), np.float32([[-1, -2, -3], [-4, -5, -6]]))
    expected = np.arange(15.0).reshape(5, 3)
    expected[[4, 1]] = [[-1, -2, -3], [-4, -5, -6]]
    assert np.array_equal(read(t), expected)


@pytest.mark.parametrize("row", [-1, 5, 2**31 - 1])
def test_a_row_outside_the_tensor_is_refused(row):
    with pytest.raises(NkiValidationError, match=f"row {row} of tensor(.|\n)*rows 0..4") as refusal:
        read(tensor((5, 3)).vector_select(0, row_numbers([0, row])))
    assert "oob_mode.skip" in refusal.value.remedy


GATHERED = {
    "tensor index: dimension 0 of a gathered view": lambda g: g[1:3],
    "tensor index: dimension 0 of a gathered": lambda g: g[0],
    "tensor index: dimension 0 of": lambda g: g[::2],
    "slice: dimension 0 of a gathered view": lambda g: g.slice(0, 0, 2),
    "select: dimension 0 of a gathered view": lambda g: g.select(0, 1),
    "permute: (.|\n)*gathered by rows": lambda g: g.permute((1, 0)),
    "expand_dim: (.|\n)*gathered by rows": lambda g: g.expand_dim(0),
    "reshape_dim: (.|\n)*gathered by rows": lambda g: g.reshape_dim(0, (2, 2)),
    "flatten_dims: (.|\n)*gathered by rows": lambda g: g.flatten_dims(0, 1),
    "reshape: (.|\n)*gathered by rows": lambda g: g.reshape((2, 6)),
    "a second run-time offset": lambda g: g.vector_select(0, row_numbers([0])),
    "tensor view: a second run-time offset": lambda g: g.select(1, VirtualRegister(0)),
    "second run-time offset": lambda g: g[:, nl.ds(VirtualRegister(0), 1)],
    "view: a view with a run-time offset": lambda g: g.view("int32"),
    "ap: a view with a run-time offset": lambda g: g.ap([[1, 4]]),
}


@pytest.mark.parametrize("message", GATHERED)
def test_the_rows_of_a_gathered_view_are_taken_whole(message):
    gathered = tensor((5, 3)).vector_select(0, row_numbers([4, 0, 0, 3]))
    with pytest.raises(NkiValidationError, match=message):
        GATHERED[message](gathered)


def test_a_gathered_view_of_one_row_is_not_broadcast():
    one = tensor((5, 3)).vector_select(0, row_numbers([4]))
    with pytest.raises(NkiValidationError, match="broadcast: dimension 0"):
        one.broadcast(0, 4)


BAD_ROWS = {
    "float": lambda: tensor((4, 1), SBUF),
    "in hbm": lambda: tensor((4, 1), HBM, "int32"),
    "one dimension": lambda: tensor((4,), SBUF, "int32"),
    "bool": lambda: tensor((4, 1), SBUF, "bool"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_row_numbers_are_an_integer_column_in_sbuf(kind):
    with pytest.raises(NkiValidationError, match="vector_select: row numbers") as refusal:
        tensor((5, 3)).vector_select(0, BAD_ROWS[kind]())
    assert "integer tile (P, 1) in SBUF" in refusal.value.limit


@pytest.mark.parametrize(("dim", "region"), [(1, HBM), (0, SBUF), (0, PSUM)])
def test_vector_select_is_for_the_first_dimension_of_hbm(dim, region):
    with pytest.raises(NkiValidationError, match="dimension 0 of an HBM tensor"):
        tensor((4, 3), region).vector_select(dim, row_numbers([0]))


@pytest.mark.parametrize("value", [0, 2, 4])
def test_a_dynamic_select_fixes_one_index(value):
    reference = np.arange(60.0).reshape(5, 4, 3)
    for source in (VirtualRegister(value), row_numbers([value])):
        t = tensor((5, 4, 3))
        assert np.array_equal(read(t.select(0, source)), reference[value])
        assert np.array_equal(read(t.permute((2, 0, 1)).select(1, source)), reference[value].T)


def test_a_dynamic_select_keeps_the_least_rank():
    tile = tensor((4, 6), SBUF).select(1, VirtualRegister(5))
    assert tile.shape == (4, 1)
    assert read(tile).reshape(-1).tolist() == [5, 11, 17, 23]
    row = tensor((6,)).select(0, VirtualRegister(2))
    assert (row.shape, read(row).tolist()) == ((1,), [2])


@pytest.mark.parametrize("value", [-1, 4, 5])
def test_a_dynamic_select_outside_its_dimension_is_refused(value):
    """Column 4 of rows 1 and 2 is column 0 of rows 2 and 3: in the tensor, and still a mistake."""
    picked = tensor((5, 4))[1:3].select(1, VirtualRegister(value))
    with pytest.raises(NkiValidationError, match=f"run-time offset {value} "):
        read(picked)


@pytest.mark.parametrize("region", [SBUF, PSUM])
def test_partitions_are_not_selected_at_run_time(region):
    with pytest.raises(NkiValidationError, match="a run-time index on dimension 0"):
        tensor((4, 6), region).select(0, VirtualRegister(1))


BAD_SCALARS = [
    lambda: tensor((1, 1), SBUF),
    lambda: tensor((2, 1), SBUF, "int32"),
    lambda: tensor((1, 1), HBM, "int32"),
    lambda: tensor((1, 1), PSUM, "int32"),
]


@pytest.mark.parametrize("make", BAD_SCALARS)
def test_a_run_time_index_is_a_register_or_one_integer_in_sbuf(make):
    with pytest.raises(NkiValidationError, match="select: run-time offset") as refusal:
        tensor((5, 3)).select(0, make())
    assert refusal.value.limit == "a register, a scalar, or an integer tile of 1 element in SBUF"


@pytest.mark.parametrize("region", [HBM, SBUF])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_dynamic_slice_is_a_window_at_the_registers_value(region, start):
    t = tensor((5, 6), region)
    reference = np.arange(30.0).reshape(5, 6)
    register = VirtualRegister(start)
    assert np.array_equal(read(t[:, nl.ds(register, 3)]), reference[:, start : start + 3])
    assert np.array_equal(read(t[1:, nl.ds(register, 3)]), reference[1:, start : start + 3])
    assert np.array_equal(
        read(t[..., nl.ds(register, 3)][:, ::2]), reference[:, start : start + 3 : 2]
    )
    assert np.array_equal(read(t[nl.ds(register, 2)]), reference[start : start + 2])
    write_held(t[2:3, nl.ds(register, 3)], np.float32([-1, -2, -3]))
    reference[2, start : start + 3] = [-1, -2, -3]
    assert np.array_equal(read(t), reference)


@pytest.mark.parametrize("start", [-1, 4, 30])
@pytest.mark.parametrize("region", [HBM, SBUF])
def test_a_dynamic_slice_stays_in_its_dimension(start, region):
    """Columns 4..6 of row 1 reach into row 2: inside an HBM tensor, and still a mistake."""
    window = tensor((5, 6), region)[1:3, nl.ds(VirtualRegister(start), 3)]
    with pytest.raises(NkiValidationError, match=f"run-time offset {start} ") as refusal:
        read(window)
    assert refusal.value.limit == "the view (2, 3) must stay inside the tensor"


def test_a_register_without_a_value_reads_nothing():
    with pytest.raises(NkiValidationError, match="a run-time offset without a value"):
        read(tensor((5, 6))[:, nl.ds(VirtualRegister(), 3)])


def test_ds_of_an_integer_is_a_plain_slice():
    t = tensor((5, 6), SBUF)
    view = t[nl.ds(1, 2), nl.ds(3, 3)]
    assert not view.is_indirect()
    assert np.array_equal(read(view), np.arange(30.0).reshape(5, 6)[1:3, 3:6])
    with pytest.raises(NkiValidationError, match="slice 4:7"):
        t[:, nl.ds(4, 3)]


def test_tensor_indirection_gathers_along_the_free_dimension():
    """Offset i of the 16 partitions of a group is index[i % 16, i // 16] of that group."""
    t = tensor((32, 10), SBUF)
    rng = np.random.default_rng(0)
    index = rng.integers(0, 10, (32, 2))
    reference = np.arange(320.0).reshape(32, 10)
    expected = np.empty((32, 20))
    for partition in range(32):
        group = partition // 16 * 16
        for i in range(20):
            expected[partition, i] = reference[partition, index[group + i % 16, i // 16]]
    view = t.indirect(tensor((32, 2), SBUF, "uint16", index), 20)
    assert view.shape == (32, 20)
    assert np.array_equal(read(view), expected)


def test_tensor_indirection_scatters_along_the_free_dimension():
    t = tensor((16, 8), SBUF)
    index = tensor((16, 1), SBUF, "int32", [7, 0, 3] + [0] * 13)
    values = np.arange(48.0).reshape(16, 3) + 1000
    write_held(t.indirect(index, 3), values)
    expected = np.arange(128.0).reshape(16, 8)
    expected[:, [7, 0, 3]] = values
    assert np.array_equal(read(t), expected)


def test_tensor_indirection_counts_from_the_start_of_the_view():
    t = tensor((16, 8), SBUF)
    index = tensor((16, 1), SBUF, "int32", [2] * 16)
    assert read(t[:, 3:].indirect(index, 1)).reshape(-1).tolist() == [8 * p + 5 for p in range(16)]
    with pytest.raises(NkiValidationError, match=r"free offset 2 (.|\n)*2 elements from the start"):
        read(t[:, 6:].indirect(index, 1))


def test_the_default_number_of_offsets_is_the_size_of_the_index():
    t = tensor((16, 8), SBUF)
    assert t.indirect(tensor((16, 3), SBUF, "int32", [0] * 48)).shape == (16, 48)


BAD_INDIRECT = [
    lambda: tensor((4, 8), HBM).indirect(tensor((4, 1), SBUF, "int32")),
    lambda: tensor((4, 8), SBUF).indirect(tensor((3, 1), SBUF, "int32")),
    lambda: tensor((4, 8), SBUF).indirect(tensor((4, 1), SBUF)),
    lambda: tensor((4, 8), SBUF).indirect(tensor((4, 1), HBM, "int32")),
    lambda: tensor((4, 8), SBUF).indirect(tensor((4, 1), SBUF, "int32"), 0),
    lambda: tensor((4, 8), SBUF)[:, ::2].indirect(tensor((4, 1), SBUF, "int32")),
]


@pytest.mark.parametrize("make", BAD_INDIRECT)
def test_tensor_indirection_needs_an_integer_index_for_each_partition(make):
    with pytest.raises(NkiValidationError, match="indirect: ") as refusal:
        make()
    assert "an integer index with as many partitions" in refusal.value.limit


FURTHER = [
    lambda v: v[:, 1:],
    lambda v: v.slice(1, 0, 1),
    lambda v: v.reshape((4, 1, 4)),
    lambda v: v.permute((0, 1)),
    lambda v: v.view("int32"),
    lambda v: v.indirect(tensor((4, 1), SBUF, "int32")),
]


@pytest.mark.parametrize("further", FURTHER)
def test_an_indirect_view_is_not_viewed_further(further):
    view = tensor((4, 8), SBUF).indirect(tensor((4, 1), SBUF, "int32", [0] * 4))
    with pytest.raises(NkiValidationError, match=r"indirect|run-time"):
        further(view)


@pytest.mark.parametrize(
    ("shape", "pick"),
    [
        ((128, 1), lambda t, i: t.select(1, i)),
        ((128, 1, 4), lambda t, i: t.select(1, i)),
        ((64, 1), lambda t, i: t[:, nl.ds(i, 1)]),
        ((40, 1, 3), lambda t, i: t[:, nl.ds(i, 1)]),
        ((128, 4, 1), lambda t, i: t.select(2, i)),
    ],
)
@pytest.mark.parametrize("values", [True, False])
def test_a_free_dimension_of_size_1_may_be_selected_at_run_time(shape, pick, values):
    """Its stride can equal that of the partitions; the view does not move over them."""

    def kernel(x):
        out = nl.ndarray(shape, "float32", nl.shared_hbm)
        tile, result = nl.ndarray(shape, "float32"), nl.ndarray(shape, "float32")
        nisa.dma_copy(tile, x)

        def body(i):
            nisa.tensor_copy(pick(result, i), pick(tile, i))

        nl.fori_loop(0, 1, body)
        nisa.dma_copy(out, result)
        return out

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = run(kernel, x, machine="trn2", values=values)
    if values:
        assert np.array_equal(found.outputs, x)


def test_the_only_index_of_a_dimension_of_size_1_is_0():
    def kernel():
        tile = nl.ndarray((128, 1), "float32")
        nisa.memset(tile.select(1, nisa.register_alloc(1)), 0.0)

    with pytest.raises(NkiValidationError):
        run(kernel, machine="trn2")
