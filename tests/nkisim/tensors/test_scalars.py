"""NkiScalar: arithmetic as NKI 0.7 documents it, loads and stores, loops and offsets."""

import operator

import numpy as np
import pytest

import nkisim
import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, result_of, specs
from nkisim.errors import NkiValidationError, RunTimeValueError
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.tensors.scalars import NkiScalar

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

TYPES = {"int32": np.int32, "int64": np.int64}


def computed(expression, *values, dtype="int32"):
    """What the device stores when it computes an expression of scalars loaded from memory."""

    def kernel(*sources):
        out = nl.ndarray((1, 1), dtype, nl.shared_hbm)
        nisa.scalar_store(out, expression(*(nisa.scalar_load(source) for source in sources)))
        return out

    arrays = [np.full((1, 1), value, TYPES[dtype]) for value in values]
    return int(run(kernel, *arrays, machine="trn2").outputs[0, 0])


EXPRESSIONS = (
    lambda a, _: a + 3,
    lambda a, _: 3 + a,
    lambda a, _: a - 3,
    lambda a, _: 3 - a,
    lambda a, _: a * -5,
    lambda a, _: -5 * a,
    lambda a, _: -a,
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a * 4 + 1 - b * 2,
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_arithmetic_is_that_of_integers_of_the_width(expression, dtype):
    values = (2**31 - 7, -1_234_567) if dtype == "int32" else (2**63 - 5, -(2**40) + 1)
    with np.errstate(over="ignore"):
        a, b = (TYPES[dtype]([value]) for value in values)  # arrays: NumPy wraps them around
        wanted = int(expression(a, b)[0])
    assert computed(expression, *values, dtype=dtype) == wanted


def test_int32_wraps_around_as_documented():
    assert computed(lambda a: a * 100000, 100000) == 1410065408
    assert computed(lambda a: a + 1, 2**31 - 1) == -(2**31)
    assert computed(lambda a: a * 100000, 100000, dtype="int64") == 10**10


@pytest.mark.parametrize(
    "operation",
    [operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lshift],
)
def test_other_operators_are_refused(operation):
    with pytest.raises(NkiValidationError, match="a Python operator on NkiScalar"):
        operation(NkiScalar(8), 2)
    with pytest.raises(NkiValidationError, match="a Python operator on NkiScalar"):
        operation(2, NkiScalar(8))


@pytest.mark.parametrize("other", [1.0, True, "a", 2**31, NkiScalar(1, "int64")])
def test_the_other_side_is_an_integer_or_a_scalar_of_the_same_width(other):
    with pytest.raises(NkiValidationError, match="NkiScalar"):
        NkiScalar(1) + other


@pytest.mark.parametrize("use", [bool, int, float, range, lambda s: [1, 2][s], lambda s: s and 1])
@pytest.mark.parametrize("value", [NkiScalar(1), NkiScalar(1, "int64"), NkiScalar(1) + 1])
def test_a_scalar_has_no_python_value(use, value):
    with pytest.raises(TypeError) as caught:
        use(value)
    assert isinstance(caught.value, RunTimeValueError)
    assert caught.value.remedy


def test_a_register_has_no_python_value_under_the_tracer(choose_nki):
    def kernel(_x):
        return 1 if nisa.register_alloc(1) else 2

    with pytest.raises(RunTimeValueError, match="a register used as a Python condition"):
        run(kernel, np.zeros(1, np.float32))
    choose_nki("0.6")

    def branching(x):
        return x if nisa.register_alloc(1) else None

    assert run(branching, np.zeros(1, np.float32)).outputs.shape == (1,)


COMPARISONS = (
    *(operator.lt, operator.le, operator.gt),
    *(operator.ge, operator.eq, operator.ne),
)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_comparison_of_int32_is_traced_and_good_for_nothing(compare):
    result = compare(NkiScalar(1), 2)
    assert result.is_comparison
    for use in (lambda s: s + 1, lambda s: nl.fori_loop(0, s, lambda _i: None)):
        with pytest.raises(NkiValidationError, match="the result of comparing scalars"):
            run(lambda _x, use=use: use(result), np.zeros(1, np.float32))
    with pytest.raises(TypeError):
        bool(result)
    with pytest.raises(NkiValidationError, match=r"int64 scalars have \+ - \* only"):
        compare(NkiScalar(1, "int64"), 2)


def test_a_scalar_is_never_none():
    assert (NkiScalar(0) == None) is False
    assert (NkiScalar(0) != None) is True


@pytest.mark.parametrize(
    ("shape", "dtype", "limit"),
    [
        ((1,), "int32", r"shape \(1, 1\)"),
        ((2, 1), "int32", r"shape \(1, 1\)"),
        ((1, 1), "uint32", "one of int32, int64"),
        ((1, 1), "float32", "one of int32, int64"),
    ],
)
def test_what_is_loaded_is_one_signed_integer(shape, dtype, limit):
    array = np.zeros(shape, dtype)
    with refused("scalar_load", limit):
        run(nisa.scalar_load, array, machine="trn2")


def storing(value, dtype="int32"):
    def kernel(_x):
        out = nl.ndarray((1, 1), dtype, nl.shared_hbm)
        nisa.scalar_store(out, value)
        return out

    return kernel


@pytest.mark.parametrize(
    ("value", "limit"),
    [(3, "an NkiScalar"), (NkiScalar(3, "int64"), "one width"), (None, "an NkiScalar")],
)
def test_what_is_stored_is_a_scalar_of_the_tiles_width(value, limit):
    with refused("scalar_store", limit):
        run(storing(value), np.zeros(1, np.float32), machine="trn2")


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.shared_hbm])
@pytest.mark.parametrize("dtype", TYPES)
def test_loads_and_stores_go_through_sbuf_and_hbm(buffer, dtype):
    def kernel(x):
        tile = nl.ndarray((1, 1), dtype, buffer)
        nisa.dma_copy(tile, x)
        nisa.scalar_store(tile, nisa.scalar_load(tile) + 1)
        out = nl.ndarray((1, 1), dtype, nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    x = np.full((1, 1), 2**31 - 2, TYPES[dtype])
    np.testing.assert_array_equal(result_of(kernel, x), x + 1)
    assert_traces_agree(kernel, x)


def test_no_engine_computes_with_int64():
    def kernel(x):
        tile = nl.ndarray((1, 1), nl.int64, nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.tensor_copy(tile, tile)

    x = np.zeros((1, 1), np.int64)
    with refused("tensor_copy", "no engine computes with it"):
        run(kernel, x, machine="trn2")

    def cast(x):
        nisa.dma_copy(nl.ndarray((1, 1), nl.int32, nl.sbuf), x)

    with refused("dma_copy", "int64 is copied to int64 only"):
        run(cast, x, machine="trn2")


def test_scalars_are_not_in_nki_0_6(nki_0_6):
    x = np.zeros((1, 1), np.int32)
    with refused("scalar_load", "NKI 0.7 and its tracer"):
        run(nisa.scalar_load, x, machine="trn2")
    with pytest.raises(NkiValidationError, match=r"NKI 0\.6 does not have it"):
        run(lambda x: x, x.astype(np.int64), machine="trn2")

    def counting(_x):
        kinds.append(nisa.VirtualRegister)
        nl.fori_loop(0, 1, lambda i: kinds.append(type(i)))

    kinds = []
    run(counting, x, machine="trn2")
    assert kinds == [nisa.VirtualRegister] * 2


def test_the_counter_is_a_scalar_unless_a_bound_is_a_register():
    kinds = []

    def kernel(x):
        body = lambda i: kinds.append(type(i).__name__)  # noqa: E731 (two words)
        nl.fori_loop(0, 1, body)
        nl.fori_loop(0, nisa.scalar_load(x) * 1, body)
        nl.fori_loop(nisa.register_alloc(0), 1, body)
        nl.fori_loop(0, nisa.register_alloc(1), body)

    run(kernel, np.ones((1, 1), np.int32), machine="trn2")
    assert kinds == ["NkiScalar", "NkiScalar", "VirtualRegister", "VirtualRegister"]


def test_a_loop_bound_is_an_expression_of_32_bits():
    def kernel(x, n):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(out, x)
        tile = nl.ndarray((1, 4), x.dtype, nl.sbuf)
        nisa.memset(tile, 7)
        last = nisa.scalar_load(n) * 2 - 1

        def body(i):
            nisa.dma_copy(out.ap([[4, 1], [1, 4]], scalar_offset=i, indirect_dim=0), tile)

        nl.fori_loop(nisa.scalar_load(n), last, body, 2)
        return out

    x = np.zeros((10, 4), np.int32)
    wanted = x.copy()
    wanted[4:7:2] = 7
    np.testing.assert_array_equal(result_of(kernel, x, np.full((1, 1), 4, np.int32)), wanted)
    with refused("nl.fori_loop", "32 bits: compare-and-branch"):
        run(kernel, x, np.full((1, 1), 4, np.int64), machine="trn2")


def test_a_while_loop_counts_with_scalars():
    def kernel(n):
        out = nl.ndarray((1, 1), nl.int32, nl.shared_hbm)
        nisa.dma_copy(out, n)

        def body(left):
            nisa.scalar_store(out, nisa.scalar_load(out) + left)
            return left - 1

        nl.while_loop(nisa.scalar_load(n), body)
        return out

    assert result_of(kernel, np.full((1, 1), 5, np.int32))[0, 0] == 5 + 5 + 4 + 3 + 2 + 1


def blocks(expression, turns, rows=24):
    """A kernel that copies row `expression(i)` in each turn."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(out, x)

        def body(i):
            tile = nl.ndarray((1, 10), x.dtype, nl.sbuf)
            row = expression(i)
            nisa.dma_copy(tile, x.ap([[10, 1], [1, 10]], scalar_offset=row, indirect_dim=0))
            nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
            nisa.dma_copy(out.ap([[10, 1], [1, 10]], scalar_offset=row, indirect_dim=0), tile)

        nl.fori_loop(0, turns, body)
        return out

    return kernel, np.arange(rows * 10, dtype=np.float32).reshape(rows, 10)


@pytest.mark.parametrize("expression", [lambda i: i, lambda i: 3 * i + 1, lambda i: 20 - i * 2])
def test_an_offset_follows_arithmetic_on_the_counter(expression):
    kernel, x = blocks(expression, 7)
    wanted = x.copy()
    for i in range(7):
        wanted[expression(i)] *= 2
    np.testing.assert_array_equal(result_of(kernel, x), wanted)
    assert_traces_agree(kernel, x)
    first = expression(0) * 10
    step = (expression(1) - expression(0)) * 10
    (loop,) = run(kernel, *specs(x), values=False, machine="trn2").trace.items[1:]
    access = loop.body[0].reads[0]
    assert (access.offset, access.step, access.loop) == (first, step, loop.number)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("expression", [lambda i: 4 * i, lambda i: i - 1])
def test_an_offset_that_leaves_the_tensor_is_refused(expression, values):
    kernel, x = blocks(expression, 7)
    with refused("dma_copy", "must stay inside"):
        run(kernel, *(x,) if values else specs(x), values=values, machine="trn2")


def test_offsets_of_two_loops_add_up():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)

        def outer(i):
            def inner(j):
                row = i * 4 + j
                source = x.ap([[10, 1], [1, 10]], scalar_offset=row, indirect_dim=0)
                nisa.dma_copy(out.ap([[10, 1], [1, 10]], scalar_offset=row, indirect_dim=0), source)

            nl.fori_loop(0, 4, inner)

        nl.fori_loop(0, 6, outer)
        return out

    x = np.arange(240, dtype=np.float32).reshape(24, 10)
    np.testing.assert_array_equal(result_of(kernel, x), x)
    assert_traces_agree(kernel, x)


def test_on_chip_an_offset_has_32_bits():
    def kernel(n):
        tile = nl.ndarray((1, 8), nl.int32, nl.sbuf)
        nisa.memset(tile, 1)
        part = tile.ap([[8, 1], [1, 1]], scalar_offset=nisa.scalar_load(n), indirect_dim=1)
        nisa.tensor_copy(tile[:, 0:1], part)

    run(kernel, np.zeros((1, 1), np.int32), machine="trn2")
    for index in (kernel, lambda n: nl.ndarray((1, 8), nl.int32)[:, nl.ds(nisa.scalar_load(n), 2)]):
        with pytest.raises(NkiValidationError, match="an int64 scalar as offset into sbuf"):
            run(index, np.zeros((1, 1), np.int64), machine="trn2")


GIB = 2**30


@pytest.mark.parametrize(("turns", "refuses"), [(4 * GIB // 4096, False), (5 * GIB // 4096, True)])
def test_an_int32_offset_reaches_4_gib(turns, refuses):
    def kernel(x):
        tile = nl.ndarray((1, 1024), nl.float32, nl.sbuf)

        def body(i):
            nisa.dma_copy(tile, x.ap([[1024, 1], [1, 1024]], scalar_offset=i, indirect_dim=0))

        nl.fori_loop(0, turns, body)

    x = Spec((6 * GIB // 4096, 1024), "float32")
    if refuses:
        with pytest.raises(NkiValidationError, match="32 bits of bytes: offsets below 4294967296"):
            run(kernel, x, values=False, machine="trn3")
    else:
        run(kernel, x, values=False, machine="trn3")


def test_an_int64_offset_reaches_beyond():
    offset = NkiScalar(5 * GIB // 4096, "int64")

    def kernel(x, wide):
        tile = nl.ndarray((1, 1024), nl.float32, nl.sbuf)
        row = offset if wide else NkiScalar(offset.state)
        nisa.dma_copy(tile, x.ap([[1024, 1], [1, 1024]], scalar_offset=row, indirect_dim=0))

    x = Spec((6 * GIB // 4096, 1024), "float32")
    run(kernel, x, True, values=False, machine="trn2")
    with pytest.raises(NkiValidationError, match="load the offset as an int64 scalar"):
        run(kernel, x, False, values=False, machine="trn2")


def test_scalars_move_into_registers_and_into_iota():
    def kernel(n):
        out = nl.ndarray((1, 4), nl.int32, nl.shared_hbm)
        tile = nl.ndarray((1, 4), nl.int32, nl.sbuf)
        register = nisa.register_alloc()
        nisa.register_move(register, nisa.scalar_load(n) + 1)
        nisa.iota(tile, [[1, 4]], offset=register)
        nisa.iota(tile[:, 0:1], [[1, 1]], offset=nisa.scalar_load(n))
        nisa.dma_copy(out, tile)
        return out

    assert result_of(kernel, np.full((1, 1), 9, np.int32)).tolist() == [[9, 11, 12, 13]]
    with pytest.raises(NkiValidationError, match="use the scalar itself"):
        run(kernel, np.full((1, 1), 9, np.int64), machine="trn2")


def test_loading_a_scalar_takes_as_long_as_loading_a_register():
    from nkisim.timing import schedule

    def registers(n):
        nisa.register_load(nisa.register_alloc(), n)

    def scalars(n):
        nisa.scalar_load(n)

    n = np.zeros((1, 1), np.int32)
    times = []
    for kernel in (registers, scalars):
        done = run(kernel, n, machine="trn2")
        times.append(schedule(done.trace, nkisim.TRN2).makespan_ns)
    assert times[0] == times[1] > 0
