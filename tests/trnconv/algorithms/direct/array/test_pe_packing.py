"""Both sides of the array: each line a sum needs is read once, each output is summed once."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from repetition import examples
from trnconv.algorithms.direct.accumulations import (
    accumulations_of,
    input_frames,
    pass_accumulations,
)
from trnconv.algorithms.direct.array.m_layout import out_tiles, phase_pitch
from trnconv.algorithms.direct.array.pe_packing import LEVELS
from trnconv.algorithms.direct.plan import PePacking
from trnconv.algorithms.direct.reduced_problem import fold
from trnconv.geometry import conv_shape, transposed_shape

ARRAY = 128

taps = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
steps = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 2))
stacks = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2))
levels = st.sampled_from(LEVELS)


def pieces(packing):
    """Every (channel, frame, row, column) of a pass, tile by tile, with its partition."""
    for number, tile in enumerate(out_tiles(packing)):
        for line in tile.lines:
            for n in range(line.channels):
                place = (line.channel + n, line.frame, line.row, line.column)
                yield number, line.line + n * line.step, place


def fits(packing):
    lines = (
        phase_pitch(packing) * (packing.columns - 1)
        + packing.channels * packing.frames * packing.rows
    )
    return packing.columns == 1 or lines <= ARRAY


passes = st.builds(
    PePacking,
    first_channel=st.integers(0, 200),
    channels=st.integers(1, 300),
    frames=st.integers(1, 4),
    rows=st.integers(1, 6),
    columns=st.integers(1, 3),
    separate=st.booleans(),
)
column_tiled = st.builds(
    lambda channels, unit, more, tile: PePacking(
        0,
        min(channels, tile // (unit[0] * unit[1])) if unit != (1, 1) else channels,
        frames=unit[0] * more[0],
        rows=unit[1] * more[1],
        tile_columns=tile,
        unit=unit,
    ),
    st.integers(1, 200),
    st.tuples(st.integers(1, 2), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from([32, 64]),
)


@examples(300)
@given(st.one_of(passes, column_tiled))
def test_every_output_of_a_pass_is_on_one_partition_of_one_tile(packing):
    assume(packing.separate or fits(packing))
    found = list(pieces(packing))
    places = Counter(place for _, _, place in found)
    channels = range(packing.first_channel, packing.first_channel + packing.channels)
    stack = product(channels, range(packing.frames), range(packing.rows), range(packing.columns))
    assert places == Counter(stack)
    partitions = Counter((number, partition) for number, partition, _ in found)
    assert max(partitions.values()) == 1
    for number, partition, _ in found:
        assert partition < out_tiles(packing)[number].width <= ARRAY


@examples(200)
@given(st.one_of(passes, column_tiled))
def test_boxes_hold_the_partitions_in_the_order_of_a_store(packing):
    """Channels innermost if there are more of them than rows, else rows innermost.

    Column phases are woven together in the output buffer.
    """
    packing = replace(packing, separate=False)
    assume(fits(packing))
    for tile in out_tiles(packing):
        stored = {}
        for box in tile.boxes:
            channels = range(box.channel, box.channel + box.channels)
            frames = range(box.frame, box.frame + box.frames)
            rows = range(box.row, box.row + box.rows)
            if box.channels > box.rows:
                places = [(c, f, r) for f, r, c in product(frames, rows, channels)]
            else:
                places = list(product(channels, frames, rows))
            stored |= {box.line + n: place for n, place in enumerate(places)}
        summed = {
            line.line + n * line.step: (line.channel + n, line.frame, line.row)
            for line in tile.lines
            if line.column == 0
            for n in range(line.channels)
        }
        assert stored == summed


@examples(200)
@given(st.one_of(passes, column_tiled))
def test_boxes_that_are_not_split_are_runs_of_channels_or_rows(packing):
    """The same partitions with the same outputs, in as few runs as the order allows."""
    assume(fits(packing))
    for box in (box for tile in out_tiles(packing) for box in tile.boxes):
        runs = box.whole()
        assert all(max(run.lines, 1) == max(run.channels, run.frames, run.rows) for run in runs)
        assert {each for run in runs for each in places_of(run)} == places_of(box)
        most = max(box.channels, box.rows)
        assert len(runs) == (1 if box.frames == box.lines else box.lines // most)


def places_of(box):
    """Partition, channel, frame and row of every line of a box."""
    return {
        (line.line + n * line.step, line.channel + n, line.frame, line.row)
        for line in box.out_lines()
        for n in range(line.channels)
    }


def read_by(accumulation, part, shape):
    """What the outputs of a part of an accumulation read, by the definition of a convolution."""
    read = set()
    end = part.line + part.width
    for line in (line for line in accumulation.out.lines if part.line <= line.line < end):
        outs = (line.frame + accumulation.frame, line.row, line.column)
        for tap in product(*map(range, shape.kernel)):
            read.add(tuple(shape.in_position(axis, outs[axis], tap[axis]) for axis in range(3)))
    return read


def covered_by(accumulation, part):
    """How often the products of a part read each (channel, frame, row, column)."""
    counts = Counter()
    for product_ in (p for p in accumulation.products if p.part == part):
        for line in product_.tile.lines:
            for view in product_.views:
                shift = (*line.key, *(view.row, view.column)[len(line.key) - 1 :])
                for n in range(line.channels):
                    counts[(line.channel + n, *shift)] += 1
    return counts


@examples(150)
@given(taps, steps, steps, stacks, levels, st.booleans(), st.integers(1, 140), st.integers(1, 150))
def test_an_accumulation_reads_every_line_it_needs_exactly_once(
    kernel, stride, dilation, stack, chosen, own, c_in, c_out
):
    assume(fits(PePacking(0, c_out, *stack)))
    frames, rows, columns = stack
    frame_count = frames + 1
    shape = conv_shape(
        (1, c_in, *[9 + 9 * s for s in stride]),
        (c_out, c_in, *kernel),
        stride=stride,
        dilation=dilation,
    )
    reduced = fold(shape)
    assume(reduced.size == shape.size)  # nothing was folded, so positions are those of the shape
    packing = PePacking(0, c_out, frames, rows, columns, levels=chosen, own_windows=own)
    accumulations = pass_accumulations(
        reduced, packing, frame_count, input_frames(reduced, frame_count)
    )
    assert {accumulation.frame for accumulation in accumulations} >= {0, 1}
    for accumulation in accumulations:
        for part in accumulation.out.parts:
            needed = set(product(range(c_in), read_by(accumulation, part, shape)))
            wanted = {(channel, *place) for channel, place in needed}
            counts = covered_by(accumulation, part)
            assert max(counts.values()) == 1
            assert wanted <= counts.keys()
            if packing.takes_needed_lines_only and packing.stack == 1:
                assert wanted == counts.keys()


@examples(150)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    levels,
    st.booleans(),
    st.integers(1, 150),
)
def test_a_phase_of_a_transposed_convolution_reads_its_own_taps_once(
    kernel, stride, chosen, own, c_in
):
    shape = transposed_shape((1, c_in, 9, 11), (c_in, 4, *kernel), stride=stride)
    reduced = fold(shape)
    assume(reduced.size == (1, 9, 11))
    rows, columns = stride
    packing = PePacking(0, 4, 1, rows, columns, levels=chosen, own_windows=own, separate=True)
    for accumulation in pass_accumulations(reduced, packing, 1, input_frames(reduced, 1)):
        (line,) = accumulation.out.lines
        mine = [
            (at, tap)
            for tap in product(*map(range, kernel))
            if (at := source((line.row, line.column), tap, stride)) is not None
        ]
        moved = {(0, at[0] + reduced.pad[1], at[1] + reduced.pad[2]) for at, _ in mine}
        wanted = {(channel, *place) for channel in range(c_in) for place in moved}
        counts = covered_by(accumulation, accumulation.out.parts[0])
        assert not counts or max(counts.values()) == 1
        assert wanted <= counts.keys()
        if packing.takes_needed_lines_only:
            assert wanted == counts.keys()


def source(out, tap, stride):
    """Where the first output of a phase reads with a tap; None if it does not."""
    distance = [o - t for o, t in zip(out, tap, strict=True)]
    if any(d % s for d, s in zip(distance, stride, strict=True)):
        return None
    return tuple(d // s for d, s in zip(distance, stride, strict=True))


@pytest.mark.parametrize("groups", [2, 5, 40])
def test_jobs_of_a_block_of_channels_read_its_own_channels(groups):
    """Blocks hold as many groups as fit: 100 channels of 40, 50 of 5, and 120 of 2 groups."""
    per_group = {2: 120, 5: 50, 40: 5}[groups]
    shape = conv_shape(
        (1, groups * per_group, 6, 7), (groups * per_group, per_group, 3, 3), groups=groups
    )
    reduced = fold(shape)
    starts = range(0, reduced.c_out, reduced.block_out)
    blocks = tuple(PePacking(first, reduced.block_out) for first in starts)
    accumulations = accumulations_of(reduced, blocks, 1, input_frames(reduced, 1))
    summed = Counter()
    for accumulation in accumulations:
        channels = {key[0] for key in covered_by(accumulation, accumulation.out.parts[0])}
        for line in accumulation.out.lines:
            for out in range(line.channel, line.channel + line.channels):
                first = out // per_group * per_group  # of the same size in and out
                assert channels >= set(range(first, first + per_group))
                summed[out] += 1
    assert summed == Counter(range(reduced.c_out))
