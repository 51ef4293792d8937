"""Accumulations: for each tile of outputs, the windows and views whose products add up to it.

Nothing here knows where a block is or how large: that is the part of `lower.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

from nkisim.machine import PARTITIONS
from trnconv.algorithms.direct.array.k_layout import LineTile, ReadNeeds, cover, line_tiles
from trnconv.algorithms.direct.array.m_layout import OutPart, OutTile, out_tiles
from trnconv.algorithms.direct.plan import BY_FRAME, BY_ROW, INNER_FIRST, MIDDLE_FIRST, PePacking
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, ReducedProblem

_MOST_VIEWS = 64  # of a product: more than a 7x7 kernel has, and 32 KB a partition in float32


class Shift(NamedTuple):
    """Row and column shift of a view; 0 where the lines of the window have their own."""

    row: int
    column: int


@dataclass(frozen=True)
class WindowProduct:
    """One window, the views of it that are multiplied, and the part of the sums they add to."""

    tile: LineTile
    views: tuple[Shift, ...]
    part: OutPart


class ProductKind(NamedTuple):
    """What decides how many columns a product streams, and how fast."""

    level: int
    rows: frozenset[int]  # shifts of its views
    columns: frozenset[int]
    share: float  # of the array


@dataclass(frozen=True)
class TileSum:
    """The sums of one tile of outputs from one output frame on."""

    packing: PePacking
    out_number: int  # which tile of the pass
    out: OutTile
    frame: int  # first output frame, counted from the block's
    products: tuple[WindowProduct, ...]

    @cached_property
    def matmuls(self) -> int:
        """Matrix products on one tile of positions."""
        return sum(len(product.views) for product in self.products)

    @cached_property
    def product_kinds(self) -> Counter[ProductKind]:
        """How many products of each kind there are."""
        return Counter(
            ProductKind(
                product.tile.level,
                frozenset(view.row for view in product.views),
                frozenset(view.column for view in product.views),
                product.tile.count * product.part.width / PARTITIONS**2,
            )
            for product in self.products
        )

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """All that its cost depends on, but for its windows and its frame."""
        packing, out = self.packing, self.out
        stored = (
            len(out.boxes),
            len(out.whole_boxes),
            sum(box.lines for box in out.boxes),
            len(out.phases),
        )
        summed = (frozenset(self.product_kinds.items()), frozenset(self.weight_widths.items()))
        return (packing.rows, packing.columns, packing.separate, len(out.parts), *stored, *summed)

    @cached_property
    def tile_levels(self) -> Counter[int]:
        """How many products read windows of each level."""
        return Counter(product.tile.level for product in self.products)

    @cached_property
    def weight_widths(self) -> Counter[int]:
        """Stationary columns of a product's weights: how many products have so many."""
        return Counter(len(product.views) * product.part.width for product in self.products)


def accumulations_of(
    reduced: ReducedProblem,
    passes: tuple[PePacking, ...],
    frame_count: int,
    frames: tuple[int, ...],
) -> list[TileSum]:
    """The accumulations of a block with these output and input frames, in running order."""
    keyed = [
        (accumulation.frame, number, accumulation)
        for number, packing in enumerate(passes)
        for accumulation in pass_accumulations(reduced, packing, frame_count, frames)
    ]
    return [accumulation for _, _, accumulation in sorted(keyed, key=lambda entry: entry[:2])]


@dataclass(frozen=True)
class AccumulationGroup:
    """Accumulations that follow each other and differ in their output channels only."""

    accumulation: TileSum
    count: int


class AccumulationGroups(tuple[AccumulationGroup, ...]):  # noqa: SLOT001 (cached properties need a dict)
    """The accumulations of a block, equal ones counted; what follows from them is known once."""

    @cached_property
    def kinds(self) -> tuple[AccumulationGroup, ...]:
        """The same with accumulations together, wherever they are, that cost alike."""
        counts: dict[object, AccumulationGroup] = {}
        for group in self:
            kind = group.accumulation.kind
            before = counts.get(kind)
            counts[kind] = AccumulationGroup(
                group.accumulation, group.count + (before.count if before else 0)
            )
        return tuple(counts.values())

    @cached_property
    def known(self) -> dict[object, Any]:
        """What `traffic.py` found out about its windows."""
        return {}


@lru_cache(maxsize=1024)
def grouped_accumulations(
    reduced: ReducedProblem,
    passes: tuple[PePacking, ...],
    frame_count: int,
    frames: tuple[int, ...],
) -> AccumulationGroups:
    """The accumulations of a block with equal ones counted."""
    groups: list[AccumulationGroup] = []
    for accumulation in accumulations_of(reduced, passes, frame_count, frames):
        last = groups[-1].accumulation if groups else None
        if last is not None and _alike(last, accumulation):
            groups[-1] = AccumulationGroup(last, groups[-1].count + 1)
        else:
            groups.append(AccumulationGroup(accumulation, 1))
    return AccumulationGroups(groups)


def _alike(first: TileSum, second: TileSum) -> bool:
    return (
        first.products is second.products
        and (first.frame, first.out.width) == (second.frame, second.out.width)
        and len(first.out.boxes) == len(second.out.boxes)
        and first.packing == second.packing
    )


@lru_cache(maxsize=1024)
def pass_accumulations(
    reduced: ReducedProblem, packing: PePacking, frame_count: int, frames: tuple[int, ...]
) -> tuple[TileSum, ...]:
    """The accumulations of a pass; a last stack of frames reaches back if it does not fit."""
    fitted = within(packing, frame_count)
    stack = min(fitted.frames, frame_count)
    starts = [*range(0, frame_count - stack, stack), frame_count - stack]
    return tuple(
        accumulation
        for frame in starts
        for accumulation in _accumulations_at(reduced, fitted, frame, frames)
        if frame + accumulation.out.lines[-1].frame < frame_count
    )


def within(packing: PePacking, frame_count: int) -> PePacking:
    """The pass in a block of fewer frames than it stacks: the end of a phase that is not whole.

    Sums of their own stay as they are, so that their matrices are shared with whole phases.
    """
    if packing.separate or frame_count >= packing.frames:
        return packing
    return replace(packing, frames=frame_count)


def _accumulations_at(
    reduced: ReducedProblem, packing: PePacking, frame: int, frames: tuple[int, ...]
) -> Iterator[TileSum]:
    for number, out in enumerate(out_tiles(packing)):
        kept = None if packing.sums_alike else frames
        needs = tuple((part, _needs(reduced, (out, part), frame, kept)) for part in out.parts)
        yield TileSum(packing, number, out, frame, _products(reduced, packing, frames, needs))


def _needs(
    reduced: ReducedProblem,
    sums: tuple[OutTile, OutPart],
    frame: int,
    frames: tuple[int, ...] | None,
) -> ReadNeeds:
    """What a part of a tile reads, of these input frames or of all."""
    out, part = sums
    first = reduced.advance(DEPTH, frame)
    read = [first + shift for shift in reduced.shifts(DEPTH, out.stacked(DEPTH, part))]
    return ReadNeeds(
        frames=tuple(
            input_frame for input_frame in read if frames is None or input_frame in frames
        ),
        rows=reduced.shifts(HEIGHT, out.stacked(HEIGHT, part)),
        columns=reduced.shifts(WIDTH, out.stacked(WIDTH, part)),
    )


@lru_cache(maxsize=1024)
def _products(
    reduced: ReducedProblem,
    packing: PePacking,
    frames: tuple[int, ...],
    needs: tuple[tuple[OutPart, ReadNeeds], ...],
) -> tuple[WindowProduct, ...]:
    """The windows and views a tile of outputs reads; tiles with the same needs share them.

    Column tiles take turns, so that none waits for another.
    """
    by_part = [_part_products(reduced, packing, frames, part, need) for part, need in needs]
    rounds = zip_longest(*by_part)
    return tuple(product for together in rounds for product in together if product is not None)


def _part_products(
    reduced: ReducedProblem,
    packing: PePacking,
    frames: tuple[int, ...],
    part: OutPart,
    needs: ReadNeeds,
) -> list[WindowProduct]:
    level = packing.levels[0]
    everything = needs
    if not packing.own_windows:
        everything = ReadNeeds(
            frames,
            reduced.shifts(HEIGHT, range(packing.rows)),
            reduced.shifts(WIDTH, range(packing.columns)),
        )
    channels = (reduced.first_channel_read(packing.first_channel), reduced.c_in)
    tiles = line_tiles(level, tuple(everything.keys(level)), channels, apart=packing.apart)
    shifts = (needs.rows, needs.columns)
    views = {level: _views(reduced, packing, level, shifts) for level in packing.levels}
    return [
        WindowProduct(tile, some, part)
        for tile in cover(tiles, needs, packing.levels)
        if any(line.key[0] in frames for line in tile.lines)
        for some in views[tile.level]
    ]


@lru_cache(maxsize=1024)
def _views(
    reduced: ReducedProblem,
    packing: PePacking,
    level: int,
    shifts: tuple[tuple[int, ...], tuple[int, ...]],
) -> tuple[tuple[Shift, ...], ...]:
    """The shifts that lines of this level leave to views, in the order of the pass.

    Those of a large kernel are cut into rectangles of rows and columns: their weights are streamed
    together, and all of them might not fit SBUF.
    """
    rows: tuple[int, ...] = (0,)
    columns: tuple[int, ...] = (0,)
    if level == BY_FRAME:
        rows = in_order(reduced, packing, HEIGHT, shifts[0])
    if level <= BY_ROW:
        columns = in_order(reduced, packing, WIDTH, shifts[1])
    high = max(1, _MOST_VIEWS // len(columns)) if columns else 1
    return tuple(
        tuple(Shift(row, column) for row in some_rows for column in some_columns)
        for some_rows in _runs(rows, high)
        for some_columns in _runs(columns, _MOST_VIEWS)
    )


def _runs(shifts: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
    """Shifts in a row, in equal parts of at most so many."""
    if not shifts:
        return []
    size = -(-len(shifts) // -(-len(shifts) // most))
    return [shifts[first : first + size] for first in range(0, len(shifts), size)]


def in_order(
    reduced: ReducedProblem, packing: PePacking, axis: int, read: tuple[int, ...]
) -> tuple[int, ...]:
    """The row or column shifts that some outputs of a pass read, in the order they are added up.

    The first product of a sum has to write all of it, or zeros are added first: so first come
    shifts that no output finds in the padding, or the middle one, which is likely to be such a one.
    """
    stack = packing.rows if axis == HEIGHT else packing.columns
    if packing.order == INNER_FIRST:
        return tuple(sorted(read, key=lambda it: (meets_border(reduced, axis, stack, it), it)))
    if packing.order == MIDDLE_FIRST:
        return tuple(sorted(read, key=lambda it: (it != read[len(read) // 2], it)))
    return read


def meets_border(reduced: ReducedProblem, axis: int, stack: int, shift: int) -> bool:
    """Whether some stack of outputs finds padding at a shift."""
    first = shift - reduced.pad[axis]
    last_out = reduced.advance(axis, reduced.out[axis] - stack)
    return first < 0 or first + last_out >= reduced.size[axis]


def input_frames(reduced: ReducedProblem, frame_count: int) -> tuple[int, ...]:
    """The input frames that some outputs read, counted from their first tap."""
    return reduced.shifts(DEPTH, range(frame_count))
