"""`.ap` and `.view`: raw patterns and other types over the same bytes, against NumPy."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.errors import NkiValidationError
from nkisim.numerics import dtypes
from nkisim.tensors.indirection import write_held
from nkisim.tensors.registers import VirtualRegister
from numbered_tensor import HBM, PSUM, SBUF, read, tensor
from repetition import examples


def addresses(pattern, offset):
    found = np.full([count for _, count in pattern], offset)
    for axis, (step, count) in enumerate(pattern):
        line = np.arange(count) * step
        found += line.reshape([-1 if a == axis else 1 for a in range(len(pattern))])
    return found


@examples(60)
@given(
    st.lists(st.tuples(st.integers(-7, 20), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(-5, 60),
)
def test_a_pattern_on_hbm_reads_its_addresses_or_is_refused(pattern, offset):
    t = tensor((6, 10))
    wanted = addresses(pattern, offset)
    if wanted.min() < 0 or wanted.max() >= 60:
        with pytest.raises(NkiValidationError, match="ap: pattern") as refusal:
            t.ap(pattern, offset)
        assert f"asked: {wanted.min()}..{wanted.max()}" in refusal.value.limit
    else:
        view = t.ap(pattern, offset)
        assert view.shape == wanted.shape
        assert np.array_equal(read(view), wanted)


@examples(60)
@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(-4, 12), st.integers(1, 4)), max_size=3),
    st.integers(-12, 66),
)
def test_a_pattern_on_chip_stays_in_the_rows_of_its_partitions(partitions, free, offset):
    t = tensor((6, 10), SBUF)
    pattern = [(10, partitions), *free]
    row, column = divmod(offset, 10)
    reached = addresses(free, column) if free else np.array([column])
    fits = 0 <= row <= 6 - partitions and reached.min() >= 0 and reached.max() < 10
    if fits:
        assert np.array_equal(read(t.ap(pattern, offset)), addresses(pattern, offset))
    else:
        with pytest.raises(NkiValidationError, match=r"ap: pattern(.|\n)*of (a partition|the ten)"):
            t.ap(pattern, offset)


def test_a_pattern_may_come_as_tuples_and_ends_on_the_last_element():
    t = tensor((6, 10), SBUF)
    assert read(t.ap(((10, 6), (9, 2))))[:, 1].tolist() == [9, 19, 29, 39, 49, 59]
    assert read(tensor((6, 10)).ap([(59, 2)])).tolist() == [0, 59]


def test_overlapping_windows_are_im2col():
    """[[1, taps], [stride, outputs]] on a row of HBM, as depthwise convolutions load it."""
    x = np.random.default_rng(1).normal(size=20).astype(np.float32)
    taps, stride = 5, 3
    windows = tensor((20,), values=x).ap([[1, taps], [stride, 6]])
    expected = np.stack([x[t : t + stride * 6 : stride] for t in range(taps)])
    assert np.array_equal(read(windows), expected)


def test_a_step_of_zero_repeats():
    t = tensor((4, 6))
    assert read(t.ap([[0, 3], [1, 2]], offset=6)).tolist() == [[6, 7]] * 3


def test_the_offset_is_absolute_in_the_storage_and_says_so_on_a_slice():
    t = tensor((4, 6))
    window = t[2:, 1:]
    assert read(window.ap([[1, 3]])).tolist() == [13, 14, 15]  # none: the receiver's own
    with pytest.warns(UserWarning, match="absolute in the storage") as caught:
        view = window.ap([[1, 3]], offset=2)
    assert read(view).tolist() == [2, 3, 4]
    assert caught[0].filename == __file__
    assert read(t.ap([[1, 3]], offset=2)).tolist() == [2, 3, 4]  # a base tensor: no warning


def test_a_pattern_ignores_shape_and_strides_of_its_receiver():
    t = tensor((4, 6))
    turned = t.permute((1, 0)).expand_dim(1)
    assert read(turned.ap([[6, 4], [1, 6]])).tolist() == read(t).tolist()
    assert read(t.ap([[1, 6]]).ap([[6, 4], [1, 6]])).tolist() == read(t).tolist()


BAD_PATTERNS = [[], [[1, 0]], [[1, -2]], [[1]], [[1, 2, 3]], [[1, 2], [1, 0]]]


@pytest.mark.parametrize("pattern", BAD_PATTERNS, ids=str)
def test_a_pattern_is_pairs_with_positive_counts(pattern):
    with pytest.raises(NkiValidationError, match="ap: pattern") as refusal:
        tensor((4, 6)).ap(pattern)
    assert refusal.value.limit == "[step, count] pairs, counts of 1 or more"


@pytest.mark.parametrize("pattern", [[[1.0, 2]], [[1, 2.0]]])
def test_steps_and_counts_are_integers(pattern):
    with pytest.raises(TypeError, match="integer"):
        tensor((4, 6)).ap(pattern)


@pytest.mark.parametrize("step", [1, 20, 0])
def test_on_chip_the_first_step_is_the_partition_pitch(step):
    with pytest.raises(NkiValidationError, match=f"first pair \\[{step}, 2\\]") as refusal:
        tensor((6, 10), SBUF).ap([[step, 2], [1, 10]])
    assert refusal.value.limit == "on chip the first step is the partition pitch, 10 elements"


def test_one_partition_needs_no_pitch():
    assert read(tensor((6, 10), SBUF).ap([[1, 1], [1, 4]], offset=13)).tolist() == [
        [13, 14, 15, 16]
    ]


@pytest.mark.parametrize("source", ["register", "tile"])
def test_a_scalar_offset_steps_by_the_stride_of_its_dimension(source):
    t = tensor((5, 4, 3))
    values = np.arange(60.0)
    for dim, stride in enumerate((12, 3, 1)):
        value = 2
        moving = (
            VirtualRegister(value)
            if source == "register"
            else tensor((1, 1), SBUF, "int32", [value])
        )
        view = t.ap([[12, 2], [1, 3]], offset=1, scalar_offset=moving, indirect_dim=dim)
        assert view.is_indirect()
        first = 1 + stride * value
        assert np.array_equal(read(view), values[addresses([[12, 2], [1, 3]], first)])


def test_a_run_time_offset_counts_rows_of_the_tensor_it_is_called_on():
    """A cache (batch, sequence, d) seen as (batch * sequence, d): rows are d elements."""
    cache = tensor((2, 5, 3)).reshape((10, 3))
    row = cache.ap([[3, 1], [1, 3]], scalar_offset=VirtualRegister(7))
    assert read(row).tolist() == [[21, 22, 23]]
    rows = tensor((3, 1), SBUF, "uint32", [9, 0, 4])
    gathered = cache.ap([[1, 3], [1, 3]], vector_offset=rows)
    assert np.array_equal(read(gathered), np.arange(30.0).reshape(10, 3)[[9, 0, 4]])
    flat = tensor((2, 5, 3)).reshape((30,))
    strided = flat.ap([[1, 3], [5, 2]], vector_offset=rows)
    assert read(strided).tolist() == [[9, 14], [0, 5], [4, 9]]
    one = tensor((10, 3)).reshape((1, 10, 3)).ap([[1, 3]], scalar_offset=VirtualRegister(0))
    assert read(one).tolist() == [0, 1, 2]


def test_gathered_rows_may_be_more_than_the_tensor_has():
    t = tensor((3, 4))
    rows = tensor((6, 1), SBUF, "int32", [2, 2, 1, 0, 0, 2])
    view = t.ap([[4, 6], [1, 4]], vector_offset=rows)
    assert np.array_equal(read(view), np.arange(12.0).reshape(3, 4)[[2, 2, 1, 0, 0, 2]])


def test_an_offset_moves_all_gathered_rows():
    t = tensor((6, 4))
    rows = tensor((2, 1), SBUF, "int32", [5, 1])
    assert read(t.ap([[4, 2], [1, 2]], 2, vector_offset=rows)).tolist() == [[22, 23], [6, 7]]
    with pytest.raises(NkiValidationError, match=r"row 5 of tensor(.|\n)*inside the tensor \(6, 4"):
        read(t.ap([[4, 2], [1, 2]], 3, vector_offset=rows))  # 20 + 3 + 1 is one too far


@pytest.mark.parametrize(("value", "fits"), [(0, True), (3, True), (4, False), (-1, False)])
def test_a_scalar_offset_stays_in_the_tensor(value, fits):
    view = tensor((5, 6)).ap([[6, 2], [1, 6]], scalar_offset=VirtualRegister(value))
    if fits:
        assert read(view)[0, 0] == 6 * value
    else:
        with pytest.raises(NkiValidationError, match=f"run-time offset {value} \\(x 6 elements\\)"):
            read(view)


@pytest.mark.parametrize(("value", "fits"), [(0, True), (4, True), (5, False), (-1, False)])
def test_on_chip_a_scalar_offset_stays_in_the_row(value, fits):
    t = tensor((5, 6), SBUF)
    view = t.ap([[6, 3], [1, 2]], offset=12, scalar_offset=VirtualRegister(value), indirect_dim=1)
    if fits:
        assert read(view)[:, 0].tolist() == [12 + value, 18 + value, 24 + value]
    else:
        with pytest.raises(NkiValidationError, match="must stay inside"):
            read(view)


@pytest.mark.parametrize(("value", "fits"), [(0, True), (3, True), (4, False), (-1, False)])
def test_on_chip_a_scalar_offset_may_count_partitions(value, fits):
    view = tensor((5, 6), SBUF).ap([[6, 2], [1, 2]], scalar_offset=VirtualRegister(value))
    if fits:
        assert read(view)[:, 1].tolist() == [6 * value + 1, 6 * value + 7]
    else:
        with pytest.raises(NkiValidationError, match="must stay inside"):
            read(view)


def rows():
    return tensor((4, 1), SBUF, "int32")


BAD_OFFSETS = {
    "ap: scalar_offset together with vector_offset": lambda t: t.ap(
        [[3, 4]], scalar_offset=VirtualRegister(0), vector_offset=rows()
    ),
    "ap: vector_offset with indirect_dim=1": lambda t: t.ap(
        [[3, 4]], vector_offset=rows(), indirect_dim=1
    ),
    "ap indirect_dim: dimension 2\n  limit:  dimensions 0..1": lambda t: t.ap(
        [[3, 4]], scalar_offset=VirtualRegister(0), indirect_dim=2
    ),
    "ap indirect_dim: dimension -1": lambda t: t.ap(
        [[3, 4]], scalar_offset=VirtualRegister(0), indirect_dim=-1
    ),
    "ap: row numbers (.|\n)* for 5 rows": lambda t: t.ap([[3, 5]], vector_offset=rows()),
    "ap: run-time offset 3\n": lambda t: t.ap([[3, 4]], scalar_offset=3),
    "ap: run-time offset NkiTensor": lambda t: t.ap([[3, 4]], scalar_offset=tensor((1, 1), SBUF)),
}


@pytest.mark.parametrize("message", BAD_OFFSETS)
def test_run_time_offsets_are_checked_when_the_view_is_made(message):
    with pytest.raises(NkiValidationError, match=message) as refusal:
        BAD_OFFSETS[message](tensor((5, 3)))
    assert refusal.value.remedy


@pytest.mark.parametrize("region", [SBUF, PSUM])
def test_rows_are_gathered_from_hbm_only(region):
    with pytest.raises(NkiValidationError, match=f"in {region.value}(.|\n)*of an HBM tensor"):
        tensor((5, 3), region).ap([[3, 4]], vector_offset=rows())


def test_a_pattern_is_not_laid_over_a_run_time_offset():
    moving = tensor((5, 3)).select(0, VirtualRegister(0))
    with pytest.raises(NkiValidationError, match="ap: a view with a run-time offset"):
        moving.ap([[1, 3]])


NATIVE = {
    "uint8": np.uint8,
    "int8": np.int8,
    "uint16": np.uint16,
    "int16": np.int16,
    "uint32": np.uint32,
    "int32": np.int32,
    "float16": np.float16,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
every_type = st.sampled_from(sorted(NATIVE))


def bits_of(array):
    return np.ascontiguousarray(array).view(np.uint8)


def native(view):
    return dtypes.to_host(read(view), view.dtype)


def from_bytes(raw, dtype, region, shape):
    """A tensor of `dtype` over given bytes, and the bytes as NumPy has them."""
    array = raw.view(NATIVE[dtype]).reshape(shape)
    return tensor(shape, region, dtype, dtypes.from_host(array)[1]), array


@examples(60)
@given(every_type, every_type, st.sampled_from([HBM, SBUF]), st.integers(0, 2**32 - 1))
def test_view_is_numpys_view(old, new, region, seed):
    raw = np.random.default_rng(seed).integers(0, 256, 4 * 16, np.uint8)
    t, array = from_bytes(raw, old, region, (4, 16 // NATIVE_SIZE[old]))
    view = t.view(new)
    expected = array.view(NATIVE[new])
    assert (view.shape, view.dtype) == (expected.shape, new)
    assert np.array_equal(bits_of(native(view)), bits_of(expected))
    assert np.array_equal(bits_of(native(t)), bits_of(array)), "reading changes nothing"


NATIVE_SIZE = {name: np.dtype(kind).itemsize for name, kind in NATIVE.items()}


@examples(60)
@given(every_type, every_type, st.sampled_from([HBM, SBUF]), st.integers(0, 2**32 - 1))
def test_bytes_written_as_one_type_are_read_as_the_other(old, new, region, seed):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, 4 * 16, np.uint8)
    fresh = rng.integers(0, 256, (2, 8), np.uint8)
    t, array = from_bytes(raw.copy(), old, region, (4, 16 // NATIVE_SIZE[old]))
    half = t[1:3].view(new)
    half = half[:, 0 : half.shape[1] // 2]
    write_held(half, dtypes.from_host(fresh.view(NATIVE[new]))[1])
    expected = raw.reshape(4, 16)
    expected[1:3, 0:8] = fresh
    assert np.array_equal(bits_of(native(t)).reshape(4, 16), expected)
    assert np.array_equal(bits_of(t.storage.host_array()).reshape(4, 16), expected)
    assert array.dtype == NATIVE[old]


def test_writing_the_original_type_shows_in_the_reinterpreted_view():
    t = tensor((2, 2), SBUF)
    bits = t.view("uint32")
    assert bits.shape == (2, 2)
    read(bits)
    write_held(t[1:2], np.float32([1.0, -2.0]))
    assert read(bits)[1].tolist() == [0x3F800000, 0xC0000000]


def test_view_scales_the_last_dimension_and_the_place():
    t = tensor((128, 64), SBUF)
    assert t.view("uint8").shape == (128, 256)
    assert t.view("int32").shape == (128, 64)
    assert tensor((128, 256), SBUF, "uint8").view("float32").shape == (128, 64)
    part = t[32:64, 16:32].view("bfloat16")
    assert (part.shape, part.strides, part.offset) == ((32, 32), (128, 1), 32 * 128 + 32)
    assert (part.start_partition, part.pitch_elems) == (32, 128)
    assert t.reinterpret_cast("int8").shape == (128, 256)


def test_view_of_a_column_needs_no_stride():
    column = tensor((4, 6))[:, 2:3].view("uint16")
    assert (column.shape, column.strides) == ((4, 2), (12, 1))


def test_a_view_forgets_the_strides_of_dimensions_of_one():
    """One row of 3 bytes: that the next row would start at an odd byte does not matter."""
    row = tensor((4, 3), HBM, "uint8")[0:1, 0:2]
    assert read(row.view("uint16")).tolist() == [[0x0100]]


BAD_VIEWS = {
    "the last dimension is contiguous": lambda: tensor((4, 8))[:, ::2].view("uint8"),
    "multiples of 4 B": lambda: tensor((4, 6), HBM, "uint8").view("float32"),
    "offsets that are multiples of 2 B": lambda: tensor((4, 6), HBM, "uint8")[:, 1:3].view("int16"),
    "sizes and offsets that are": lambda: tensor((4, 3), HBM, "uint8")[:, 0:2].view("int16"),
    "need sizes": lambda: tensor((4, 3), SBUF, "uint8")[0:1, 0:2].view("int16"),
    "static views only": lambda: tensor((4, 6)).select(0, VirtualRegister(0)).view("int32"),
    "the machine's types": lambda: tensor((4, 6)).view("float64"),
}


@pytest.mark.parametrize("limit", BAD_VIEWS)
def test_views_that_bytes_do_not_allow_are_refused(limit):
    with pytest.raises(NkiValidationError, match=limit):
        BAD_VIEWS[limit]()


def test_a_pattern_of_another_type_counts_in_that_type():
    raw = np.arange(96, dtype=np.uint8)
    t, _ = from_bytes(raw, "float32", HBM, (4, 6))
    halves = raw.view(np.uint16)
    view = t.ap([[12, 3], [1, 4]], offset=5, dtype="uint16")
    assert np.array_equal(read(view), halves[addresses([[12, 3], [1, 4]], 5)])
    inherited = t[1:, 2:].ap([[1, 4]], dtype="uint16")
    assert np.array_equal(read(inherited), halves[16:20])
    assert np.array_equal(read(t.ap([[1, 96]], dtype="uint8")), raw)
    with pytest.raises(NkiValidationError, match=r"0..95 of the tensor"):
        t.ap([[1, 97]], dtype="uint8")


def test_a_run_time_row_has_the_same_bytes_in_every_type():
    raw = np.arange(96, dtype=np.uint8)
    t, _ = from_bytes(raw, "float32", HBM, (4, 6))
    row = t.ap([[1, 24]], scalar_offset=VirtualRegister(2), dtype="uint8")
    assert np.array_equal(read(row), raw[48:72])
    picked = tensor((2, 1), SBUF, "int32", [3, 1])
    gathered = t.ap([[1, 2], [1, 12]], vector_offset=picked, dtype="uint16")
    assert np.array_equal(read(gathered), raw.view(np.uint16).reshape(4, 12)[[3, 1]])


@pytest.mark.parametrize("make", [lambda t: t.ap([[1, 128], [1, 1]], dtype="uint16")])
def test_a_partition_holds_whole_elements(make):
    """Rows of 3 bytes: as 2-byte elements there is no pitch from one partition to the next."""
    with pytest.raises(NkiValidationError, match="partition row of 3 bytes as uint16") as refusal:
        make(tensor((128, 3), SBUF, "uint8"))
    assert refusal.value.limit == "a multiple of 2 B"


def test_an_inherited_offset_is_aligned_to_the_new_type():
    with pytest.raises(NkiValidationError, match="offset of 2 bytes as float32"):
        tensor((4, 8), HBM, "uint16")[:, 1:].ap([[1, 2]], dtype="float32")


X4 = ["float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"]


@pytest.mark.parametrize("packed", X4)
@pytest.mark.parametrize("region", [HBM, SBUF])
def test_packed_types_are_four_values_to_an_element(packed, region):
    """fp8 x 4 is 32 bits, fp4 x 4 is 16 bits; the lowest bits hold element 0."""
    raw = np.arange(64, dtype=np.uint8)
    size = 2 if packed.startswith("float4") else 4
    t, _ = from_bytes(raw, "uint8", region, (4, 16))
    view = t.view(packed)
    assert (view.shape, view.dtype) == ((4, 16 // size), packed)
    assert np.array_equal(read(view), raw.view(f"<u{size}").reshape(4, -1))
    pattern = [[16 // size, 4], [1, 16 // size]]
    assert np.array_equal(read(t.ap(pattern, dtype=packed, offset=0)), read(view))
    write_held(view[1:2], np.zeros(16 // size, f"u{size}"))
    assert read(t)[1].tolist() == [0] * 16
    assert np.array_equal(read(t)[0], np.arange(16))


def test_a_packed_tensor_is_seen_as_its_bytes():
    t = tensor((2, 3), SBUF, "float8_e4m3fn_x4", [0x04030201] * 6)
    assert read(t.view("uint8")).tolist() == [[1, 2, 3, 4] * 3] * 2
    assert t.view("float8_e4m3fn").shape == (2, 12)
