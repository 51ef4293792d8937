"""Hardware loops: which blocks repeat, and in how many iterations.

One loop goes along one axis: a span of rows (or frames, or columns) has the same blocks as the
next one, but for those at the borders, which stand before the loop. An iteration has as many spans
as the program may be long; spans that are left over stand behind the loop. Where the blocks of one
span are too long a program, each kind of block has a loop of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from trnconv.algorithms.direct.block_types import (
    BlockType,
    FrameKind,
    PlacedBlock,
    SpanKind,
    blocks_of,
    column_kinds,
    frame_kinds,
    row_kinds,
)
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH
from trnconv.algorithms.recipe_parts import loop_spans

AXES = (DEPTH, HEIGHT, WIDTH)
AnyKind = FrameKind | SpanKind


class Stretch(NamedTuple):
    """Blocks that follow each other `iterations` times: once, or as a hardware loop."""

    iterations: tuple[tuple[PlacedBlock, ...], ...]

    @property
    def is_loop(self) -> bool:
        """Whether it is a hardware loop."""
        return len(self.iterations) > 1


class Along(NamedTuple):
    """Spans along the axis of a loop."""

    axis: int
    blocks: int  # of a span
    equal: int  # spans of the most frequent kind, over all images
    others: int


def span_kinds(plan: DirectPlan, axis: int) -> Mapping[AnyKind, int]:
    """How many spans there are of each kind along an axis, of one image."""
    if axis == DEPTH:
        kinds = frame_kinds(plan.reduced, plan.frames)
        return {kind: count // plan.reduced.images for kind, count in kinds.items()}
    return dict((row_kinds(plan) if axis == HEIGHT else column_kinds(plan)).items())


def iterations_of(spans: int, body: int) -> int:
    """Iterations of a loop over so many spans, `body` of them in each; 0 if there would be one."""
    return spans // body if spans >= 2 * body else 0


@lru_cache(maxsize=8192)
def _along(plan: DirectPlan) -> Along:
    """The axis with which the shortest program has the fewest blocks."""
    images = plan.reduced.images
    counts = {axis: span_kinds(plan, axis).values() for axis in AXES}
    spans = {axis: sum(counts[axis]) for axis in AXES}
    whole = images * spans[DEPTH] * spans[HEIGHT] * spans[WIDTH]
    axes = [
        Along(
            axis,
            whole // (images * spans[axis]),
            images * max(counts[axis]),
            images * (spans[axis] - max(counts[axis])),
        )
        for axis in AXES
    ]
    return min(axes, key=lambda along: (along.blocks * (along.others + 1), along.axis != HEIGHT))


def along_of(plan: DirectPlan) -> Along:
    """The axis of a plan's loop; the same for iterations of every length."""
    return _along(plan.but(body_blocks=1))


def iteration_blocks(plan: DirectPlan) -> int:
    """Blocks of an iteration, whose places are held at once."""
    return plan.body_blocks * (1 if plan.by_kind else along_of(plan).blocks)


def trips_of(plan: DirectPlan) -> tuple[int, ...]:
    """Iterations of a plan's hardware loops, in their order: by arithmetic, without the blocks."""
    if not plan.looped:
        return ()
    if any(kind.inputs == 0 for kind in (*row_kinds(plan), *column_kinds(plan))):
        # Blocks of nothing but padding look alike, whatever their frames are.
        stretches = stretches_of(plan, blocks_of(plan))
        return tuple(len(stretch.iterations) for stretch in stretches if stretch.is_loop)
    if not plan.by_kind:
        return _trips(plan, iterations_of(along_of(plan).equal, plan.body_blocks))
    images = plan.reduced.images
    counts = [span_kinds(plan, axis).values() for axis in AXES]
    blocks = [images * frames * rows * columns for frames, rows, columns in product(*counts)]
    parts = [part for count in sorted(blocks) for part in divmod(count, plan.body_blocks)]
    return tuple(trips for iterations in parts for trips in _trips(plan, iterations))


def _trips(plan: DirectPlan, iterations: int) -> tuple[int, ...]:
    """A loop, or several; one iteration is none."""
    spans = loop_spans(iterations, plan.machine)
    return tuple(end - first for first, end in spans if end > first + 1)


def stretches_of(plan: DirectPlan, blocks: Sequence[PlacedBlock]) -> list[Stretch]:
    """All blocks, in running order."""
    if not plan.looped:
        return [Stretch((tuple(blocks),))]
    return _by_kind(plan, blocks) if plan.by_kind else _one_loop(plan, blocks)


def _one_loop(plan: DirectPlan, blocks: Sequence[PlacedBlock]) -> list[Stretch]:
    groups = _spans(plan, blocks)
    looks = Counter(_look(group) for group in groups)
    most = max(looks, key=looks.__getitem__)
    equal = [group for group in groups if _look(group) == most]
    before = [block for group in groups if _look(group) != most for block in group]
    iterations = iterations_of(len(equal), plan.body_blocks)
    looped, left = equal[: iterations * plan.body_blocks], equal[iterations * plan.body_blocks :]
    stretches = [Stretch((tuple(before),))] if before else []
    stretches += _loops(plan, [_joined(looped, plan.body_blocks, n) for n in range(iterations)])
    after = tuple(block for group in left for block in group)
    return [*stretches, Stretch((after,))] if after else stretches


def _spans(plan: DirectPlan, blocks: Sequence[PlacedBlock]) -> list[tuple[PlacedBlock, ...]]:
    """The blocks of each span along the axis, over all images."""
    images = plan.reduced.images
    counts = [sum(span_kinds(plan, axis).values()) for axis in AXES]
    places = product(range(images), *(range(count) for count in counts))
    spans: dict[tuple[int, int], list[PlacedBlock]] = {}
    axis = along_of(plan).axis
    for block, (image, *at) in zip(blocks, places, strict=True):
        spans.setdefault((image, at[axis]), []).append(block)
    return [tuple(group) for group in spans.values()]


def _look(group: Sequence[PlacedBlock]) -> tuple[BlockType, ...]:
    return tuple(block.kind for block in group)


def _joined(
    groups: Sequence[tuple[PlacedBlock, ...]], size: int, number: int
) -> tuple[PlacedBlock, ...]:
    """The blocks of one iteration."""
    return tuple(block for group in groups[number * size : (number + 1) * size] for block in group)


def _by_kind(plan: DirectPlan, blocks: Sequence[PlacedBlock]) -> list[Stretch]:
    """Each kind in a loop, and what is left over of it in a loop of single blocks.

    The kinds of fewest blocks first: one of two cores has the upper border, the other the lower
    one, and both have to have the same loops in the same order.
    """
    stretches = []
    of_kind: dict[BlockType, list[PlacedBlock]] = {}
    for block in blocks:
        of_kind.setdefault(block.kind, []).append(block)
    for alike in sorted(of_kind.values(), key=len):
        whole = len(alike) // plan.body_blocks * plan.body_blocks
        for group, size in ((alike[:whole], plan.body_blocks), (alike[whole:], 1)):
            starts = range(0, len(group), size)
            stretches += _loops(plan, [tuple(group[first : first + size]) for first in starts])
    return stretches


def _loops(plan: DirectPlan, iterations: Sequence[tuple[PlacedBlock, ...]]) -> list[Stretch]:
    """A loop, or several where a machine takes no more iterations."""
    spans = loop_spans(len(iterations), plan.machine)
    return [Stretch(tuple(iterations[first:end])) for first, end in spans if end > first]
