"""Kernels: how they are made, launched, given arguments and asked for results."""

import enum
import functools
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import MemoryLimitError, NkiValidationError, UnsupportedError
from nkisim.machine import TRN1, TRN3
from nkisim.numerics.dtypes import DTypeError
from nkisim.running.environment import PRECISION_VARIABLE, TARGET_VARIABLE
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import Kernel, jit, run, simulate


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv(TARGET_VARIABLE, raising=False)
    monkeypatch.delenv(PRECISION_VARIABLE, raising=False)


def doubled(x):
    """out = 2 x, by a matmul-free route every machine has: load, cast, store."""
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile, x)
    nisa.dma_compute(tile, [tile, tile], reduce_op=nl.add)
    nisa.dma_copy(out, tile)
    return out


X = np.arange(24, dtype=np.float32).reshape(4, 6)


@jit
def decorated(x):
    """Two of everything."""
    return doubled(x)


@jit()
def decorated_with_parentheses(x):
    return doubled(x)


KERNELS = [decorated, decorated_with_parentheses, jit(doubled), Kernel(doubled)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_way_to_make_a_kernel_runs(kernel):
    assert isinstance(kernel, Kernel)
    assert np.array_equal(kernel(X), 2 * X)
    assert np.array_equal(kernel[1](X), 2 * X)
    assert np.array_equal(simulate(kernel)(X), 2 * X)
    assert np.array_equal(run(kernel, X).outputs, 2 * X)


def test_a_kernel_keeps_the_name_and_the_text_of_its_function():
    assert decorated.__name__ == "decorated"
    assert decorated.__doc__ == "Two of everything."
    assert decorated[2].func is decorated.func
    assert decorated.func is decorated.__wrapped__


def test_a_kernel_of_a_kernel_is_the_same_kernel():
    assert jit(decorated) is decorated
    assert simulate(decorated[2]).kernel.lnc == 2


def test_a_plain_function_needs_no_decoration():
    assert np.array_equal(simulate(doubled)(X), 2 * X)
    assert np.array_equal(run(doubled, x=X).outputs, 2 * X)


def test_mode_is_ignored_and_other_options_are_refused():
    assert isinstance(jit(doubled, mode="jax"), Kernel)
    with pytest.raises(
        NkiValidationError, match=r"platform_target='trn2'(.|\n)*removed in NKI 0.3"
    ):
        jit(doubled, platform_target="trn2")
    with pytest.raises(UnsupportedError, match=r"nki.jit: option debug, level"):
        jit(level=3, debug=True)


@pytest.mark.parametrize("grid", [0, 3, 8, -1, True, (2,), "2", None])
def test_a_launch_grid_is_one_or_two(grid):
    with pytest.raises(NkiValidationError, match="kernel decorated: launch grid") as refusal:
        decorated[grid]
    assert refusal.value.limit == "1 or 2 (cores of a logical NeuronCore)"


def test_messages_name_kernels_that_have_no_name():
    nameless = Kernel(functools.partial(doubled))
    with pytest.raises(NkiValidationError, match=r"kernel functools.partial"):
        nameless[3]


def ids(x, number=0):
    seen.append((nl.program_id(0), nl.num_programs(0), nl.program_ndim(), x.buffer))


seen = []


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel(ids), [(0, 1, 0, nl.hbm)]),
        (Kernel(ids)[1], [(0, 1, 1, nl.hbm)]),
        (Kernel(ids)[2], [(0, 2, 1, nl.shared_hbm), (1, 2, 1, nl.shared_hbm)]),
        (simulate(ids)[2].kernel, [(0, 2, 1, nl.shared_hbm), (1, 2, 1, nl.shared_hbm)]),
    ],
)
def test_a_core_knows_its_number(kernel, expected):
    seen.clear()
    simulate(kernel)(X)
    assert sorted(seen, key=lambda entry: entry[0]) == expected


def halves(x):
    """Each core doubles its rows."""
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    first = rows * nl.program_id(0)
    tile = nl.ndarray((rows, x.shape[1]), x.dtype)
    nisa.dma_copy(tile, x[first : first + rows])
    nisa.dma_compute(tile, [tile, tile], reduce_op=nl.add)
    nisa.dma_copy(out[first : first + rows], tile)
    return out


@pytest.mark.parametrize(
    "launch", [Kernel(halves)[2], simulate(halves)[2], simulate(Kernel(halves)[2]), Kernel(halves)]
)
def test_two_cores_share_the_output(launch):
    assert np.array_equal(launch(X), 2 * X)


def test_a_run_on_two_cores_has_a_trace_and_a_memory_of_each():
    done = run(Kernel(halves)[2], X, machine="trn2")
    assert [trace.core for trace in done.traces] == [0, 1]
    assert [use.sbuf_peak_bytes_per_partition for use in done.memories] == [24, 24]
    with pytest.raises(NkiValidationError, match=r"a run on 2 cores(.|\n)*use \.traces\[core\]"):
        _ = done.trace
    with pytest.raises(NkiValidationError, match=r"use \.memories\[core\]"):
        _ = done.memory
    assert done.races == ()


def test_a_kernel_inside_a_kernel_is_a_plain_call():
    def outer(x):
        once = decorated(x)
        return decorated[2](once)

    done = run(outer, X)
    assert np.array_equal(done.outputs, 4 * X)
    assert done.trace.static_count == 6


class Mode(enum.Enum):
    """An option of a kernel."""

    add = 1
    keep = 2


@dataclass
class Options(nl.NKIObject):
    """Options that remember how often they were asked."""

    factor: int = 1
    asked: int = 0

    def times(self):
        self.asked += 1
        return self.factor


def test_arguments_of_every_kind_arrive():
    def kernel(x, pair, nothing, text, mode, options, flag, number, dtype, *, function, scale=3):
        got.append((nothing, text, mode, options.times(), flag, number, dtype, function, scale))
        first, (second, third) = pair
        got.append((first.shape, second.shape, third, x.buffer))
        out = nl.ndarray(first.shape, first.dtype, nl.shared_hbm)
        nisa.dma_copy(out, first)
        return out

    got = []
    options = Options(factor=5)
    pair = (X, (X[:2], 7))
    values = (X, pair, None, "same", Mode.keep, options, True, 2.5, nl.bfloat16)
    result = simulate(kernel)(*values, function=len)
    assert np.array_equal(result, X)
    assert got[0] == (None, "same", Mode.keep, 5, True, 2.5, "bfloat16", len, 3)
    assert got[1] == ((4, 6), (2, 6), 7, nl.hbm)


def test_objects_are_copied_into_the_kernel_for_each_core():
    def kernel(x, options, same):
        counts.append((nl.program_id(0), options.times(), options.asked, options is same))

    counts = []
    options = Options(factor=5)
    simulate(kernel)[2](X, options, options)
    assert sorted(counts) == [(0, 5, 1, True), (1, 5, 1, True)]
    assert options.asked == 0


@pytest.mark.parametrize("value", [[X], (X, [1, 2]), ((1, []),)])
def test_lists_are_not_arguments(value):
    with pytest.raises(NkiValidationError, match=r"kernel ids: argument .* is a list") as refusal:
        simulate(ids)(value)
    assert refusal.value.remedy == "pass a tuple"


@pytest.mark.parametrize("value", [np.float32, np.dtype("int8"), ml_dtypes.bfloat16])
def test_numpy_types_are_not_arguments(value):
    with pytest.raises(NkiValidationError, match="argument x is the NumPy type"):
        simulate(ids)(value)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_integer_arguments_have_32_bits_in_nki_0_6(value, nki_0_6):
    with pytest.raises(NkiValidationError, match=f"argument number is {value}"):
        simulate(ids)(X, number=value)
    simulate(ids)(X, number=value - 1 if value > 0 else value + 1)


def test_integer_arguments_are_handed_on_by_the_tracer():
    simulate(ids)(X, number=2**40)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64, np.complex64])
def test_arrays_have_types_the_machine_has(dtype):
    with pytest.raises(DTypeError, match=f"dtype {np.dtype(dtype)}"):
        simulate(doubled)(X.astype(dtype))


def test_an_array_has_a_dimension():
    with pytest.raises(NkiValidationError, match="at least one dimension"):
        simulate(doubled)(np.float32(1).reshape(()))


@pytest.mark.parametrize(
    "array",
    [X.T, X[::2, ::-1], np.asfortranarray(X), X.astype(">f4")],
    ids=lambda a: str(a.flags.c_contiguous),
)
def test_arrays_of_any_strides_and_byte_order_are_taken(array):
    assert np.array_equal(simulate(doubled)(array), 2 * array.astype(np.float32))


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int32, np.uint8]
)
def test_results_have_the_type_of_their_tensor(dtype):
    found = simulate(doubled)(X.astype(dtype))
    assert found.dtype == np.dtype(dtype)
    assert np.array_equal(found.astype(np.float32), (2 * X).astype(dtype).astype(np.float32))


def test_a_kernel_may_write_into_its_argument_and_return_it():
    def kernel(x, untouched):
        tile = nl.ndarray((2, 6), x.dtype)
        nisa.memset(tile, -1.0)
        nisa.dma_copy(x[1:3], tile)
        return x

    x, untouched = X.copy(), X.copy()
    expected = X.copy()
    expected[1:3] = -1
    returned = simulate(kernel)(x, untouched)
    assert np.array_equal(x, expected)
    assert np.array_equal(returned, expected)
    assert not np.shares_memory(returned, x)
    assert np.array_equal(untouched, X)


@pytest.mark.parametrize("launch", [1, 2])
def test_mutations_reach_arrays_of_any_strides(launch):
    def kernel(x):
        first = nl.program_id(0)
        tile = nl.ndarray((1, x.shape[1]), x.dtype)
        nisa.memset(tile, float(10 + first))
        nisa.dma_copy(x[first : first + 1], tile)

    wide = np.zeros((3, 8), np.float32)
    simulate(kernel)[launch](wide[:, ::2])
    expected = np.zeros((3, 8), np.float32)
    for core in range(launch):
        expected[core, ::2] = 10 + core
    assert np.array_equal(wide, expected)


def test_an_array_that_nobody_wrote_may_be_read_only():
    frozen = X.copy()
    frozen.flags.writeable = False
    assert np.array_equal(simulate(doubled)(frozen), 2 * X)


def test_the_caller_may_change_an_array_after_the_call():
    x = X.copy()
    returned = simulate(lambda x: x)(x)
    x[...] = 0
    assert np.array_equal(returned, X)


def test_arrays_inside_tuples_are_mutated_too():
    def kernel(pair):
        tile = nl.ndarray(pair[1].shape, "int32")
        nisa.memset(tile, 9)
        nisa.dma_copy(pair[1], tile)

    counts = np.zeros((2, 2), np.int32)
    simulate(kernel)((X, counts))
    assert np.array_equal(counts, np.full((2, 2), 9))


def test_a_kernel_returns_a_tuple_of_tensors_or_nothing():
    def several(x):
        return doubled(x), x, doubled(x)[1:3, ::2]

    twice, same, part = simulate(several)(X)
    assert np.array_equal(twice, 2 * X)
    assert np.array_equal(same, X)
    assert np.array_equal(part, 2 * X[1:3, ::2])
    assert simulate(lambda: None)() is None
    assert simulate(lambda: ())() == ()


@pytest.mark.parametrize("buffer", [nl.hbm, nl.private_hbm, nl.sbuf, nl.psum])
def test_a_result_is_in_shared_hbm(buffer):
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, buffer)
        return (x, tile)

    with pytest.raises(NkiValidationError, match=f"returned value is in {buffer.value}") as refusal:
        simulate(kernel)(X)
    assert refusal.value.limit == "kernels return nl.shared_hbm tensors"


@pytest.mark.parametrize("result", [3, "x", X, (None,)])
def test_a_result_is_a_tensor(result):
    with pytest.raises(NkiValidationError, match="kernel <lambda>: a returned value is of type "):
        simulate(lambda: result)()


def test_a_refused_result_leaves_the_arguments_alone():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        nisa.memset(tile, 0.0)
        nisa.dma_copy(x, tile)
        return tile

    x = X.copy()
    with pytest.raises(NkiValidationError, match="returned value"):
        simulate(kernel)(x)
    assert np.array_equal(x, X)


def test_both_cores_return_the_same_tensors():
    def kernel(x):
        first = nl.ndarray(x.shape, x.dtype, nl.shared_hbm, name="first")
        second = nl.ndarray(x.shape, x.dtype, nl.shared_hbm, name="second")
        return (first, second) if nl.program_id(0) == 0 else (second, first)

    with pytest.raises(NkiValidationError, match="both cores return the same shared tensors"):
        simulate(kernel)[2](X)


def spec(array):
    return Spec(array.shape, array.dtype.name)


def looped(x):
    """A dynamic loop over row blocks, with a nested one, and a tile that lives across both."""
    out = nl.ndarray(x.shape, "bfloat16", nl.shared_hbm)
    kept = nl.ndarray((2, x.shape[1]), x.dtype)

    def body(i):
        tile = nl.ndarray((2, x.shape[1]), x.dtype)
        nisa.dma_copy(tile, x[nl.ds(i, 2)])

        def inner(_):
            nisa.tensor_copy(kept, tile)

        nl.fori_loop(0, 3, inner)
        nisa.dma_copy(out[nl.ds(i, 2)], kept)

    nl.fori_loop(0, x.shape[0], body, step=2)
    return out


def matmul(x):
    out = nl.ndarray((6, 6), "float32", nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile, x)
    bank = nl.ndarray((6, 6), "float32", nl.psum)
    nisa.nc_matmul(bank, tile, tile)
    nisa.nc_matmul(bank[:, 1:5], tile, tile[:, 1:5])
    kept = nl.ndarray((6, 6), "float32")
    nisa.tensor_copy(kept, bank)
    nisa.dma_copy(out, kept)
    return out


def gathered(x):
    """Row 2 by an offset in SBUF, row 2 by one in a register, and rows 2, 2, 2 by an index."""
    out = nl.ndarray((5, x.shape[1]), x.dtype, nl.shared_hbm)
    two = nl.ndarray((3, 1), "int32")
    nisa.memset(two, 2)
    register = nisa.register_alloc()
    nisa.register_load(register, two[0:1])
    rows = nl.ndarray((5, x.shape[1]), x.dtype)
    nisa.dma_copy(rows[0:1], x.ap([[6, 1], [1, 6]], scalar_offset=two[0:1]))
    nisa.dma_copy(rows[1:2], x[nl.ds(register, 1)])
    nisa.dma_copy(rows[2:5], x.vector_select(0, two))
    nisa.dma_copy(out, rows)
    return out


SAME_TRACE = {
    "straight": (Kernel(doubled), lambda x: 2 * x),
    "two cores": (Kernel(halves)[2], lambda x: 2 * x),
    "looped": (Kernel(looped), lambda x: x),
    "gathered": (Kernel(gathered), lambda x: x[[2, 2, 2, 2, 2]]),
    "matmul": (
        Kernel(matmul),
        lambda x: x.T @ x + np.pad((x.T @ x)[:, 1:5], ((0, 0), (1, 1))),
    ),
}


@pytest.mark.parametrize("name", SAME_TRACE)
@pytest.mark.parametrize("machine", ["trn2", "trn3"])
def test_runs_with_and_without_values_leave_the_same_trace(name, machine):
    kernel, reference = SAME_TRACE[name]
    cores = kernel.lnc or 1
    full = run(kernel, X, machine=machine, lnc=cores)
    bare = run(kernel, spec(X), machine=machine, values=False, lnc=cores)
    assert [t.key() for t in full.traces] == [t.key() for t in bare.traces]
    assert full.memories == bare.memories
    assert full.output_shapes == bare.output_shapes
    assert bare.outputs is None
    assert np.array_equal(full.outputs.astype(np.float32), reference(X))


def test_a_shape_only_run_tells_the_shapes_of_the_results():
    def kernel(x, y):
        part = nl.ndarray((3, 5), "bfloat16", nl.shared_hbm)
        nisa.dma_copy(part, x[0:3, 0:5])
        return (part, y, part[1:, ::2])

    done = run(kernel, Spec((4, 6), "float32"), Spec([7], "int8"), values=False)
    assert done.output_shapes == (((3, 5), "bfloat16"), ((7,), "int8"), ((2, 3), "bfloat16"))
    assert done.outputs is None


def test_a_shape_only_run_takes_arrays_and_leaves_them_alone():
    x = X.copy()
    done = run(doubled, x, values=False)
    assert done.outputs is None
    assert np.array_equal(x, X)


def test_a_run_with_values_needs_values():
    with pytest.raises(NkiValidationError, match="argument x is a Spec") as refusal:
        run(doubled, Spec((4, 6), "float32"))
    assert refusal.value.remedy == "pass an array, or run with values=False"


def test_a_shape_only_run_meets_the_same_limits():
    def kernel(x):
        for tile in [nl.ndarray((4, 40_000), "float32") for _ in range(2)] * 2:
            nisa.memset(tile, 0.0)

    for x, values in ((X, True), (spec(X), False)):
        with pytest.raises(MemoryLimitError, match="alive in sbuf"):
            run(kernel, x, machine="trn2", values=values)


def sixteenths(x):
    out = nl.ndarray(x.shape, "float32", nl.shared_hbm)
    tile = nl.ndarray(x.shape, "bfloat16")
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


def test_low_precision_is_rounded_unless_told(monkeypatch):
    x = np.float32([[1 + 2**-12, 3.0]])
    assert simulate(sixteenths)(x).tolist() == [[1.0, 3.0]]
    monkeypatch.setenv(PRECISION_VARIABLE, "0")
    assert np.array_equal(simulate(sixteenths)(x), x)
    monkeypatch.setenv(PRECISION_VARIABLE, "1")
    assert simulate(sixteenths)(x).tolist() == [[1.0, 3.0]]


def test_the_target_is_the_argument_else_the_environment_else_trn3(monkeypatch):
    assert run(doubled, X).machine is TRN3
    monkeypatch.setenv(TARGET_VARIABLE, "gen2")
    assert run(doubled, X).machine is TRN1
    assert run(doubled, X, machine="trn3").machine is TRN3
    assert run(doubled, X, machine=TRN3).machine is TRN3
    monkeypatch.setenv(TARGET_VARIABLE, "trn9")
    with pytest.raises(NkiValidationError, match="unknown machine 'trn9'") as refusal:
        run(doubled, X)
    assert "trn1, trn2, trn3" in refusal.value.limit


def test_the_kernel_sees_its_target(monkeypatch):
    def kernel(x):
        sizes.append(nl.tile_size.total_available_sbuf_size)

    sizes = []
    for machine in ("trn1", "inf2", "trn2", "gen3", "trn3", "gen4"):
        simulate(kernel, machine=machine)(X)
    assert sizes == [180224, 180224, 212984, 212984, 245752, 245752]
    monkeypatch.setenv(TARGET_VARIABLE, "trn1")
    assert nl.tile_size.total_available_sbuf_size == 180224


def test_instructions_outside_of_a_kernel_are_refused():
    with pytest.raises(NkiValidationError, match="outside of a kernel"):
        nl.ndarray((4, 4), "float32")


def test_a_kernel_that_fails_leaves_no_kernel_running():
    def kernel(x):
        raise RuntimeError("broken")

    for launch in (1, 2):
        with pytest.raises(RuntimeError, match="broken"):
            simulate(kernel)[launch](X)
        with pytest.raises(NkiValidationError, match="outside of a kernel"):
            nisa.memset(None, 0)
