"""tensor_copy and memset against NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(13)


def copy(**options):
    return lambda dst, src: nisa.tensor_copy(dst, src, **options)


def fill(value, **options):
    return lambda dst: nisa.memset(dst, value, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, BFLOAT16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("where", [engine.vector, engine.scalar, engine.gpsimd, engine.unknown])
def test_equal_types_are_copied_bit_for_bit(rng, dtype, where):
    bits = rng.integers(0, 256, size=(64, 40 * np.dtype(dtype).itemsize), dtype=np.uint8)
    src = bits.view(dtype)
    result = after(copy(engine=where), zeros(64, 40, dtype=dtype), src)[0]
    np.testing.assert_array_equal(result.view(np.uint8), bits)


def test_integers_beyond_24_bits_survive_a_copy_and_not_a_cast():
    src = np.array([[2**24 + 1, -(2**31)]], np.int32)
    np.testing.assert_array_equal(after(copy(), zeros(1, 2, dtype=np.int32), src)[0], src)
    through_fp32 = after(copy(), zeros(1, 2, dtype=np.uint32), src)[0]
    np.testing.assert_array_equal(through_fp32, [[2**24, 0]])


def test_other_types_are_cast_once(rng):
    src = rng.normal(size=(8, 16)).astype(np.float32)
    result = after(copy(), zeros(8, 16, dtype=BFLOAT16), src)[0]
    np.testing.assert_array_equal(result, src.astype(BFLOAT16))


def test_floats_round_to_even_and_saturate_in_integers():
    src = np.array([[2.5, 3.5, -300.0, 300.0, np.nan]], np.float32)
    result = after(copy(), zeros(1, 5, dtype=np.int8), src)[0]
    np.testing.assert_array_equal(result, [[2, 4, -128, 127, 0]])


def test_strided_views_pair_in_row_major_order(rng):
    """The scatter of a dilated input: rows and columns into every other place."""
    src = rng.normal(size=(16, 12)).astype(np.float32)

    def issue(dst, tile):
        nisa.tensor_copy(dst[:, 0:5:2, 1:8:2], tile)

    result = after(issue, zeros(16, 6, 8), src)[0]
    expected = np.zeros((16, 6, 8), np.float32)
    expected[:, 0:5:2, 1:8:2] = src.reshape(16, 3, 4)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("where", [engine.vector, engine.scalar])
def test_psum_is_read_and_written(rng, where):
    src = rng.normal(size=(16, 12)).astype(np.float32)
    result = after(copy(engine=where), Psum(zeros(16, 12)), Psum(src))[0]
    np.testing.assert_array_equal(result, src)


def test_a_copy_does_not_shift_a_tile_onto_itself(rng):
    """What is read late would be what was written early; NKI leaves that undefined."""
    src = rng.normal(size=(4, 8)).astype(np.float32)
    limit = "the same elements in the same order, or share no byte"
    with refused("tensor_copy", limit):
        after(lambda tile: nisa.tensor_copy(tile[:, 1:8], tile[:, 0:7]), src)
    with refused("tensor_copy", limit):
        after(lambda tile: nisa.tensor_copy(tile[:, 0:4], tile[:, 0:8:2]), src)
    with refused("tensor_copy", limit):
        after(lambda tile: nisa.tensor_copy(tile, tile.ap([[8, 4], [-1, 8]], offset=7)), src)


def test_interleaved_columns_of_a_tile_do_not_overlap(rng):
    src = rng.normal(size=(4, 8)).astype(np.float32)
    result = after(lambda tile: nisa.tensor_copy(tile[:, 1::2], tile[:, 0::2]), src)[0]
    np.testing.assert_array_equal(result, np.repeat(src[:, 0::2], 2, axis=1))


def test_a_result_that_meets_itself_is_refused(rng):
    """Windows of 3 that begin at every element: each would be written three times."""
    src = rng.normal(size=(4, 12)).astype(np.float32)

    def issue(dst, tile):
        nisa.tensor_copy(dst.ap([[6, 4], [1, 4], [1, 3]]), tile)

    with refused("tensor_copy", "writes an element once"):
        after(issue, zeros(4, 6), src)


@pytest.mark.parametrize("shape", [(8, 4), (8, 3, 5)])
def test_the_last_of_several_elements_written_to_one_place_stays(rng, shape):
    src = rng.normal(size=shape).astype(np.float32)
    pattern = [[1, shape[0]], *([0, count] for count in shape[1:])]
    result = after(
        lambda dst, tile: nisa.tensor_copy(dst.ap(pattern), tile), zeros(shape[0], 1), src
    )[0]
    np.testing.assert_array_equal(result[:, 0], src.reshape(shape[0], -1)[:, -1])


def test_quadrants_may_differ(rng):
    src = rng.normal(size=(128, 8)).astype(np.float32)

    def issue(dst, tile):
        nisa.tensor_copy(dst[32:64], tile[96:128])

    expected = np.zeros((128, 8), np.float32)
    expected[32:64] = src[96:128]
    np.testing.assert_array_equal(after(issue, zeros(128, 8), src)[0], expected)


def test_assignment_is_a_copy(rng):
    src = rng.normal(size=(8, 6)).astype(np.float32)

    def kernel(x):
        tile = nl.ndarray((8, 6), nl.float32, nl.sbuf)
        tile[:, :] = x
        doubled = nl.ndarray((8, 12), nl.float32, nl.sbuf)
        doubled[:, 0:6] = tile
        doubled[:, 6:12] = tile
        result = nl.ndarray((8, 12), nl.float32, nl.shared_hbm)
        result[...] = doubled
        return result

    run_ = run(kernel, src, machine="trn2")
    np.testing.assert_array_equal(run_.outputs, np.tile(src, (1, 2)))
    ops = [instruction.op for instruction in run_.trace.instructions()]
    assert ops == ["dma_copy", "tensor_copy", "tensor_copy", "dma_copy"]


def snake(offsets, group, columns):
    """An index tile in which offset i of every `group` partitions is [i % group, i // group]."""
    index = np.zeros((group * len(offsets), columns), np.uint16)
    for g, row in enumerate(offsets):
        for i, offset in enumerate(row):
            index[group * g + i % group, i // group] = offset
    return index


def gather(dst, tile, index):
    nisa.tensor_copy(dst, tile.indirect(index, 20))


def scatter(dst, tile, index):
    nisa.tensor_copy(dst.indirect(index, 20), tile)


def test_copies_gather_through_an_index_on_trn3(rng):
    src = rng.normal(size=(32, 50)).astype(np.float32)
    offsets = rng.integers(0, 50, size=(2, 20))
    tiles = (zeros(32, 20), src, snake(offsets, 16, 2))
    expected = np.concatenate([src[16 * g : 16 * g + 16][:, offsets[g]] for g in range(2)])
    np.testing.assert_array_equal(after(gather, *tiles, machine="trn3")[0], expected)
    assert_shape_only_agrees(gather, *tiles, machine="trn3")


def test_copies_scatter_through_an_index_on_trn3(rng):
    src = rng.normal(size=(32, 20)).astype(np.float32)
    offsets = np.stack([rng.permutation(50)[:20] for _ in range(2)])
    tiles = (zeros(32, 50), src, snake(offsets, 16, 2))
    expected = np.zeros((32, 50), np.float32)
    for g in range(2):
        expected[16 * g : 16 * g + 16, offsets[g]] = src[16 * g : 16 * g + 16]
    np.testing.assert_array_equal(after(scatter, *tiles, machine="trn3")[0], expected)


def test_the_index_is_read_too(rng):
    tiles = (zeros(32, 20), rng.normal(size=(32, 50)).astype(np.float32), np.zeros((32, 2), "u2"))

    def issue(dst, tile, index):
        handle = nisa.tensor_copy(dst, tile.indirect(index, 20)).handle
        assert [access.allocation.name for access in handle.reads] == [tile.name, index.name]

    after(issue, *tiles, machine="trn3")


def test_indirection_is_refused_before_trn3_and_on_gpsimd():
    tiles = (zeros(32, 20), zeros(32, 50), np.zeros((32, 2), np.uint16))
    with refused("tensor_copy", "exists from NeuronCore-v4 on"):
        after(gather, *tiles, machine="trn2")

    def on_gpsimd(dst, tile, index):
        nisa.tensor_copy(dst, tile.indirect(index, 20), engine=engine.gpsimd)

    with refused("tensor_copy", "Vector and the Scalar engine copy through an index"):
        after(on_gpsimd, *tiles, machine="trn3")


@pytest.mark.parametrize(
    ("issue", "tiles", "machine", "limit"),
    [
        (copy(), (zeros(8, 4), zeros(9, 4)), "trn2", "same number of partitions"),
        (copy(), (zeros(8, 4), zeros(8, 5)), "trn2", "same number of elements per partition"),
        (copy(engine=engine.scalar), (zeros(8, 4),) * 2, "trn1", "from NeuronCore-v3 on"),
        (copy(engine=engine.tensor), (zeros(8, 4),) * 2, "trn2", "engine.vector, engine.scalar"),
        (copy(engine="vector"), (zeros(8, 4),) * 2, "trn2", "a member of nisa.engine"),
        (copy(engine=engine.gpsimd), (zeros(8, 4), Psum(zeros(8, 4))), "trn2", "not reach PSUM"),
        (
            lambda dst, src: nisa.tensor_copy(dst[40:60], src),
            (zeros(64, 4), zeros(20, 4)),
            "trn2",
            "start at partition 0, 32, 64, 96",
        ),
        (
            lambda dst, src: nisa.tensor_copy(dst.view(nl.float8_e5m2_x4), src),
            (zeros(8, 4), zeros(8, 4)),
            "trn3",
            "copied, not cast",
        ),
    ],
)
def test_a_copy_is_refused_for(issue, tiles, machine, limit):
    with refused("tensor_copy", limit):
        after(issue, *tiles, machine=machine)


def test_a_copy_reaches_on_chip_memory_only():
    def kernel(x):
        nisa.tensor_copy(nl.ndarray((4, 4), nl.float32, nl.sbuf), x)

    with refused("tensor_copy", "src may live in psum, sbuf"):
        run(kernel, zeros(4, 4), machine="trn2")


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        (np.float32, -1.5, -1.5),
        (BFLOAT16, 0, 0.0),
        (BFLOAT16, 1.01, BFLOAT16(1.01)),
        (np.int32, -7, -7),
        (np.uint8, 255, 255),
        (np.bool_, 1, True),
        (np.float32, np.float32(2.5), 2.5),
        (np.int16, np.int64(9), 9),
    ],
)
@pytest.mark.parametrize("where", [engine.vector, engine.gpsimd])
def test_memset_sets_every_element_of_a_view(dtype, value, stored, where):
    def issue(dst):
        nisa.memset(dst[:, 1:8:3], value, engine=where)

    before = np.ones((8, 9), dtype) if stored == 0 else np.zeros((8, 9), dtype)
    expected = before.copy()
    expected[:, 1:8:3] = stored
    np.testing.assert_array_equal(after(issue, before)[0], expected)


def test_memset_reaches_psum():
    np.testing.assert_array_equal(after(fill(3.0), Psum(zeros(4, 4)))[0], np.full((4, 4), 3.0))


def test_packed_tiles_are_set_to_zero():
    def issue(dst):
        nisa.memset(dst.view(nl.float8_e4m3fn_x4), 0)

    np.testing.assert_array_equal(after(issue, np.ones((4, 4), np.float32))[0], zeros(4, 4))


@pytest.mark.parametrize(
    ("issue", "tile", "limit"),
    [
        (fill(0.0), zeros(4, 4, dtype=np.int32), "integer tiles take integers of their range"),
        (fill(256), zeros(4, 4, dtype=np.uint8), "integer tiles take integers of their range"),
        (fill(-1), zeros(4, 4, dtype=np.uint8), "integer tiles take integers of their range"),
        (fill(2), zeros(4, 4, dtype=np.bool_), "integer tiles take integers of their range"),
        (fill("one"), zeros(4, 4), "a number known at compile time"),
        (fill(0, engine=engine.scalar), zeros(4, 4), "engine.vector, engine.gpsimd"),
        (fill(0, engine=engine.gpsimd), Psum(zeros(4, 4)), "does not reach PSUM"),
        (
            lambda dst: nisa.memset(dst.view(nl.float8_e5m2_x4), 1),
            zeros(4, 4),
            "packed tiles are set to 0 only",
        ),
    ],
)
def test_memset_is_refused_for(issue, tile, limit):
    with refused("memset", limit):
        after(issue, tile)


def test_shape_only_runs_agree():
    assert_shape_only_agrees(copy(), Psum(zeros(16, 12)), zeros(16, 12))
    assert_shape_only_agrees(fill(0.0), zeros(16, 12))
    options = issued(run_tiles(fill(0.0), zeros(16, 12)), "memset").options
    assert options == (("zero", True),)
