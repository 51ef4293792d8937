"""Both sides of the array: each line a sum needs is read once, each output is summed once."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from repetition import examples
from trnconv.forms.direct.array.fills import LEVELS
from trnconv.forms.direct.array.m_lines import out_tiles, phase_pitch
from trnconv.forms.direct.jobs import input_frames, jobs_of, pass_jobs
from trnconv.forms.direct.plan import ArrayFill
from trnconv.forms.direct.problem import fold
from trnconv.geometry import conv_shape, transposed_shape

ARRAY = 128

taps = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
steps = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 2))
stacks = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2))
levels = st.sampled_from(LEVELS)


def pieces(one):
    """Every (channel, frame, row, column) of a pass, tile by tile, with its partition."""
    for number, tile in enumerate(out_tiles(one)):
        for line in tile.lines:
            for n in range(line.channels):
                place = (line.channel + n, line.frame, line.row, line.column)
                yield number, line.line + n * line.step, place


def fits(one):
    lines = phase_pitch(one) * (one.columns - 1) + one.channels * one.frames * one.rows
    return one.columns == 1 or lines <= ARRAY


passes = st.builds(
    ArrayFill,
    first_channel=st.integers(0, 200),
    channels=st.integers(1, 300),
    frames=st.integers(1, 4),
    rows=st.integers(1, 6),
    columns=st.integers(1, 3),
    separate=st.booleans(),
)
column_tiled = st.builds(
    lambda channels, unit, more, tile: ArrayFill(
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
def test_every_output_of_a_pass_is_on_one_partition_of_one_tile(one):
    assume(one.separate or fits(one))
    found = list(pieces(one))
    places = Counter(place for _, _, place in found)
    channels = range(one.first_channel, one.first_channel + one.channels)
    stack = product(channels, range(one.frames), range(one.rows), range(one.columns))
    assert places == Counter(stack)
    partitions = Counter((number, partition) for number, partition, _ in found)
    assert max(partitions.values()) == 1
    for number, partition, _ in found:
        assert partition < out_tiles(one)[number].width <= ARRAY


@examples(200)
@given(st.one_of(passes, column_tiled))
def test_boxes_hold_the_partitions_in_the_order_of_a_store(one):
    """Channels innermost if there are more of them than rows, else rows innermost.

    Column phases are woven together in the output buffer.
    """
    one = replace(one, separate=False)
    assume(fits(one))
    for tile in out_tiles(one):
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
def test_boxes_that_are_not_split_are_runs_of_channels_or_rows(one):
    """The same partitions with the same outputs, in as few runs as the order allows."""
    assume(fits(one))
    for box in (box for tile in out_tiles(one) for box in tile.boxes):
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


def read_by(job, part, shape):
    """What the outputs of a part of a job read, by the definition of a convolution."""
    read = set()
    end = part.line + part.width
    for line in (line for line in job.out.lines if part.line <= line.line < end):
        outs = (line.frame + job.frame, line.row, line.column)
        for tap in product(*map(range, shape.kernel)):
            read.add(tuple(shape.in_position(axis, outs[axis], tap[axis]) for axis in range(3)))
    return read


def covered_by(job, part):
    """How often the products of a part read each (channel, frame, row, column)."""
    counts = Counter()
    for one in (one for one in job.products if one.part == part):
        for line in one.tile.lines:
            for view in one.views:
                shift = (*line.key, *(view.row, view.column)[len(line.key) - 1 :])
                for n in range(line.channels):
                    counts[(line.channel + n, *shift)] += 1
    return counts


@examples(150)
@given(taps, steps, steps, stacks, levels, st.booleans(), st.integers(1, 140), st.integers(1, 150))
def test_a_job_reads_every_line_it_needs_exactly_once(
    kernel, stride, dilation, stack, chosen, own, c_in, c_out
):
    assume(fits(ArrayFill(0, c_out, *stack)))
    frames, rows, columns = stack
    frame_count = frames + 1
    shape = conv_shape(
        (1, c_in, *[9 + 9 * s for s in stride]),
        (c_out, c_in, *kernel),
        stride=stride,
        dilation=dilation,
    )
    problem = fold(shape)
    assume(problem.size == shape.size)  # nothing was folded, so positions are those of the shape
    one = ArrayFill(0, c_out, frames, rows, columns, levels=chosen, own_windows=own)
    jobs = pass_jobs(problem, one, frame_count, input_frames(problem, frame_count))
    assert {job.frame for job in jobs} >= {0, 1}
    for job in jobs:
        for part in job.out.parts:
            needed = set(product(range(c_in), read_by(job, part, shape)))
            wanted = {(channel, *place) for channel, place in needed}
            counts = covered_by(job, part)
            assert max(counts.values()) == 1
            assert wanted <= counts.keys()
            if one.takes_needed_lines_only and one.stack == 1:
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
    problem = fold(shape)
    assume(problem.size == (1, 9, 11))
    rows, columns = stride
    one = ArrayFill(0, 4, 1, rows, columns, levels=chosen, own_windows=own, separate=True)
    for job in pass_jobs(problem, one, 1, input_frames(problem, 1)):
        (line,) = job.out.lines
        mine = [
            (at, tap)
            for tap in product(*map(range, kernel))
            if (at := source((line.row, line.column), tap, stride)) is not None
        ]
        moved = {(0, at[0] + problem.pad[1], at[1] + problem.pad[2]) for at, _ in mine}
        wanted = {(channel, *place) for channel in range(c_in) for place in moved}
        counts = covered_by(job, job.out.parts[0])
        assert not counts or max(counts.values()) == 1
        assert wanted <= counts.keys()
        if one.takes_needed_lines_only:
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
    problem = fold(shape)
    starts = range(0, problem.c_out, problem.block_out)
    blocks = tuple(ArrayFill(first, problem.block_out) for first in starts)
    jobs = jobs_of(problem, blocks, 1, input_frames(problem, 1))
    summed = Counter()
    for job in jobs:
        channels = {key[0] for key in covered_by(job, job.out.parts[0])}
        for line in job.out.lines:
            for out in range(line.channel, line.channel + line.channels):
                first = out // per_group * per_group  # of the same size in and out
                assert channels >= set(range(first, first + per_group))
                summed[out] += 1
    assert summed == Counter(range(problem.c_out))
