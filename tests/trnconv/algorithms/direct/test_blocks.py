"""Blocks cover the output, tiles partition a block, and spans read what their taps reach."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from nkisim.machine import TRN2
from repetition import examples
from trnconv.algorithms.direct.blocks import (
    OutputSpan,
    bank_tile_count,
    bank_tiles,
    equal_spans,
    input_span,
    spans,
    valid,
)
from trnconv.algorithms.direct.reduced_problem import WIDTH, fold
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.launch import time_plan

BANK = 512


def covered(cut, begin, end):
    """How often each output from begin to end is computed."""
    counts = np.zeros(end - begin, int)
    for span in cut:
        assert begin <= span.first
        assert span.first + span.outputs <= end
        counts[span.first - begin : span.first - begin + span.outputs] += 1
    return counts


@examples(500)
@given(
    st.integers(0, 50),
    st.integers(1, 200),
    st.integers(1, 8),
    st.integers(1, 20),
    st.lists(st.integers(1, 5), max_size=2),
)
def test_blocks_cover_all_outputs_and_are_multiples(begin, total, multiple, size, lead):
    size, lead = size * multiple, tuple(multiple * each for each in lead)
    assume(size <= total)
    cut = spans((begin, begin + total), size, multiple, lead)
    assert covered(cut, begin, begin + total).min() == 1
    assert all(span.outputs % multiple == 0 for span in cut)
    assert all(span.outputs <= max(size, *lead, 0) for span in cut)
    assert [span.first for span in cut] == sorted(span.first for span in cut)


def test_small_blocks_stand_at_both_ends():
    assert list(spans((0, 26), 6, 2, (2, 4))) == [
        OutputSpan(0, 2),
        OutputSpan(2, 4),
        OutputSpan(6, 6),
        OutputSpan(12, 6),
        OutputSpan(18, 2),
        OutputSpan(20, 4),
        OutputSpan(24, 2),
    ]
    assert spans((0, 17), 6, 2, (2, 4)) == (OutputSpan(0, 6), OutputSpan(6, 6), OutputSpan(11, 6))


@examples(200)
@given(st.integers(1, 100), st.integers(1, 30))
def test_equal_blocks_are_equal_and_cover_all_outputs(total, size):
    cut = equal_spans(total, size)
    assert {span.outputs for span in cut} == {min(size, total)}
    counts = covered(cut, 0, total)
    assert counts.min() == 1
    assert len(cut) == -(-total // min(size, total))


@examples(300)
@given(st.integers(1, 60), st.integers(1, 1500), st.sampled_from([7, 64, BANK]))
def test_tiles_partition_a_block_and_fit_a_bank(rows, columns, most):
    tiles = bank_tiles(rows, columns, most)
    counts = np.zeros((rows, columns), int)
    for row, row_end, column, column_end in tiles:
        counts[row:row_end, column:column_end] += 1
        assert 0 < (row_end - row) * (column_end - column) <= most
    assert (counts == 1).all()
    assert len(tiles) == bank_tile_count(rows, columns, most)
    assert len(tiles) >= -(-rows * columns // most)
    heights = [row_end - row for row, row_end, _, _ in tiles]
    assert max(heights) - min(heights) <= 1
    for height in set(heights):
        widths = [d - c for a, b, c, d in tiles if b - a == height]
        assert max(widths) - min(widths) <= 1


def test_tiles_are_as_few_as_equal_rectangles_can_be():
    assert len(bank_tiles(4, 128, BANK)) == 1
    assert bank_tiles(6, 100, BANK) == ((0, 3, 0, 100), (3, 6, 0, 100))
    assert bank_tiles(1, 1024, BANK) == ((0, 1, 0, 512), (0, 1, 512, 1024))
    assert bank_tiles(1, 513, BANK) == ((0, 1, 0, 257), (0, 1, 257, 513))


@examples(300)
@given(st.integers(-20, 20), st.integers(1, 5), st.integers(1, 15), st.integers(1, 15))
def test_valid_positions_are_those_that_find_something(first, step, count, held):
    found = [i for i in range(count) if 0 <= first + i * step < held]
    begin, end = valid((first, step), count, held)
    assert list(range(begin, end)) == found


@examples(300)
@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.data(),
)
def test_a_span_reads_what_its_taps_reach(size, kernel, stride, dilation, pads, data):
    assume(size + sum(pads) >= dilation * (kernel - 1) + 1)
    options = {"stride": (1, stride), "dilation": (1, dilation), "padding": (0, pads)}
    shape = conv_shape((1, 2, 3, size), (2, 2, 3, kernel), **options)
    reduced = fold(shape)
    first = data.draw(st.integers(0, shape.out_size(WIDTH) - 1))
    outputs = data.draw(st.integers(1, shape.out_size(WIDTH) - first))
    read = {
        shape.in_position(WIDTH, out, tap)
        for out in range(first, first + outputs)
        for tap in range(kernel)
    }
    there = {at for at in read if 0 <= at < size}
    span = input_span(reduced, WIDTH, OutputSpan(first, outputs))
    held = set(range(span.first, span.first + span.inputs))
    assert there <= held
    assert held <= set(range(size))
    if held and reduced.kernel(WIDTH) == kernel:  # no tap was dropped
        begin, end = min(read), max(read) + 1
        end = size if size - stride < end < size else end  # what the stride leaves of a row
        assert span.missing == max(0, -begin)
        assert len(held) == len([at for at in range(begin, end) if 0 <= at < size])


def test_rows_are_loaded_whole_where_a_stride_leaves_a_column():
    """256 to 512 channels, 1x1, stride 2, as ResNet's: rows of 55 of 56 columns lie apart."""
    times = {}
    for columns in (55, 56):
        shape = conv_shape((1, 256, 56, columns), (512, 256, 1, 1), stride=2)
        taken = best_plan(ConvProblem(shape, TRN2))
        times[columns] = time_plan(taken.plan).makespan_ns
    assert times[56] < 1.1 * times[55]
