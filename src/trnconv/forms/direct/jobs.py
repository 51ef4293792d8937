"""Jobs: for each tile of outputs, the windows and views whose products add up to it.

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
from trnconv.forms.direct.array.k_lines import LineTile, ReadNeeds, cover, line_tiles
from trnconv.forms.direct.array.m_lines import OutPart, OutTile, out_tiles
from trnconv.forms.direct.plan import BY_FRAME, BY_ROW, INNER_FIRST, MIDDLE_FIRST, ArrayFill
from trnconv.forms.direct.problem import DEPTH, HEIGHT, WIDTH, Problem

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

    one: ArrayFill
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
        one, out = self.one, self.out
        stored = (
            len(out.boxes),
            len(out.whole_boxes),
            sum(box.lines for box in out.boxes),
            len(out.phases),
        )
        summed = (frozenset(self.product_kinds.items()), frozenset(self.weight_widths.items()))
        return (one.rows, one.columns, one.separate, len(out.parts), *stored, *summed)

    @cached_property
    def tile_levels(self) -> Counter[int]:
        """How many products read windows of each level."""
        return Counter(product.tile.level for product in self.products)

    @cached_property
    def weight_widths(self) -> Counter[int]:
        """Stationary columns of a product's weights: how many products have so many."""
        return Counter(len(product.views) * product.part.width for product in self.products)


def jobs_of(
    problem: Problem, passes: tuple[ArrayFill, ...], frame_count: int, frames: tuple[int, ...]
) -> list[TileSum]:
    """The jobs of a block with these output frames and these input frames, in running order."""
    keyed = [
        (job.frame, number, job)
        for number, fill in enumerate(passes)
        for job in pass_jobs(problem, fill, frame_count, frames)
    ]
    return [job for _, _, job in sorted(keyed, key=lambda entry: entry[:2])]


@dataclass(frozen=True)
class JobGroup:
    """Jobs that follow each other and differ in their output channels only."""

    job: TileSum
    count: int


class JobGroups(tuple[JobGroup, ...]):  # noqa: SLOT001 (cached properties need a dict)
    """The jobs of a block, equal ones counted; what follows from them is worked out once."""

    @cached_property
    def kinds(self) -> tuple[JobGroup, ...]:
        """The same with jobs together, wherever they are, that cost alike."""
        counts: dict[object, JobGroup] = {}
        for group in self:
            kind = group.job.kind
            before = counts.get(kind)
            counts[kind] = JobGroup(group.job, group.count + (before.count if before else 0))
        return tuple(counts.values())

    @cached_property
    def known(self) -> dict[object, Any]:
        """What `traffic.py` found out about its windows."""
        return {}


@lru_cache(maxsize=1024)
def grouped_jobs(
    problem: Problem, passes: tuple[ArrayFill, ...], frame_count: int, frames: tuple[int, ...]
) -> JobGroups:
    """The jobs of a block with equal ones counted."""
    groups: list[JobGroup] = []
    for job in jobs_of(problem, passes, frame_count, frames):
        last = groups[-1].job if groups else None
        if last is not None and _alike(last, job):
            groups[-1] = JobGroup(last, groups[-1].count + 1)
        else:
            groups.append(JobGroup(job, 1))
    return JobGroups(groups)


def _alike(one: TileSum, two: TileSum) -> bool:
    return (
        one.products is two.products
        and (one.frame, one.out.width) == (two.frame, two.out.width)
        and len(one.out.boxes) == len(two.out.boxes)
        and one.one == two.one
    )


@lru_cache(maxsize=1024)
def pass_jobs(
    problem: Problem, one: ArrayFill, frame_count: int, frames: tuple[int, ...]
) -> tuple[TileSum, ...]:
    """The jobs of one pass; a last stack of frames reaches back if they do not divide the block."""
    fitted = within(one, frame_count)
    stack = min(fitted.frames, frame_count)
    starts = [*range(0, frame_count - stack, stack), frame_count - stack]
    return tuple(
        job
        for frame in starts
        for job in _jobs_at(problem, fitted, frame, frames)
        if frame + job.out.lines[-1].frame < frame_count
    )


def within(one: ArrayFill, frame_count: int) -> ArrayFill:
    """The pass in a block of fewer frames than it stacks: the end of a phase that is not whole.

    Sums of their own stay as they are, so that their matrices are shared with whole phases.
    """
    if one.separate or frame_count >= one.frames:
        return one
    return replace(one, frames=frame_count)


def _jobs_at(
    problem: Problem, one: ArrayFill, frame: int, frames: tuple[int, ...]
) -> Iterator[TileSum]:
    for number, out in enumerate(out_tiles(one)):
        kept = None if one.sums_alike else frames
        needs = tuple((part, _needs(problem, (out, part), frame, kept)) for part in out.parts)
        yield TileSum(one, number, out, frame, _products(problem, one, frames, needs))


def _needs(
    problem: Problem, sums: tuple[OutTile, OutPart], frame: int, frames: tuple[int, ...] | None
) -> ReadNeeds:
    """What a part of a tile reads, of these input frames or of all."""
    out, part = sums
    first = problem.advance(DEPTH, frame)
    read = [first + shift for shift in problem.shifts(DEPTH, out.stacked(DEPTH, part))]
    return ReadNeeds(
        frames=tuple(
            input_frame for input_frame in read if frames is None or input_frame in frames
        ),
        rows=problem.shifts(HEIGHT, out.stacked(HEIGHT, part)),
        columns=problem.shifts(WIDTH, out.stacked(WIDTH, part)),
    )


@lru_cache(maxsize=1024)
def _products(
    problem: Problem,
    one: ArrayFill,
    frames: tuple[int, ...],
    needs: tuple[tuple[OutPart, ReadNeeds], ...],
) -> tuple[WindowProduct, ...]:
    """The windows and views a tile of outputs reads; tiles with the same needs share them.

    Column tiles take turns, so that none waits for another.
    """
    by_part = [_part_products(problem, one, frames, part, need) for part, need in needs]
    turns = zip_longest(*by_part)
    return tuple(product for turn in turns for product in turn if product is not None)


def _part_products(
    problem: Problem, one: ArrayFill, frames: tuple[int, ...], part: OutPart, needs: ReadNeeds
) -> list[WindowProduct]:
    level = one.levels[0]
    everything = needs
    if not one.own_windows:
        everything = ReadNeeds(
            frames,
            problem.shifts(HEIGHT, range(one.rows)),
            problem.shifts(WIDTH, range(one.columns)),
        )
    channels = (problem.first_channel_read(one.first_channel), problem.c_in)
    tiles = line_tiles(level, tuple(everything.keys(level)), channels, apart=one.apart)
    shifts = (needs.rows, needs.columns)
    views = {level: _views(problem, one, level, shifts) for level in one.levels}
    return [
        WindowProduct(tile, some, part)
        for tile in cover(tiles, needs, one.levels)
        if any(line.key[0] in frames for line in tile.lines)
        for some in views[tile.level]
    ]


@lru_cache(maxsize=1024)
def _views(
    problem: Problem, one: ArrayFill, level: int, shifts: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[tuple[Shift, ...], ...]:
    """The shifts that lines of this level leave to views, in the order of the pass.

    Those of a large kernel are cut into rectangles of rows and columns: their weights are streamed
    together, and all of them might not fit SBUF.
    """
    rows: tuple[int, ...] = (0,)
    columns: tuple[int, ...] = (0,)
    if level == BY_FRAME:
        rows = in_order(problem, one, HEIGHT, shifts[0])
    if level <= BY_ROW:
        columns = in_order(problem, one, WIDTH, shifts[1])
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


def in_order(problem: Problem, one: ArrayFill, axis: int, read: tuple[int, ...]) -> tuple[int, ...]:
    """The row or column shifts that some outputs of a pass read, in the order they are added up.

    The first product of a sum has to write all of it, or zeros are added first: so first come
    shifts that no output finds in the padding, or the middle one, which is likely to be such a one.
    """
    stack = one.rows if axis == HEIGHT else one.columns
    if one.order == INNER_FIRST:
        return tuple(sorted(read, key=lambda it: (meets_border(problem, axis, stack, it), it)))
    if one.order == MIDDLE_FIRST:
        return tuple(sorted(read, key=lambda it: (it != read[len(read) // 2], it)))
    return read


def meets_border(problem: Problem, axis: int, stack: int, shift: int) -> bool:
    """Whether some stack of outputs finds padding at a shift."""
    first = shift - problem.pad[axis]
    last_out = problem.advance(axis, problem.out[axis] - stack)
    return first < 0 or first + last_out >= problem.size[axis]


def input_frames(problem: Problem, frame_count: int) -> tuple[int, ...]:
    """The input frames that some outputs read, counted from their first tap."""
    return problem.shifts(DEPTH, range(frame_count))
