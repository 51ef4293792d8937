"""What the engines do for one tile of lines, counted instead of written down.

Along an axis, a piece is known by what each tap meets of it; pieces that agree in that, and in the
window they read, have the same steps. And what a step costs depends on how many outputs its tap
meets, a product of three axes: so taps are counted by these numbers, axis by axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from trnconv.algorithms.depthwise.lower import SMALL
from trnconv.algorithms.depthwise.plan import (
    DepthwisePlan,
    PositionBox,
    Span,
    corners,
    cut_span,
    valid_span,
)
from trnconv.algorithms.depthwise.recipe import (
    ADD,
    BEGIN,
    COPY,
    FILL,
    MULTIPLY,
    PSUM,
    SUM,
    VECTOR_BEGIN,
    VECTOR_FILL,
)
from trnconv.geometry import Triple


class Action(NamedTuple):
    """A step up to its place."""

    op: str
    elems: int  # that it writes, of a line
    apart: int  # elements from one that it reads to the next, in a tile that it does not sum in
    on_psum: bool  # whether it reads or writes PSUM


class Transfer(NamedTuple):
    """A load or a store: elements of a line, and how many of them follow each other in HBM."""

    elems: int
    run: int


@dataclass(frozen=True)
class _Side:
    """Pieces along one axis that are worked on alike."""

    outputs: int
    window: int  # inputs of the window they read
    block: int  # outputs of their block
    met: tuple[tuple[int, Span], ...]  # taps that meet some outputs, and which

    def tap_counts(self) -> Counter[int]:
        """How many taps meet so many outputs."""
        return Counter(end - first for _, (first, end) in self.met)

    def widest(self) -> list[tuple[int, Span]]:
        """The tap that meets most, and the one before it; of equal ones, the last."""
        return sorted(self.met, key=lambda tap: (tap[1][1] - tap[1][0], tap[0]))[-2:]


def piece_actions(plan: DepthwisePlan, kind: str) -> Counter[Action]:
    """All pieces of a tile of lines, if all their sums are of one kind, PSUM or WIDE."""
    counts: Counter[Action] = Counter()
    for sides in product(*(_sides(plan, axis).items() for axis in range(3))):
        times = plan.multiplier * prod(count for _, count in sides)
        for action, count in _actions(plan, [side for side, _ in sides], kind):
            counts[action] += times * count
    return counts


def _sides(plan: DepthwisePlan, axis: int) -> Counter[_Side]:
    """The kinds of pieces along an axis."""
    shape = plan.shape
    valid = [valid_span(shape, axis, tap) for tap in range(shape.kernel[axis])]
    sides: Counter[_Side] = Counter()
    for block in plan.block_spans(axis):
        window = plan.window_span(axis, block)
        for first, end in cut_span(block, plan.piece[axis]):
            meet = [(max(0, low - first), min(end, high) - first) for low, high in valid]
            met = tuple((tap, span) for tap, span in enumerate(meet) if span[0] < span[1])
            sides[_Side(end - first, window[1] - window[0], block[1] - block[0], met)] += 1
    return sides


def _actions(plan: DepthwisePlan, sides: list[_Side], kind: str) -> Iterator[tuple[Action, int]]:
    """One piece, as `lower.py` writes it."""
    piece = PositionBox((0, 0, 0), _triple(side.outputs for side in sides))
    taps = _taps_by_sizes(sides)
    last = _widest_boxes(sides) if taps else []
    whole = bool(last) and last[-1].elems == piece.elems
    on_psum = kind == PSUM
    if whole:
        first = last.pop()
        taps[first.sizes] -= 1
        sums = bool(+taps)
        op = VECTOR_BEGIN if plan.vector_begins else BEGIN
        yield Action(op, piece.elems, _view_step(plan, sides, first.sizes), on_psum and sums), 1
    else:
        apart = 0 if taps else _step(piece.sizes, [side.block for side in sides], (1, 1, 1))
        op = VECTOR_FILL if plan.vector_begins else FILL
        yield Action(op, piece.elems, apart, on_psum and bool(taps)), 1
    if not +taps:
        return
    for sizes, count in (+taps).items():
        apart, elems = _view_step(plan, sides, sizes), prod(sizes)
        if on_psum:
            yield Action(ADD, elems, apart, on_psum=True), count
        else:
            yield Action(MULTIPLY, elems, apart, on_psum=False), count
            yield Action(SUM, elems, 0, on_psum=False), count
    left = piece.without(last[-1])
    direct = sum(max(SMALL, box.elems) for box in left) < piece.elems
    for box in left if direct else [piece]:
        yield Action(COPY, box.elems, 0, on_psum), 1


def _taps_by_sizes(sides: list[_Side]) -> Counter[Triple]:
    """How many taps meet so many frames, rows and columns of a piece."""
    counts: Counter[Triple] = Counter()
    for axes in product(*(side.tap_counts().items() for side in sides)):
        counts[_triple(size for size, _ in axes)] = prod(count for _, count in axes)
    return counts


def _widest_boxes(sides: list[_Side]) -> list[PositionBox]:
    """What the two taps meet that meet most; of equal ones the last, and the very last at the end.

    The second differs from the first along one axis, and is the second there.
    """
    taps = [
        (
            PositionBox(_triple(span[0] for _, span in axes), _triple(span[1] for _, span in axes)),
            [tap for tap, _ in axes],
        )
        for axes in product(*(side.widest() for side in sides))
    ]
    taps.sort(key=lambda tap: (tap[0].elems, tap[1]))
    return [box for box, _ in taps[-2:]]


def _view_step(plan: DepthwisePlan, sides: list[_Side], sizes: Triple) -> int:
    return _step(sizes, [side.window for side in sides], plan.shape.stride)


def _step(sizes: Triple, around: list[int], stride: Triple) -> int:
    """Elements between neighbours of the innermost axis that has any, in a dense tile."""
    pitch = 1
    for axis in reversed(range(3)):
        if sizes[axis] > 1:
            return stride[axis] * pitch
        pitch *= around[axis]
    return 1


def transfers(plan: DepthwisePlan) -> Counter[Transfer]:
    """The loads and stores of one tile of lines."""
    counts: Counter[Transfer] = Counter()
    for sides in product(*(_block_sizes(plan, axis).items() for axis in range(3))):
        count = prod(times for _, times in sides)
        counts[_load(plan, _triple(window for (_, window), _ in sides))] += count
        counts[_store(plan, _triple(block for (block, _), _ in sides))] += count * plan.multiplier
    return counts


def end_transfers(plan: DepthwisePlan) -> tuple[Transfer, Transfer]:
    """The first load, and the last store."""
    first, last = corners(plan)
    return _load(plan, plan.window(first).sizes), _store(plan, last.sizes)


def _block_sizes(plan: DepthwisePlan, axis: int) -> Counter[tuple[int, int]]:
    """Outputs and inputs of the blocks along an axis."""
    sizes: Counter[tuple[int, int]] = Counter()
    for block in plan.block_spans(axis):
        first, end = plan.window_span(axis, block)
        sizes[block[1] - block[0], end - first] += 1
    return sizes


def _load(plan: DepthwisePlan, window: Triple) -> Transfer:
    return Transfer(prod(window), _run(window, plan.shape.size))


def _store(plan: DepthwisePlan, block: Triple) -> Transfer:
    return Transfer(prod(block), _run(block, plan.shape.out_sizes()))


def _run(sizes: Triple, around: Triple) -> int:
    """Elements of a box that follow each other in a dense tensor."""
    run = pitch = 1
    for axis in reversed(range(3)):
        if sizes[axis] > 1:
            if pitch != run:
                break
            run *= sizes[axis]
        pitch *= around[axis]
    return run


def _triple(values: Iterator[int]) -> Triple:
    first, second, third = values
    return (first, second, third)
