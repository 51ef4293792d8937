"""max8, nc_find_index8, nc_match_replace8 and the searches of GpSimd against plain Python."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(19)


def largest(dst, src):
    nisa.max8(dst, src)


def find(dst, data, vals):
    nisa.nc_find_index8(dst, data, vals)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int32])
def test_max8_gives_the_eight_largest_in_descending_order(rng, dtype):
    src = rng.integers(-200, 200, size=(70, 5, 9)).astype(dtype)
    tiles = (zeros(70, 8), Psum(src) if dtype is np.float32 else src)
    expected = [sorted(map(float, row.reshape(-1)), reverse=True)[:8] for row in src]
    np.testing.assert_array_equal(after(largest, *tiles)[0], expected)
    assert_shape_only_agrees(largest, *tiles)


def test_max8_counts_equal_values_as_often_as_they_occur():
    src = np.array([[1, 5, 5, 2, 5, 0, 0, 3, 4, 5]], np.float32)
    assert after(largest, zeros(1, 8), src)[0].tolist() == [[5, 5, 5, 5, 4, 3, 2, 1]]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint16])
def test_find_index8_gives_first_places_and_all_ones_for_none(dtype):
    data = np.array([[7, 3, 9, 3, 1, 8, 2, 6, 7, 0]], np.float32)
    vals = np.array([[9, 7, 3, 3, 3, 7, 5, 0]], np.float32)
    missing = np.iinfo(dtype).max
    tiles = (zeros(1, 8, dtype=dtype), data, vals)
    result = after(find, *tiles)[0]
    assert result.tolist() == [[2, 0, 1, 3, missing, 8, missing, 9]]
    assert_shape_only_agrees(find, *tiles)


def test_find_index8_finds_what_max8_found(rng):
    data = rng.normal(size=(40, 3, 20)).astype(np.float32)

    def issue(dst, tile, values):
        nisa.max8(values, tile)
        nisa.nc_find_index8(dst, tile, values)

    result = after(issue, zeros(40, 8, dtype=np.uint32), data, zeros(40, 8))[0]
    order = np.argsort(-data.reshape(40, 60), axis=1)[:, :8]
    np.testing.assert_array_equal(result, order)


def test_match_replace8_pairs_equal_values_from_the_last_on():
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)

    def issue(dst, tile, values, places):
        nisa.nc_match_replace8(dst, tile, values, -1.0, dst_idx=places)

    result = after(issue, zeros(1, 11), data, vals, zeros(1, 8, dtype=np.uint32))
    assert result[0].tolist() == [[1, 2, -1, 4, -1, -1, -1, -1, -1, -1, -1]]
    assert result[3].tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]


def test_match_replace8_replaces_one_occurrence_a_value(rng):
    data = rng.integers(0, 12, size=(30, 4, 6)).astype(BFLOAT16)
    vals = rng.integers(0, 15, size=(30, 8)).astype(np.float32)

    def issue(tile, values, places):
        nisa.nc_match_replace8(tile, tile, values, float("-inf"), dst_idx=places)

    tiles = (data, vals, zeros(30, 8, dtype=np.uint16))
    replaced, _, places = after(issue, *tiles)
    for row in range(30):
        left = [float(value) for value in data[row].reshape(-1)]
        wanted = [2**16 - 1] * 8
        for column in range(7, -1, -1):
            if vals[row, column] in left:
                wanted[column] = left.index(vals[row, column])
                left[wanted[column]] = float("-inf")
        assert replaced[row].reshape(-1).astype(np.float32).tolist() == left
        assert places[row].tolist() == wanted
    assert_shape_only_agrees(issue, *tiles)


def test_match_replace8_needs_no_index_tile():
    data = np.arange(10, dtype=np.float32)[None]

    def issue(dst, tile, values):
        nisa.nc_match_replace8(dst, tile, values, 0.5)

    run_ = run_tiles(issue, zeros(1, 10), data, data[:, 2:])
    assert run_.outputs[0].tolist() == [[0, 1] + [0.5] * 8]
    assert len(issued(run_, "nc_match_replace8").writes) == 1


@pytest.mark.parametrize(
    ("instruction", "issue", "tiles", "limit"),
    [
        ("max8", largest, (zeros(4, 8), zeros(4, 7)), "8..16384 elements per partition"),
        ("max8", largest, (zeros(4, 8), zeros(4, 16385)), "8..16384 elements per partition"),
        ("max8", largest, (zeros(4, 9), zeros(4, 10)), "8 elements per partition"),
        ("max8", largest, (zeros(5, 8), zeros(4, 10)), "same number of partitions"),
        (
            "max8",
            lambda dst, src: nisa.max8(dst, src[:, ::2, ::2, ::2]),
            (zeros(4, 8), zeros(4, 6, 6, 6)),
            "3 dimensions, partitions included",
        ),
        (
            "nc_find_index8",
            find,
            (zeros(4, 8, dtype=np.int32), zeros(4, 9), zeros(4, 8)),
            "uint16, uint32",
        ),
        (
            "nc_find_index8",
            find,
            (zeros(4, 8, dtype=np.uint32), zeros(4, 9), zeros(4, 7)),
            "8 elements per partition",
        ),
        (
            "nc_find_index8",
            find,
            (zeros(4, 8, dtype=np.uint32), zeros(4, 5), zeros(4, 8)),
            "8..16384",
        ),
        (
            "nc_match_replace8",
            lambda dst, data, vals: nisa.nc_match_replace8(dst, data, vals, 0.0),
            (zeros(4, 9), zeros(4, 10), zeros(4, 8)),
            "same number of elements",
        ),
        (
            "nc_match_replace8",
            lambda dst, vals, idx: nisa.nc_match_replace8(dst, dst, vals, 0.0, idx),
            (zeros(4, 10), zeros(4, 8), zeros(4, 7, dtype=np.uint32)),
            "8 elements per partition",
        ),
    ],
)
def test_a_search_is_refused_for(instruction, issue, tiles, limit):
    with refused(instruction, limit):
        after(issue, *tiles)


def nonzero(**options):
    return lambda dst, src: nisa.nonzero_with_count(dst, src, **options)


def test_nonzero_with_count_lists_places_padding_and_the_count():
    src = np.zeros((1, 8), np.int32)
    src[0, [1, 2, 5]] = 1, -3, 9
    issue = nonzero(index_offset=16)
    result = after(issue, zeros(1, 9, dtype=np.int32), src)[0]
    assert result.tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]
    assert_shape_only_agrees(issue, zeros(1, 9, dtype=np.int32), src)


def test_nonzero_with_count_works_on_the_first_partition_of_each_core(rng):
    src = rng.integers(0, 2, size=(64, 20)).astype(np.float32)
    before = rng.integers(0, 99, size=(64, 21)).astype(np.int32)
    result = after(nonzero(padding_val=77), before, src)[0]
    expected = before.copy()
    for lane in range(0, 64, 16):
        found = [i for i in range(20) if src[lane, i] != 0]
        expected[lane] = found + [77] * (20 - len(found)) + [len(found)]
    np.testing.assert_array_equal(result, expected)


I4 = np.int32


@pytest.mark.parametrize(
    ("issue", "tiles", "machine", "limit"),
    [
        (nonzero(), (zeros(4, 9, dtype=I4), zeros(4, 9)), "trn2", "10: one index per element"),
        (nonzero(), (zeros(4, 9, dtype=I4), zeros(5, 8)), "trn2", "same number of partitions"),
        (nonzero(), (zeros(4, 9), zeros(4, 8)), "trn2", "int32"),
        (nonzero(), (zeros(4, 9, dtype=I4), zeros(4, 8, dtype=BFLOAT16)), "trn2", "float32, int32"),
        (nonzero(), (zeros(4, 9, dtype=I4), zeros(4, 8)), "trn1", "from NeuronCore-v3 on"),
        (
            nonzero(padding_val=0.5),
            (zeros(4, 9, dtype=I4), zeros(4, 8)),
            "trn2",
            "an int32 known at compile time",
        ),
        (
            nonzero(index_offset=2**31),
            (zeros(4, 9, dtype=I4), zeros(4, 8)),
            "trn2",
            "an int32 known at compile time",
        ),
    ],
)
def test_nonzero_with_count_is_refused_for(issue, tiles, machine, limit):
    with refused("nonzero_with_count", limit):
        after(issue, *tiles, machine=machine)


def top(n):
    return lambda values, indices, src: nisa.topk(values, indices, src, n)


def in_snake(tile, start, count):
    """Element i of a snake is in partition i % 16, column i // 16."""
    return [tile[start + i % 16, i // 16] for i in range(count)]


def test_topk_keeps_the_largest_of_every_sixteen_partitions(rng):
    n, kept = 42, 20
    src = rng.permutation(32 * 3).reshape(32, 3).astype(BFLOAT16)
    tiles = (zeros(32, kept, dtype=BFLOAT16), zeros(32, kept, dtype=np.uint32), src)
    values, indices, _ = after(top(n), *tiles)
    for start in (0, 16):
        snake = np.array(in_snake(src, start, n), np.float32)
        order = np.argsort(snake)[-kept:]
        np.testing.assert_array_equal(in_snake(indices, start, kept), order)
        np.testing.assert_array_equal(np.array(in_snake(values, start, kept), "f4"), snake[order])
    assert (values[:, 2:] == 0).all()  # a snake of 20 takes two columns
    assert_shape_only_agrees(top(n), *tiles)


def test_topk_may_keep_everything(rng):
    src = rng.permutation(16).reshape(16, 1).astype(BFLOAT16)
    tiles = (zeros(16, 16, dtype=BFLOAT16), zeros(16, 16, dtype=np.uint32), src)
    values = after(top(16), *tiles)[0]
    assert [float(value) for value in in_snake(values, 0, 16)] == list(range(16))


def topk_case(partitions=16, width=3, kept=4, index_width=4, n=40):
    values = zeros(partitions, kept, dtype=BFLOAT16)
    indices = zeros(partitions, index_width, dtype=np.uint32)
    return top(n), values, indices, zeros(partitions, width, dtype=BFLOAT16)


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (topk_case(n=49), "8..48: up to 48 values in 16 partitions"),
        (topk_case(n=7), "8..48"),
        (topk_case(partitions=24), "a multiple of 16 partitions"),
        (topk_case(index_width=5), "the same for values and indices"),
        (topk_case(kept=9, index_width=9, n=8), "1..8"),
        ((top(9), zeros(16, 1), zeros(16, 1, dtype=np.uint32), zeros(16, 1)), "bfloat16"),
    ],
)
def test_topk_is_refused_for(case, limit):
    with refused("topk", limit):
        after(*case)


def bounds(dst, ids):
    nisa.sequence_bounds(dst, ids)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sequence_bounds_are_those_of_runs_and_padding_is_empty(dtype):
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 0]], dtype)
    tiles = (zeros(1, 2, 9, dtype=dtype), ids)
    run_ = run_tiles(bounds, *tiles)
    starts = [9, 1, 1, 3, 3, 3, 9, 7, 9]
    ends = [-1, 3, 3, 6, 6, 6, -1, 8, -1]
    assert run_.outputs[0].tolist() == [[starts, ends]]
    assert issued(run_, "sequence_bounds").engine is engine.gpsimd
    assert_shape_only_agrees(bounds, *tiles)


@pytest.mark.parametrize(
    ("tiles", "limit"),
    [
        ((zeros(1, 2, 8), zeros(1, 9)), r"dst \(1, 2, n\) for segment_ids \(1, n\)"),
        ((zeros(2, 2, 9), zeros(2, 9)), r"dst \(1, 2, n\) for segment_ids \(1, n\)"),
        ((zeros(1, 2, 9), zeros(1, 9, dtype=np.uint8)), "float32, int32"),
    ],
)
def test_sequence_bounds_is_refused_for(tiles, limit):
    with refused("sequence_bounds", limit):
        after(bounds, *tiles)
