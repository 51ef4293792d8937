"""dma_compute: sums of tensors, scatter-add and gather-add against NumPy, and its rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of
from nkisim.enums import oob_mode
from nkisim.errors import UnsupportedError
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(16)


def floats(rng, *shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def output(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, nl.shared_hbm)


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_sources_are_added_in_float32_and_cast_once(rng, count):
    sources = floats(rng, count, 8, 6, dtype=BFLOAT16)

    def kernel(x):
        result = output((8, 6), nl.bfloat16)
        nisa.dma_compute(result, [x[i] for i in range(count)], nl.add)
        return result

    total = sources[0].astype(np.float32)
    for source in sources[1:]:
        total = total + source.astype(np.float32)
    np.testing.assert_array_equal(result_of(kernel, sources), total.astype(BFLOAT16))
    assert_traces_agree(kernel, sources)


def test_types_places_and_shapes_mix(rng):
    x, y = floats(rng, 4, 6), rng.integers(-9, 9, size=(24,)).astype(np.int32)

    def kernel(x, y):
        tile = nl.ndarray((8, 3), nl.float32, nl.sbuf)
        nisa.dma_compute(tile, (load(x), y), nl.add, scales=(1.0, 1))
        return give(tile)

    expected = (x.reshape(-1) + y.astype(np.float32)).reshape(8, 3)
    np.testing.assert_array_equal(result_of(kernel, x, y), expected)


def test_dst_may_be_a_source(rng):
    x = floats(rng, 4, 6)

    def kernel(x):
        tile = load(x)
        nisa.dma_compute(tile, [tile, x, tile], nl.add)
        return give(tile)

    np.testing.assert_array_equal(result_of(kernel, x), x + x + x)


def scatter_add(table, updates, numbers, **options):
    """rows of a copy of `table` += updates"""
    width = table.shape[1]
    result = output(table.shape, table.dtype)
    nisa.dma_copy(result, table)
    rows, added = load(numbers), load(updates)
    target = result.ap([[width, numbers.shape[0]], [1, width]], vector_offset=rows)
    options = {"reduce_op": nl.add, **options}
    nisa.dma_compute(target, [target, added], **options)
    return result


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
def test_rows_are_scattered_and_added(rng, dtype):
    table, updates = floats(rng, 10, 5, dtype=dtype), floats(rng, 4, 5)
    numbers = np.array([[7], [0], [9], [3]], np.int32)
    expected = table.copy()
    expected[numbers[:, 0]] = (table[numbers[:, 0]].astype(np.float32) + updates).astype(dtype)
    np.testing.assert_array_equal(result_of(scatter_add, table, updates, numbers), expected)
    assert_traces_agree(scatter_add, table, updates, numbers)


def gather_add(table, start, numbers, **options):
    """a copy of `start` += rows of table"""
    width = table.shape[1]
    tile, rows = load(start), load(numbers)
    source = table.ap([[width, numbers.shape[0]], [1, width]], vector_offset=rows)
    options = {"reduce_op": nl.add, **options}
    nisa.dma_compute(tile, [source, tile], **options)
    return give(tile)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
def test_rows_are_gathered_and_added(rng, dtype):
    table, start = floats(rng, 10, 5), floats(rng, 4, 5, dtype=dtype)
    numbers = np.array([[7], [0], [7], [3]], np.int32)
    expected = (start.astype(np.float32) + table[numbers[:, 0]]).astype(dtype)
    np.testing.assert_array_equal(result_of(gather_add, table, start, numbers), expected)
    assert_traces_agree(gather_add, table, start, numbers)


@pytest.mark.parametrize("wrong", [10, -1])
def test_rows_outside_are_an_error_or_left_alone(rng, wrong):
    table, updates = floats(rng, 10, 5), floats(rng, 3, 5)
    numbers = np.array([[2], [wrong], [9]], np.int32)
    for kernel in (scatter_add, gather_add):
        with refused("dma_compute", "rows inside the tensor"):
            run(kernel, table, updates, numbers, machine="trn2")

    def skipping(kernel):
        return lambda *arrays: kernel(*arrays, oob_mode=oob_mode.skip)

    expected = table.copy()
    expected[[2, 9]] += updates[[0, 2]]
    result = result_of(skipping(scatter_add), table, updates, numbers)
    np.testing.assert_array_equal(result, expected)
    expected = updates.copy()
    expected[[0, 2]] += table[[2, 9]]
    result = result_of(skipping(gather_add), table, updates, numbers)
    np.testing.assert_array_equal(result, expected)


def test_a_row_that_is_left_alone_keeps_its_bits(rng):
    table = np.ones((4, 2), np.float32)
    start = np.array([[2**24 + 1, 3], [5, 6]], np.int32)

    def kernel(table, start, numbers):
        return gather_add(table, start, numbers, oob_mode=oob_mode.skip)

    result = result_of(kernel, table, start, np.array([[4], [0]], np.int32))
    np.testing.assert_array_equal(result, [[2**24 + 1, 3], [6, 7]])


def test_a_row_twice_in_one_scatter_is_refused(rng):
    numbers = np.array([[2], [3], [2]], np.int32)
    with refused("dma_compute", "every row occurs once"):
        run(scatter_add, floats(rng, 10, 5), floats(rng, 3, 5), numbers, machine="trn2")


def test_repeated_rows_are_not_supported(rng):
    numbers = np.array([[2]], np.int32)

    def kernel(*arrays):
        return scatter_add(*arrays, unique_indices=False)

    with refused("dma_compute", "not supported by NKI 0.6", error=UnsupportedError):
        run(kernel, floats(rng, 10, 5), floats(rng, 1, 5), numbers, machine="trn2")


def summing(shapes, **options):
    def kernel(x):
        result = output((4, 4))
        tiles = [nl.ndarray(shape, nl.float32, nl.sbuf) for shape in shapes]
        nisa.dma_compute(result, tiles, **{"reduce_op": nl.add, **options})

    return kernel


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (summing([(4, 4)] * 17), "a list of 1..16 tensors"),
        (summing([]), "a list of 1..16 tensors"),
        (summing([(4, 4)] * 2, reduce_op=nl.multiply), "nl.add"),
        (summing([(4, 4)] * 2, scales=[1.0, 0.5]), "1.0 for every source"),
        (summing([(4, 4)] * 2, scales=[1.0]), "1.0 for every source"),
        (summing([(4, 4), (4, 5)]), "all are equal"),
        (summing([(4, 4)], oob_mode=1), "a member of nisa.oob_mode"),
    ],
)
def test_a_sum_is_refused_for(kernel, limit):
    with refused("dma_compute", limit):
        run(kernel, np.zeros((1, 1), np.float32), machine="trn2")


def rows_of(tensor, index, count=3):
    return tensor.ap([[5, count], [1, 5]], vector_offset=index)


def read_modify_write(build):
    def kernel(table, numbers):
        index = load(numbers)
        tile = nl.ndarray((3, 5), nl.float32, nl.sbuf)
        dst, srcs = build(table, index, tile)
        nisa.dma_compute(dst, srcs, nl.add)

    return kernel


@pytest.mark.parametrize(
    ("build", "limit"),
    [
        (lambda t, i, s: (s, [rows_of(t, i), s, s]), "one of exactly two sources"),
        (lambda t, i, s: (s, [rows_of(t, i), rows_of(t, i)]), "one of exactly two sources"),
        (lambda t, i, s: (rows_of(t, i), [s, s]), "one of exactly two sources"),
        (lambda t, i, s: (s, [rows_of(t, i), t[0:3]]), "a source in SBUF"),
        (lambda t, i, s: (output((3, 5)), [rows_of(t, i), s]), "a dst in SBUF, or the gathered"),
        (
            lambda t, i, s: (rows_of(output((10, 5)), i), [rows_of(t, i), s]),
            "the very view that dst is",
        ),
        (
            lambda t, i, s: (nl.ndarray((3, 5), nl.float32, nl.sbuf), [rows_of(t, i), s]),
            "the very view that dst is",
        ),
    ],
)
def test_a_read_modify_write_is_refused_for(build, limit):
    numbers = np.arange(3, dtype=np.int32)[:, None]
    with refused("dma_compute", limit):
        run(read_modify_write(build), np.ones((10, 5), np.float32), numbers, machine="trn2")


def test_addresses_are_static():
    def kernel(x, start):
        tile = nl.ndarray((2, 5), nl.float32, nl.sbuf)
        view = x.ap([[5, 2], [1, 5]], scalar_offset=load(start))
        nisa.dma_compute(tile, [view, tile], nl.add)

    with refused("dma_compute", "known at compile time"):
        run(kernel, np.ones((10, 5), np.float32), np.array([[1]], np.int32), machine="trn2")
