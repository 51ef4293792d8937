"""How long a plan's program is, and its hardware loops: known without a price."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import PARTITIONS
from trnconv.algorithms.direct.accumulations import AccumulationGroups, grouped_accumulations
from trnconv.algorithms.direct.block_types import (
    FrameKind,
    SpanKind,
    column_kinds,
    frame_kinds,
    row_kinds,
)
from trnconv.algorithms.direct.blocks import bank_tile_count, bank_tiles
from trnconv.algorithms.direct.loops import AnyKind, along_of, iterations_of, span_kinds
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.ramp import CELLS
from trnconv.algorithms.direct.stationaries import image_width
from trnconv.algorithms.direct.traffic import BlockExtent, loaded_windows, stored_boxes, window_dmas
from trnconv.problem.epilogue import composed_steps

Lengths = tuple[tuple[tuple[FrameKind, SpanKind, SpanKind], int, int], ...]
_BY_KIND = (1, 2, 3, 4, 6, 8, 12, 16)  # blocks of an iteration
_TRIED = 2  # lengths of iterations; those with the fewest


class Program(NamedTuple):
    """What is known of a program without a price."""

    instructions: int  # static
    iterations: int = 0  # of hardware loops
    regions: int = 0  # hardware loops
    after: int = 0  # stretches that start with an empty array, behind loops


def program_of(plan: DirectPlan) -> Program:
    """How long a plan's program is, and its loops."""
    once, lengths = _parts(plan)
    if not plan.looped:
        return Program(once + sum(length * count for _, length, count in lengths))
    if plan.by_kind:
        return _by_kind(plan, once, lengths)
    return _spans(plan, once, lengths).program(plan.body_blocks, _most_iterations(plan))


def _parts(plan: DirectPlan) -> tuple[int, Lengths]:
    """Instructions that stand before all blocks, and those of blocks."""
    loads, _ = weight_loads(plan)
    return loads + 2, _lengths(plan.but(body_blocks=1, by_kind=False))


class _Spans(NamedTuple):
    """Static instructions: of what stands beside a loop, and of one of its spans."""

    beside: int
    span: int
    equal: int  # spans

    def program(self, body: int, most_iterations: int) -> Program:
        """With so many spans an iteration."""
        iterations = iterations_of(self.equal, body)
        if not iterations:
            return Program(self.beside + self.equal * self.span)
        left = self.equal - iterations * body
        static = self.beside + (body + left) * self.span + 2 * CELLS
        return Program(static, iterations, -(-iterations // most_iterations), left > 0)


def _spans(plan: DirectPlan, once: int, lengths: Lengths) -> _Spans:
    """Spans at the borders stand beside the loop."""
    along = along_of(plan)
    spans: dict[AnyKind, int] = {}  # instructions of all spans of a kind along the axis
    for kinds, length, count in lengths:
        spans[kinds[along.axis]] = spans.get(kinds[along.axis], 0) + length * count
    counted = span_kinds(plan, along.axis)
    most = max(counted, key=counted.__getitem__)
    beside = once + sum(spans.values()) - spans[most]
    return _Spans(beside, spans[most] // along.equal, along.equal)


def _most_iterations(plan: DirectPlan) -> int:
    return plan.machine.loop_trips_max or 10**9


def _by_kind(plan: DirectPlan, once: int, lengths: Lengths) -> Program:
    static, iterations, regions = once, 0, 0
    for _, length, blocks in lengths:
        whole, rest = divmod(blocks, plan.body_blocks)
        static += length * (min(whole, 1) * plan.body_blocks + min(rest, 1)) + 2 * CELLS
        for loop in (whole, rest):
            iterations += loop if loop > 1 else 0
            regions += -(-loop // _most_iterations(plan)) if loop > 1 else 0
    return Program(static, iterations, regions)


@lru_cache(maxsize=4096)
def _lengths(plan: DirectPlan) -> Lengths:
    """Of each kind of block: its spans, static instructions, and how many there are."""
    rows, columns = row_kinds(plan).items(), column_kinds(plan).items()
    return tuple(
        (
            (kind, row, column),
            _block_length(
                plan,
                accumulations,
                BlockExtent(row.outputs, row.inputs, column.outputs, column.inputs),
            ),
            groups * row_count * column_count,
        )
        for kind, groups in frame_kinds(plan.reduced, plan.frames).items()
        for accumulations in [
            grouped_accumulations(plan.reduced, plan.passes, kind.outputs, kind.present)
        ]
        for row, row_count in rows
        for column, column_count in columns
    )


def bodies(plan: DirectPlan, budget: int) -> Iterator[DirectPlan]:
    """Iteration lengths that are short enough, of one loop if any; those with few trips last."""
    spans, most_iterations = _spans(plan, *_parts(plan)), _most_iterations(plan)
    programs = {
        body: spans.program(body, most_iterations) for body in range(1, spans.equal // 2 + 1)
    }
    short = [body for body, program in programs.items() if program.instructions <= budget]
    if short:
        starts = {body: programs[body].iterations + programs[body].after for body in short}
        few = sorted(short, key=starts.__getitem__)[:_TRIED]
        yield from (plan.but(body_blocks=body) for body in reversed(few))
        return
    yield from (plan.but(by_kind=True, body_blocks=count) for count in _BY_KIND)


def weight_loads(plan: DirectPlan) -> tuple[int, int]:
    """Loads of weights before the first block, and their columns."""
    if plan.streamed:
        return 0, 0
    columns, _ = image_width(plan.reduced, plan.passes, plan.frames)
    return -(-columns // (8 * PARTITIONS)) + 2, columns


def block_tiles(stack: tuple[int, int], extent: BlockExtent, bank: int) -> int:
    """PSUM tiles of one block for a stack of so many rows and columns."""
    return bank_tile_count(-(-extent.rows // stack[0]), -(-extent.columns // stack[1]), bank)


def block_evictions(
    stack: tuple[int, int], extent: BlockExtent, bank: int, *, by_column: bool
) -> int:
    """Instructions that bring the sums of a phase of one block out of PSUM: one for each tile.

    One for each column of a tile, where a machine takes no step between columns.
    """
    if stack[1] == 1 or not by_column:
        return block_tiles(stack, extent, bank)
    tiles = bank_tiles(-(-extent.rows // stack[0]), -(-extent.columns // stack[1]), bank)
    return sum(end - first for _, _, first, end in tiles)


def _block_length(plan: DirectPlan, accumulations: AccumulationGroups, extent: BlockExtent) -> int:
    """Static instructions of one block."""
    bank = plan.machine.psum_bank_fp32_elems
    each = matmul_instructions(plan.dtype)
    windows = loaded_windows(accumulations, plan.slots)
    length = sum(window.count * window.times * window_dmas(plan, window.tile) for window in windows)
    for group in accumulations.kinds:
        accumulation = group.accumulation
        stack = (accumulation.packing.rows, accumulation.packing.columns)
        tiles = block_tiles(stack, extent, bank)
        evicted = block_evictions(stack, extent, bank, by_column=plan.evicts_by_column)
        ended = evicted * composed_steps(plan.epilogue, scalar_adds=plan.scalar_adds)[0]
        per_chunk = tiles * each * accumulation.matmuls + ended * len(accumulation.out.phases)
        per_chunk += len(stored_boxes(plan, accumulation))
        if plan.streamed:
            per_chunk += len(accumulation.products) * -(-tiles // plan.machine.psum_banks)
        length += group.count * per_chunk
    return length
