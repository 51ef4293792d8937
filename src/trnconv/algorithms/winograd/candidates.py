"""Winograd plans worth pricing, by transform and axis.

A price follows the kernel step by step, which is too slow for hundreds of sizes of blocks. So:

1. `_sizes`: every sensible size, in the order of a quick guess (`likely_ns`).
2. Size after size, unless `_KEPT` plans are known that are better than it can be (`least_ns`), or
   its blocks alone are too long for the budget (`least_instructions`).
3. `with_buffers`: how weights are held, and the slots for inputs that then fit into SBUF.
4. `_within`: as it is if its program is short enough, else with hardware loops.
5. `_with_engines`: what the GpSimd engine does of it.
6. `refined`, of the best: pauses that a unit leaves to the engine that scales inputs, and where
   tiles of frames begin.

It ends after `FOLLOWED` sizes that gave a plan. `algorithms/search.py` drops what is not legal, and
takes the fastest.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import inf

from trnconv.algorithms.winograd.buffers import with_buffers
from trnconv.algorithms.winograd.channels import in_channels, may_stack, out_channels
from trnconv.algorithms.winograd.cost import (
    cost_of,
    fewest_iterations,
    instructions_of,
    is_faster_with,
    least_instructions,
    least_ns,
    likely_ns,
    longest_body,
)
from trnconv.algorithms.winograd.plan import (
    DEPTH,
    HEIGHT,
    STACKED_COLUMNS,
    V_BYTES,
    WIDTH,
    WinogradPlan,
)
from trnconv.algorithms.winograd.rules import may_add_first, violations
from trnconv.algorithms.winograd.sbuf import group_columns, sbuf_end
from trnconv.algorithms.winograd.transforms import OUTER, TRANSFORMS, transform_of
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem, CoreSplit
from trnconv.problem.epilogue import NO_RESIDUAL

_MOST_ROWS = 32
_TILES = sorted({1, *(transform.outputs for transform in TRANSFORMS.values())})  # rows
_EVERY_SIZE = 8  # larger blocks are tried in steps
_V_SHARE = 0.75  # of SBUF, for transformed inputs
_MOST_COLUMN_CUTS = 8
_MOST_UNITS = 8
_BODY_TIMES = (64, 48, 32, 24, 16, 12, 8, *range(6, 0, -1))  # so often, in an iteration
_RESIDUAL_BUFFERS = 4
_X_TILES = 2  # one is transformed, another loaded
_FILL, _LATE_FILL = 0.5, 0.4  # of a PSUM bank, at least
_LATE_TILES = 4  # of input channels, at least
_HEAVY_SHARE = 0.5  # of SBUF that weights would fill at least
_LATE_PAUSES = (1, 3, 5)
_KEPT = 4  # sizes that cannot be among the fastest so many plans are left out
FOLLOWED = 8  # sizes that are priced, of hundreds
THOROUGH = 64  # the same where plans are made once, to be shipped


def candidates(
    problem: ConvProblem,
    transform: str,
    axis: int,
    *,
    pairs: bool = False,
    midgroup: bool | None = None,
    followed: int = FOLLOWED,
) -> Iterator[WinogradPlan]:
    """Plans of one transform along one axis within the problem's budget, some by hardware loops.

    Those of the most promising sizes, `followed` at most, and not of sizes that cannot be among the
    fastest; plans that load inputs late only if they are faster than all others. `midgroup` as in a
    plan; None: as the machine takes it.
    """
    base = start(problem, transform, axis, pairs=pairs, midgroup=midgroup)
    budget = problem.budget
    best: list[float] = []
    fastest = inf
    for plan in _followed(_sizes(base, budget), budget, best, followed):
        fastest = min(fastest, cost_of(plan).total_ns)
        yield plan
    for plan in _followed(_late_sizes(base, budget), budget, best, followed):
        if cost_of(plan).total_ns < fastest:
            yield plan


def _followed(
    sizes: list[WinogradPlan], budget: int, best: list[float], followed: int
) -> Iterator[WinogradPlan]:
    """Plans of the first sizes that may be among the fastest; `best` are the times of all yet."""
    priced = 0
    for sized in sizes:
        if len(best) >= _KEPT and least_ns(sized) > best[_KEPT - 1]:
            continue
        if least_instructions(sized) > budget:
            continue
        before = len(best)
        for plan in with_buffers(sized):
            for short in _within(plan, budget):
                taken = _with_engines(short)
                insort(best, cost_of(taken).weighed_ns)
                yield taken
        priced += len(best) > before
        if priced == followed:
            return


def start(
    problem: ConvProblem,
    transform: str,
    axis: int,
    *,
    pairs: bool = False,
    midgroup: bool | None = None,
) -> WinogradPlan:
    """A plan with blocks of one output: sizes and buffers are decided from here on."""
    shape = problem.shape
    assert isinstance(shape, ConvShape)
    base = WinogradPlan(
        shape,
        problem.machine.name,
        problem.dtype,
        transform,
        axis,
        units=1,
        rows=1,
        columns=1,
        x_slots=1,
        v_slots=1,
        group=1,
        pieces=problem.pieces,
        midgroup=problem.machine.accepts.growing_banks if midgroup is None else midgroup,
        rows_of=problem.core_split.rows if problem.core_split else None,
        epilogue=problem.epilogue,
        prologue=problem.prologue,
        gpsimd_steps=max(transform_of(transform).apart),
        gpsimd_residual=may_add_first(problem.epilogue) and not problem.reproducible,
        frame_pairs=pairs,
        gpsimd_pairs=pairs,
    )
    return base if problem.reproducible else base.but(stacked_columns=_most_columns(base))


def _most_columns(plan: WinogradPlan) -> int:
    """That may share a matmul of few output channels; more than two if there is something to gain.

    With one tap along columns there is not. Reproducible plans always have two.
    """
    fewest, most = STACKED_COLUMNS
    return most if plan.shape.kernel[WIDTH] > 1 and may_stack(plan, most) else fewest


def _with_engines(plan: WinogradPlan) -> WinogradPlan:
    """The same with as much work for the GpSimd engine as makes it fastest."""
    roomy = _with_residuals(plan)
    residuals = [{"gpsimd_residual": False}]
    if plan.gpsimd_residual:
        residuals += [{"gpsimd_residual": True, "shares_residual": way} for way in (False, True)]
    variants = [
        roomy.but(gpsimd_steps=steps, gpsimd_pairs=pairs, **residual)
        for steps in (0, *plan.transforms.apart)
        for pairs in dict.fromkeys((False, plan.gpsimd_pairs))
        for residual in residuals
    ]
    return min(variants, key=lambda variant: cost_of(variant).weighed_ns)


def refined(plan: WinogradPlan) -> Iterator[WinogradPlan]:
    """A plan; where inputs are scaled, with steps that come later in a unit; and the best anchored.

    Anchors are for frames that fill no whole tiles: those may be cut at the other end, or at both.
    """
    pauses = (0, *_LATE_PAUSES) if plan.prologue.scaled else (0,)
    late = [plan.but(late_pauses=count) for count in pauses]
    yield from late
    if plan.by_rows or plan.units < plan.tiles:
        return
    best = min(late, key=lambda variant: cost_of(variant).weighed_ns)
    anchored = (best.but(anchor=anchor) for anchor in range(1, plan.m))
    yield from (variant for variant in anchored if variant.tiles == plan.tiles)


def _with_residuals(plan: WinogradPlan) -> WinogradPlan:
    """The same with more buffers for what is added to outputs, if SBUF has room for them."""
    if plan.epilogue.residual == NO_RESIDUAL:
        return plan
    more = plan.but(residual_buffers=_RESIDUAL_BUFFERS)
    return more if sbuf_end(more) <= plan.machine.sbuf_usable_bytes_per_partition else plan


def halves(problem: ConvProblem) -> list[tuple[ConvProblem, ConvProblem]]:
    """Two cores with half of the rows each, cut at a row that some transform's tiles begin with."""
    shape = problem.shape
    assert isinstance(shape, ConvShape)
    height, channels = shape.out_size(HEIGHT), (0, shape.c_out)
    halved = []
    for middle in {-(-height // (2 * tile)) * tile for tile in _TILES}:
        if middle < height:
            shares = (CoreSplit((0, middle), channels), CoreSplit((middle, height), channels))
            first, second = (replace(problem, core_split=share) for share in shares)
            halved.append((first, second))
    return halved


@lru_cache(maxsize=64)
def _sizes(base: WinogradPlan, budget: int) -> list[WinogradPlan]:
    """Sizes of blocks, the most promising within so many static instructions first."""
    paired = (False, True) if _can_pair(base) else (False,)
    sizes = [
        stacked.but(units=units, rows=rows, columns=columns, paired_rows=pair)
        for stacked in _stacked(base)
        for rows in _row_counts(base)
        for columns in _column_counts(stacked)
        if _sensible(base, rows, columns)
        for units in _unit_counts(base)
        for pair in paired
    ]
    return sorted(sizes, key=lambda sized: likely_ns(sized, budget))


@lru_cache(maxsize=64)
def _late_sizes(base: WinogradPlan, budget: int) -> list[WinogradPlan]:
    """The same of plans whose inputs are loaded tile by tile, so that they leave SBUF to weights.

    For many input channels, with weights that are streamed. Frames of a unit share them.
    """
    tiles, every = len(in_channels(base)), base.but(columns=base.shape.out_size(WIDTH))
    room = base.machine.sbuf_usable_bytes_per_partition
    weights = group_columns(every.but(group=len(out_channels(every)))) * V_BYTES
    if tiles < _LATE_TILES or tiles % _X_TILES or weights < _HEAVY_SHARE * room:
        return []
    plain = base.but(x_tiles=_X_TILES)
    return sorted(
        [
            units.but(rows=rows, columns=columns)
            for stacked in _stacked(plain)
            for units in _late_units(stacked)
            for rows in _row_counts(base)
            for columns in _column_counts(stacked)
            if _sensible(units, rows, columns, least=_LATE_FILL)
        ],
        key=lambda sized: likely_ns(sized, budget),
    )


def _stacked(base: WinogradPlan) -> list[WinogradPlan]:
    """With each number of columns that may share a matmul."""
    columns = dict.fromkeys((STACKED_COLUMNS[0], base.stacked_columns))
    return [base.but(stacked_columns=count) for count in columns]


def _late_units(plan: WinogradPlan) -> list[WinogradPlan]:
    """A unit a block, of one or more frames, and several units of one frame."""
    several = [plan.but(units=units) for units in dict.fromkeys((plan.stages, *_unit_counts(plan)))]
    if not plan.by_rows or plan.frame_pairs:
        return several
    total = plan.shape.out_size(DEPTH)
    counts = range(2, min(total, _MOST_UNITS) + 1)
    return [*several, *(plan.but(unit_frames=n) for n in counts if total % n == 0)]


def _sensible(plan: WinogradPlan, rows: int, columns: int, least: float = _FILL) -> bool:
    """Whether a block fills so much of a PSUM bank, and its transformed inputs leave SBUF room."""
    shape, machine = plan.shape, plan.machine
    tiles = rows // plan.m if plan.by_rows else rows
    first, end = plan.row_span
    whole = columns == shape.out_size(WIDTH) and rows >= end - first
    if plan.frame_pairs and tiles * columns > machine.psum_bank_fp32_elems:
        return False
    if not whole and plan.unit_frames * tiles * columns < least * machine.psum_bank_fp32_elems:
        return False
    slots = 2 * plan.read_frames * plan.v_frames * -(-shape.c_in // machine.partitions)
    v_rows = tiles if plan.by_rows else rows + shape.kernel[HEIGHT] - 1
    held = slots * plan.transforms.products * v_rows * columns * V_BYTES
    return held <= _V_SHARE * machine.sbuf_usable_bytes_per_partition


def _can_pair(plan: WinogradPlan) -> bool:
    """Whether a rest of input channels may stand on partitions with its next row, too."""
    wide = plan.but(columns=plan.shape.out_size(WIDTH), paired_rows=True)
    return len(in_channels(wide)) > len(in_channels(wide.but(paired_rows=False)))


def _unit_counts(plan: WinogradPlan) -> list[int]:
    """Units of a block that cut all units evenly: the most, and one of the fewer, if there is."""
    total = plan.tiles if plan.axis == DEPTH else plan.shape.out_size(DEPTH)
    if plan.frame_pairs:
        total = -(-total // OUTER.outputs)
    counts = [n for n in range(1, min(total, _MOST_UNITS) + 1) if total % n == 0]
    some = list(dict.fromkeys((counts[-1], counts[len(counts) // 2], counts[0])))[:2]
    return [plan.stages * count for count in some]


def _row_counts(plan: WinogradPlan) -> list[int]:
    """Rows of a block; whole tiles, if tiles are rows."""
    first, end = plan.row_span
    total = end - first
    if plan.axis == HEIGHT:
        tiles = -(-(total + plan.phase) // plan.m)
        return [plan.m * n for n in _even_parts(tiles, _MOST_ROWS // plan.m)]
    return _even_parts(total, _MOST_ROWS)


def _column_counts(plan: WinogradPlan) -> list[int]:
    """Whole multiples of the columns that share a matmul, so that every column is summed alike."""
    total = plan.shape.out_size(WIDTH)
    stack = max(tile.stack for tile in out_channels(plan.but(columns=total)))
    cuts = range(1, min(total, _MOST_COLUMN_CUTS) + 1)
    return list(dict.fromkeys(min(total, -(-total // (n * stack)) * stack) for n in cuts))


def _even_parts(total: int, most: int) -> list[int]:
    """Sizes of at most `most` that cut a whole into parts of about one size."""
    sizes = sorted({-(-total // parts) for parts in range(1, total + 1) if total <= parts * most})
    return [size for size in sizes if size <= _EVERY_SIZE or size % 4 == 0 or total % size == 0]


def _within(plan: WinogradPlan, budget: int) -> Iterator[WinogradPlan]:
    """A plan, or its hardware loops, with at most `budget` static instructions.

    One loop over spans, or one a kind of block. Where both ways are short enough, the other one is
    followed only if it gains by what iterations of the first one take.
    """
    if instructions_of(plan) <= budget:
        yield plan
        return
    loops = [*_one_loop(plan, budget), *_longest_loop(plan.but(looped=True), budget)]
    yield from loops[:1]
    yield from (loop for loop in loops[1:] if is_faster_with(loop, loops[0]))


def _one_loop(plan: WinogradPlan, budget: int) -> Iterator[WinogradPlan]:
    """One hardware loop over spans along rows; spans at the borders stand beside it."""
    loop = fewest_iterations(plan, budget)
    if loop is not None and not violations(loop):
        yield loop


def _longest_loop(plan: WinogradPlan, budget: int) -> Iterator[WinogradPlan]:
    """The longest iterations in the budget: multiples of the blocks after which slots repeat."""
    body = longest_body(plan, (times * plan.body_blocks for times in _BODY_TIMES), budget)
    if body is not None:
        loop = plan.but(body_blocks=body)
        if not violations(loop):
            yield loop
