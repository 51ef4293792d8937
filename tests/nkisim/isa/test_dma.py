"""dma_copy against NumPy: casts, broadcasts, any partitions, run-time rows, and its rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of
from nkisim.enums import dge_mode, engine, oob_mode
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(14)


def floats(rng, *shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def output(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, nl.shared_hbm)


def test_elements_are_copied_in_row_major_order_whatever_the_shapes(rng):
    x = floats(rng, 6, 4, 5)

    def kernel(x):
        tile = nl.ndarray((12, 10), nl.float32, nl.sbuf)
        nisa.dma_copy(tile, x)
        result = output((120,))
        nisa.dma_copy(result, tile)
        return result

    np.testing.assert_array_equal(result_of(kernel, x), x.reshape(-1))
    assert_traces_agree(kernel, x)


def test_a_vector_becomes_a_column(rng):
    bias = floats(rng, 40, dtype=BFLOAT16)

    def kernel(bias):
        column = nl.ndarray((40, 1), nl.float32, nl.sbuf)
        nisa.dma_copy(column, bias)
        return give(column)

    np.testing.assert_array_equal(result_of(kernel, bias)[:, 0], bias.astype(np.float32))


@pytest.mark.parametrize(
    ("source", "target"),
    [(np.float32, BFLOAT16), (BFLOAT16, np.float32), (np.int32, np.float32), (np.float32, np.int8)],
)
def test_other_types_are_cast_through_float32(rng, source, target):
    x = (100 * floats(rng, 8, 8)).astype(source)

    def kernel(x):
        result = output((8, 8), np.dtype(target).name)
        nisa.dma_copy(result, x)
        return result

    expected = x.astype(np.float32)
    if target is np.int8:
        expected = np.clip(np.rint(expected), -128, 127)
    np.testing.assert_array_equal(result_of(kernel, x), expected.astype(target))


def test_a_cast_of_large_integers_loses_bits_and_a_copy_does_not():
    x = np.array([2**24 + 1, 2**31 - 1], np.int32)

    def kernel(x):
        same, other = output((2,), nl.int32), output((2,), nl.uint32)
        nisa.dma_copy(same, x)
        nisa.dma_copy(other, x)
        return same, other

    same, other = result_of(kernel, x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(other, [2**24, 2**31])


def test_a_row_is_broadcast_to_all_partitions(rng):
    row = floats(rng, 24)

    def kernel(row):
        tile = nl.ndarray((128, 24), nl.float32, nl.sbuf)
        nisa.dma_copy(tile, row.ap([[0, 128], [1, 24]]))
        return give(tile)

    np.testing.assert_array_equal(result_of(kernel, row), np.tile(row, (128, 1)))


def test_overlapping_windows_are_read_from_hbm(rng):
    """The im2col of a 1-D convolution of stride 2: row s holds x[s], x[s + 2], ..."""
    x = floats(rng, 20)

    def kernel(x):
        tile = nl.ndarray((5, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(tile, x.ap([[1, 5], [2, 8]]))
        return give(tile)

    expected = np.array([[x[s + 2 * q] for q in range(8)] for s in range(5)])
    np.testing.assert_array_equal(result_of(kernel, x), expected)


def test_any_partitions_are_reached(rng):
    x = floats(rng, 21, 6)

    def kernel(x):
        tile = nl.ndarray((128, 6), nl.float32, nl.sbuf)
        nisa.memset(tile, 0.0)
        nisa.dma_copy(tile[37:58], x)
        nisa.dma_copy(tile[99:120], tile[37:58])
        return give(tile)

    expected = np.zeros((128, 6), np.float32)
    expected[37:58] = expected[99:120] = x
    np.testing.assert_array_equal(result_of(kernel, x), expected)


def test_hbm_is_copied_to_hbm_with_strides(rng):
    x = floats(rng, 4, 6)

    def kernel(x):
        result = output((6, 8))
        nisa.dma_copy(result[:, 0:7:2], x.permute((1, 0)))
        nisa.dma_copy(result[:, 1:8:2], x.permute((1, 0)))
        return result

    np.testing.assert_array_equal(result_of(kernel, x), np.repeat(x.T, 2, axis=1))


def test_packed_types_are_moved(rng):
    x = rng.integers(0, 2**32, size=(4, 3), dtype=np.uint32)

    def kernel(x):
        tile = nl.ndarray((4, 3), nl.float8_e4m3fn_x4, nl.sbuf)
        nisa.dma_copy(tile, x.view(nl.float8_e4m3fn_x4))
        result = output((4, 3), nl.uint32)
        nisa.dma_copy(result.view(nl.float8_e4m3fn_x4), tile)
        return result

    np.testing.assert_array_equal(result_of(kernel, x), x)


def gathered(table, numbers, **options):
    """Rows of `table` by `numbers`, over a tile of -1."""
    width = table.shape[1]
    tile = nl.ndarray((numbers.shape[0], width), nl.float32, nl.sbuf)
    nisa.memset(tile, -1.0)
    rows = load(numbers)
    pattern = [[width, numbers.shape[0]], [1, width]]
    nisa.dma_copy(tile, table.ap(pattern, vector_offset=rows), **options)
    return give(tile)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
def test_rows_are_gathered_by_number(rng, dtype):
    """More rows are fetched than the table has."""
    table = floats(rng, 10, 7, dtype=dtype)
    numbers = rng.integers(0, 10, size=(60, 1)).astype(np.int32)
    result = result_of(gathered, table, numbers)
    np.testing.assert_array_equal(result, table[numbers[:, 0]].astype(np.float32))
    assert_traces_agree(gathered, table, numbers)


def test_vector_select_gathers_too(rng):
    table, numbers = floats(rng, 10, 3, 4), np.array([[4], [0], [9], [4]], np.uint32)

    def kernel(table, numbers):
        tile = nl.ndarray((4, 2, 4), nl.float32, nl.sbuf)
        nisa.dma_copy(tile, table[:, 1:3].vector_select(0, load(numbers)))
        return give(tile)

    expected = table[numbers[:, 0], 1:3]
    np.testing.assert_array_equal(result_of(kernel, table, numbers), expected)


def test_a_gather_may_take_a_window_of_every_row(rng):
    table, numbers = floats(rng, 10, 12), np.array([[9], [0], [3]], np.int32)

    def kernel(table, numbers):
        tile = nl.ndarray((3, 4), nl.float32, nl.sbuf)
        window = table.ap([[12, 3], [1, 4]], offset=8, vector_offset=load(numbers))
        nisa.dma_copy(tile, window)
        return give(tile)

    np.testing.assert_array_equal(result_of(kernel, table, numbers), table[[9, 0, 3], 8:12])


def test_rows_are_counted_in_the_type_of_the_view(rng):
    table = rng.integers(0, 256, size=(6, 16), dtype=np.uint8)
    numbers = np.array([[5], [2]], np.int32)

    def kernel(table, numbers):
        tile = nl.ndarray((2, 4), nl.uint32, nl.sbuf)
        rows = load(numbers)
        words = table.ap([[4, 2], [1, 4]], vector_offset=rows, dtype=nl.uint32)
        nisa.dma_copy(tile, words)
        return give(tile)

    np.testing.assert_array_equal(result_of(kernel, table, numbers), table[[5, 2]].view("<u4"))


def scattered(updates, numbers, **options):
    """A table of zeros, some rows of which are overwritten by number."""
    width = updates.shape[1]
    table = output((10, width))
    zero = nl.ndarray((10, width), nl.float32, nl.sbuf)
    nisa.memset(zero, 0.0)
    nisa.dma_copy(table, zero)
    rows = load(numbers)
    pattern = [[width, numbers.shape[0]], [1, width]]
    nisa.dma_copy(table.ap(pattern, vector_offset=rows), load(updates), **options)
    return table


def test_rows_are_scattered_by_number(rng):
    updates = floats(rng, 4, 5, dtype=BFLOAT16)
    numbers = np.array([[7], [0], [9], [3]], np.int32)
    expected = np.zeros((10, 5), np.float32)
    expected[numbers[:, 0]] = updates
    np.testing.assert_array_equal(result_of(scattered, updates, numbers), expected)
    assert_traces_agree(scattered, updates, numbers)


@pytest.mark.parametrize("wrong", [10, -1])
def test_a_row_outside_is_an_error_or_skipped(rng, wrong):
    table, updates = floats(rng, 10, 5), floats(rng, 3, 5)
    numbers = np.array([[2], [wrong], [9]], np.int32)
    for kernel, data in ((gathered, table), (scattered, updates)):
        with pytest.raises(nisa.NkiValidationError, match=f"row {wrong} "):
            run(kernel, data, numbers, machine="trn2")

    def skipping(kernel):
        return lambda data, numbers: kernel(data, numbers, oob_mode=oob_mode.skip)

    expected = np.full((3, 5), -1, np.float32)
    expected[[0, 2]] = table[[2, 9]]
    np.testing.assert_array_equal(result_of(skipping(gathered), table, numbers), expected)
    expected = np.zeros((10, 5), np.float32)
    expected[[2, 9]] = updates[[0, 2]]
    np.testing.assert_array_equal(result_of(skipping(scattered), updates, numbers), expected)


def test_skipping_casts_and_pairs_like_any_copy(rng):
    table = floats(rng, 10, 6)
    numbers = np.array([[2], [99]], np.int32)

    def kernel(table, numbers):
        tile = nl.ndarray((1, 12), nl.bfloat16, nl.sbuf)
        nisa.memset(tile, 0.0)
        rows = table.ap([[6, 2], [1, 6]], vector_offset=load(numbers))
        nisa.dma_copy(tile, rows, oob_mode=oob_mode.skip)
        return give(tile)

    expected = np.concatenate([table[2].astype(BFLOAT16), np.zeros(6, BFLOAT16)])[None]
    np.testing.assert_array_equal(result_of(kernel, table, numbers), expected)


def shifted(x, start, **options):
    """Four rows of x from the row that an SBUF tensor names, over a tile of -1."""
    width = x.shape[1]
    tile = nl.ndarray((4, width), nl.float32, nl.sbuf)
    nisa.memset(tile, -1.0)
    first = load(start)
    nisa.dma_copy(tile, x.ap([[width, 4], [1, width]], scalar_offset=first), **options)
    return give(tile)


def test_a_scalar_offset_moves_the_whole_view(rng):
    x, start = floats(rng, 12, 6), np.array([[5]], np.int32)
    np.testing.assert_array_equal(result_of(shifted, x, start), x[5:9])


def test_a_scalar_offset_counts_the_rows_of_its_dimension(rng):
    x, start = floats(rng, 3, 8, 2), np.array([[6]], np.int32)

    def kernel(x, start):
        tile = nl.ndarray((3, 2), nl.float32, nl.sbuf)
        view = x.ap([[16, 3], [1, 2]], scalar_offset=load(start), indirect_dim=1)
        nisa.dma_copy(tile, view)
        return give(tile)

    np.testing.assert_array_equal(result_of(kernel, x, start), x[:, 6])


def test_a_scalar_offset_outside_is_an_error_or_skipped(rng):
    x, start = floats(rng, 12, 6), np.array([[9]], np.int32)
    with refused("dma_copy", r"the view \(4, 6\) must stay inside"):
        run(shifted, x, start, machine="trn2")

    def skipping(x, start):
        return shifted(x, start, oob_mode=oob_mode.skip)

    np.testing.assert_array_equal(result_of(skipping, x, start), np.full((4, 6), -1, np.float32))


def test_the_row_numbers_are_read(rng):
    def kernel(table, numbers):
        rows = load(numbers)
        tile = nl.ndarray((4, 6), nl.float32, nl.sbuf)
        view = table.ap([[6, 4], [1, 6]], vector_offset=rows)
        handle = nisa.dma_copy(tile, view, name="gather").handle
        assert [access.allocation.name for access in handle.reads] == [table.name, rows.name]

    run(kernel, floats(rng, 8, 6), np.zeros((4, 1), np.int32), machine="trn2")


def simple(src_dtype=np.float32, dst_dtype=nl.float32, **options):
    def kernel(x):
        nisa.dma_copy(nl.ndarray((4, 4), dst_dtype, nl.sbuf), x, **options)

    return kernel, np.ones((4, 4), src_dtype)


def indexed(shape, **options):
    def kernel(x, numbers):
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf)
        rows = load(numbers)
        nisa.dma_copy(tile, x.ap([[4, 4], [1, 4]], vector_offset=rows), **options)

    return kernel, np.ones((8, 4), np.float32), np.zeros(shape, np.int32)


@pytest.mark.parametrize("mode", list(dge_mode))
def test_every_descriptor_mode_copies(mode):
    run(*simple(dge_mode=mode), machine="trn2")


@pytest.mark.parametrize("trigger", [engine.sync, engine.scalar])
def test_hardware_descriptors_are_triggered_by(trigger):
    run(*simple(dge_mode=dge_mode.hwdge, engine=trigger), machine="trn2")


def test_priorities_exist_on_trn3():
    run(*simple(priority=3), machine="trn3")


@pytest.mark.parametrize(
    ("case", "machine", "limit"),
    [
        (simple(dge_mode=dge_mode.hwdge), "trn1", "exists from NeuronCore-v3 on"),
        (simple(BFLOAT16, dge_mode=dge_mode.hwdge), "trn2", "does not cast"),
        (simple(dge_mode=2), "trn2", "a member of nisa.dge_mode"),
        (simple(oob_mode="skip"), "trn2", "a member of nisa.oob_mode"),
        (simple(engine=engine.sync), "trn2", "with dge_mode.hwdge"),
        (simple(engine="sync"), "trn2", "a member of nisa.engine"),
        (
            simple(dge_mode=dge_mode.hwdge, engine=engine.vector),
            "trn2",
            "engine.sync or engine.scalar",
        ),
        (simple(priority=1), "trn2", "0..3, from NeuronCore-v4 on"),
        (simple(priority=4), "trn3", "0..3, from NeuronCore-v4 on"),
        (simple(dst_dtype=nl.float8_e5m2_x4), "trn3", "copied, not cast"),
        (indexed((4, 1), dge_mode=dge_mode.hwdge), "trn2", "software descriptor generation"),
        (indexed((4, 1), dge_mode=dge_mode.none), "trn2", "software descriptor generation"),
        (indexed((5, 1)), "trn2", "one row number per row"),
        (indexed((4, 2)), "trn2", "one row number per row"),
    ],
)
def test_a_copy_is_refused_for(case, machine, limit):
    with refused("dma_copy", limit):
        run(*case, machine=machine)


def test_counts_regions_and_written_views_are_checked():
    x = np.ones((4, 4), np.float32)

    def fewer(x):
        nisa.dma_copy(nl.ndarray((4, 3), nl.float32, nl.sbuf), x)

    def from_psum(x):
        nisa.dma_copy(nl.ndarray((4, 4), nl.float32, nl.psum), x)

    def onto_one(x):
        nisa.dma_copy(output((4,)).ap([[1, 4], [0, 4]]), x)

    def windows_that_meet(x):
        nisa.dma_copy(output((7,)).ap([[1, 4], [1, 4]]), x)

    def shifted(x):
        nisa.dma_copy(x[1:4], x[0:3])

    def by_free_index(x):
        tile = load(x)
        index = nl.ndarray((4, 1), nl.uint16, nl.sbuf)
        nisa.dma_copy(nl.ndarray((4, 4), nl.float32, nl.sbuf), tile.indirect(index, 4))

    for kernel, limit in (
        (fewer, "same number of elements"),
        (from_psum, "dst may live in private_hbm, sbuf, shared_hbm"),
        (onto_one, "engine.dma writes an element once"),
        (windows_that_meet, "engine.dma writes an element once"),
        (shifted, "the same elements in the same order, or share no byte"),
        (by_free_index, "DMA gathers by vector_offset"),
    ):
        with refused("dma_copy", limit):
            run(kernel, x, machine="trn3")


def test_one_side_is_gathered_or_scattered():
    def kernel(x, numbers):
        rows = load(numbers)
        view = x.ap([[4, 4], [1, 4]], vector_offset=rows)
        other = output((8, 4)).ap([[4, 4], [1, 4]], vector_offset=rows)
        nisa.dma_copy(other, view)

    with refused("dma_copy", "one side is gathered or scattered"):
        run(kernel, np.ones((8, 4), np.float32), np.zeros((4, 1), np.int32), machine="trn2")
