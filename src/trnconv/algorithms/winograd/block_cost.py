"""What one block of a Winograd plan costs: cycles, bytes, instructions.

Planning asks for thousands of blocks, so what does not depend on a block's size is worked out once
for all of a plan's blocks and those of its neighbours: `Rates`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import add
from typing import NamedTuple

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Timing
from trnconv.algorithms.dma import moved_ns
from trnconv.algorithms.float_terms import TERMS
from trnconv.algorithms.rectangles import rectangles
from trnconv.algorithms.winograd.blocks import BlockSpan, computed_share
from trnconv.algorithms.winograd.channels import (
    in_channels,
    matrices_of_a_load,
    out_channels,
    replicates,
    taps_of,
)
from trnconv.algorithms.winograd.plan import HEIGHT, LEAST, V_BYTES, V_DTYPE, WIDTH, WinogradPlan
from trnconv.algorithms.winograd.sbuf import sums_root_by_lines
from trnconv.algorithms.winograd.transforms import OUTER, TAPS
from trnconv.problem.epilogue import IDENTITY, NO_RESIDUAL, Epilogue

_MATMUL = matmul_instructions(V_DTYPE)


class EngineSum(NamedTuple):
    """What some part of the work adds up to; engines in cycles, `moved` in ns."""

    columns: int = 0
    tensor: float = 0.0
    vector: float = 0.0
    scalar: float = 0.0
    moved: float = 0.0
    loads: int = 0
    bytes: int = 0
    instructions: int = 0

    def plus(self, other: EngineSum) -> EngineSum:
        """Both together."""
        return EngineSum._make(map(add, self, other))

    def times(self, count: int) -> EngineSum:
        """So many of them."""
        return EngineSum._make([count * value for value in self])


def total(parts: Iterable[tuple[EngineSum, int]]) -> EngineSum:
    """So many of each."""
    every = EngineSum()
    for part, count in parts:
        every = every.plus(part.times(count))
    return every


class InRates(NamedTuple):
    """Tiles of input channels that are alike; channels stand on the lines `copies` times."""

    tiles: int
    channels: int
    copies: int
    loaded: int  # copies that are


class OutRates(NamedTuple):
    """Tiles of output channels with so many columns that share a matmul, for one rectangle."""

    stack: int
    tiles: int
    channels: int  # of all tiles
    matmuls: int
    issued: int  # instructions of them: one for each column tile of the array
    rate: float  # of them, by the part of the array they use
    passes: float  # on the Vector engine
    copies: float  # on the Scalar engine
    added: int  # on the GpSimd engine
    weights: EngineSum  # loads of the weights of a tile, if they are streamed


@dataclass(frozen=True)
class Rates:
    """What blocks of any size have in common."""

    timing: Timing
    by_rows: bool
    unit_frames: int
    out_frames: int  # of a unit
    v_frames: int  # of a tile of transformed inputs
    pairs: int  # instructions that add two frames, of a transform
    pairs_on_vector: int
    m: int
    products: int
    steps: int
    early_steps: int  # of them, on the GpSimd engine
    x_bytes: int  # of an element
    y_bytes: int
    x_width: int
    y_width: int
    bank: int
    lines: int
    ways: int  # of outputs: out, normed or not or both, and in what is added to them
    normed: int  # matmuls of a step of the norm of outputs; 0: there is none
    every_row: bool  # of a block is loaded, what padding repeats or clears by itself
    repeats_columns: bool
    scaled: bool  # whether inputs are, before they are transformed
    ins: tuple[InRates, ...]
    outs: tuple[OutRates, ...]
    weight_columns: int  # of the weight image, all products


def rates_of(plan: WinogradPlan) -> Rates:
    """Those of a plan."""
    same = replace(
        plan,
        units=1,
        rows=plan.m,
        columns=min(plan.columns, plan.stacked_columns),
        **LEAST,
    )
    return _rates(same)


@lru_cache(maxsize=256)
def _rates(plan: WinogradPlan) -> Rates:
    algorithm, machine, outs = plan.transforms, plan.machine, out_channels(plan)
    alike = Counter(
        (tile.channels, len(tile.shifts), 1 if tile.copied else len(tile.shifts))
        for tile in in_channels(plan)
    )
    weights = sum(len(taps_of(plan, tile.shared)) * tile.width for tile in outs)
    return Rates(
        timing=machine.timing,
        by_rows=plan.by_rows,
        unit_frames=plan.unit_frames,
        out_frames=plan.out_frames,
        v_frames=plan.v_frames,
        pairs=int(plan.frame_pairs),
        pairs_on_vector=int(plan.frame_pairs and not plan.gpsimd_pairs),
        m=plan.m,
        products=algorithm.products,
        steps=len(algorithm.steps),
        early_steps=plan.gpsimd_steps,
        x_bytes=plan.item_bytes,
        y_bytes=plan.out_bytes,
        x_width=plan.shape.size[WIDTH],
        y_width=plan.shape.out_size(WIDTH),
        bank=machine.psum_bank_fp32_elems,
        lines=machine.partitions,
        ways=_ways(plan.epilogue),
        normed=norm_matmuls(plan),
        every_row=replicates(plan.shape, HEIGHT),
        repeats_columns=replicates(plan.shape, WIDTH),
        scaled=plan.prologue.scaled,
        ins=tuple(InRates(count, *look) for look, count in alike.items()),
        outs=tuple(_out_rates(plan, stack) for stack in sorted({tile.stack for tile in outs})),
        weight_columns=weights * algorithm.products * plan.stages,
    )


def _ways(epilogue: Epilogue) -> int:
    """How often outputs, or what is added to them, are moved."""
    stored = 2 if epilogue.norm is not None and epilogue.norm.keeps else 1
    return stored + (epilogue.residual != NO_RESIDUAL)


def norm_matmuls(plan: WinogradPlan) -> int:
    """Matmuls that sum up squares of a step of outputs; 0 if they are not normed."""
    if plan.epilogue.norm is None:
        return 0
    return len(out_channels(plan)) + (not sums_root_by_lines(plan, TERMS))


def _out_rates(plan: WinogradPlan, stack: int) -> OutRates:
    tiles = [tile for tile in out_channels(plan) if tile.stack == stack]
    taps = len(taps_of(plan, max(tile.shared for tile in tiles)))
    passes, copies = _passes(plan, stack)
    lines, timing = plan.machine.partitions, plan.machine.timing
    loads = -(-taps // matrices_of_a_load(taps))
    row_bytes = taps * max(tile.width for tile in tiles) * V_BYTES
    one = EngineSum(
        moved=moved_ns(timing, lines * loads, row_bytes / loads),
        loads=loads,
        bytes=lines * row_bytes,
        instructions=loads,
    )
    matmuls = round(plan.transforms.products * computed_share(plan) * taps)
    return OutRates(
        stack,
        len(tiles),
        sum(tile.channels for tile in tiles),
        matmuls,
        matmuls * max(tile.stack if tile.side_by_side else 1 for tile in tiles),
        timing.pe_rate(_share(plan, max(tile.width for tile in tiles))),
        passes,
        copies,
        len(plan.gpsimd_outputs) * stack // (OUTER.outputs if plan.frame_pairs else 1),
        one.times(plan.transforms.products),
    )


def _share(plan: WinogradPlan, width: int) -> float:
    """The part of the array that most matmuls use."""
    lines = max(tile.lines for tile in in_channels(plan))
    return lines * width / plan.machine.partitions**2


def _passes(plan: WinogradPlan, stack: int) -> tuple[float, float]:
    """Passes over a rectangle on Vector and Scalar engine."""
    m = plan.m
    inner, copies = (0.0, 2.0) if m == 2 else (3.0, 4.0)
    if not plan.midgroup:
        inner, copies = inner + 2, copies - 1
    added = 0 if plan.epilogue.residual == NO_RESIDUAL else m - len(plan.gpsimd_outputs)
    activated = 0 if plan.epilogue.activation == IDENTITY else m
    between = activated or added  # outputs that are more than a sum
    last = between + (m - between) * stack + 2 * added * stack
    activated *= stack
    if not plan.frame_pairs:
        return inner + last, copies + activated
    # The mean of four stages: m, 3 m, and twice m more than without stages.
    return inner + (6 * m + 2 * last) / plan.stages, copies + activated / OUTER.outputs


class InLook(NamedTuple):
    """What the cost of a block's inputs depends on."""

    rows: int  # that are loaded
    repeated: int  # of them, each by itself
    out_rows: int
    columns: int  # that exist
    all_columns: int  # with padding


class OutLook(NamedTuple):
    """What the cost of a block's outputs depends on."""

    rows: int
    stored: int  # rows
    columns: int


def in_look(rates: Rates, row: BlockSpan, column: BlockSpan) -> InLook:
    """Of a block."""
    rows = row.end - row.first
    repeated = row.ins - rows if rates.every_row else 0
    return InLook(rows + repeated, repeated, row.outs, column.end - column.first, column.ins)


def out_look(row: BlockSpan, column: BlockSpan) -> OutLook:
    """Of a block."""
    return OutLook(row.outs, row.stored, column.outs)


def inputs_cost(rates: Rates, frames: int, tiles: int, look: InLook) -> EngineSum:
    """Loads of so many frames for a block, and so many transforms."""
    timing, rows = rates.timing, look.rows
    v_rows = look.out_rows // rates.m if rates.by_rows else rows
    cycles = 1 if rates.x_bytes == V_BYTES else 2
    fills = look.all_columns - look.columns if rates.repeats_columns else 0
    filled = rates.products * v_rows + timing.scalar_startup_cycles
    cost = EngineSum()
    for in_rates in rates.ins:
        width = look.all_columns if in_rates.copies > 1 else look.columns
        runs = 1 if in_rates.copies == 1 and width == rates.x_width else rows
        each = rows * width // runs * rates.x_bytes
        streamed = v_rows * width * cycles + timing.vector_startup_cycles
        lines = in_rates.channels * in_rates.loaded
        loads = in_rates.loaded * (1 + look.repeated)
        made = in_rates.copies - in_rates.loaded
        cleared = in_rates.copies > 1 or (rates.by_rows and rows < look.out_rows + TAPS - 1)
        scaled = frames * (rows * look.columns + timing.scalar_startup_cycles) * rates.scaled
        paired = (look.out_rows + TAPS - 1) * width + timing.vector_startup_cycles
        part = EngineSum(
            vector=tiles
            * ((rates.steps - rates.early_steps) * streamed + rates.pairs_on_vector * paired),
            scalar=tiles * in_rates.copies * fills * filled + scaled,
            moved=frames * moved_ns(timing, lines * runs, each),
            loads=frames * loads,
            bytes=frames * lines * rows * width * rates.x_bytes,
            instructions=frames * (loads + made + cleared + rates.scaled)
            + tiles * (rates.steps + rates.pairs)
            + tiles // rates.v_frames * (2 + in_rates.copies * fills),
        )
        cost = cost.plus(part.times(in_rates.tiles))
    return cost


def outputs_cost(rates: Rates, look: OutLook) -> EngineSum:
    """Products of a unit and their way out of PSUM; all output channels."""
    return total((_chains(rates, out, look), out.tiles) for out in rates.outs)


def stores_cost(rates: Rates, look: OutLook) -> EngineSum:
    """Outputs of a unit to y, and their norm; all output channels."""
    cost = total((_stores(rates, out, look), 1) for out in rates.outs)
    return cost.plus(_norm(rates, look)) if rates.normed else cost


def _norm(rates: Rates, look: OutLook) -> EngineSum:
    """The norm of a unit's outputs, all channels."""
    timing = rates.timing
    positions = look.stored * look.columns * rates.out_frames
    steps = -(-positions // rates.bank)
    tiles = sum(out.tiles for out in rates.outs)
    return EngineSum(
        tensor=rates.normed * (positions + steps * timing.pe_gap_cycles),
        vector=tiles * (positions + steps * timing.vector_startup_cycles),
        scalar=2 * tiles * (positions + steps * timing.scalar_startup_cycles),
        instructions=steps * (3 * tiles + _MATMUL * rates.normed),
    )


def streamed_cost(rates: Rates, look: OutLook) -> EngineSum:
    """Loads of the weights of a unit, if they are loaded product by product."""
    cost = EngineSum()
    for out in rates.outs:
        count, _, _ = _rectangles(rates, out, look)
        cost = cost.plus(out.weights.times(count * out.tiles))
    return cost


def _rectangles(rates: Rates, out: OutRates, look: OutLook) -> tuple[int, int, int]:
    rows = rates.unit_frames * (look.rows // rates.m) if rates.by_rows else look.rows
    least = rates.timing.pe_min_cycles
    return _rectangle_sums(rows, -(-look.columns // out.stack), rates.bank, least)


def _chains(rates: Rates, out: OutRates, look: OutLook) -> EngineSum:
    """Products of one tile of output channels, and their way out of PSUM."""
    timing = rates.timing
    count, elems, cycles = _rectangles(rates, out, look)
    return EngineSum(
        columns=out.matmuls * elems,
        tensor=out.matmuls * (cycles / out.rate + count * timing.pe_gap_cycles),
        vector=out.passes * (elems + count * timing.vector_startup_cycles),
        scalar=out.copies * (elems + count * timing.scalar_startup_cycles),
        instructions=count * (_MATMUL * out.issued + int(out.passes + out.copies) + out.added),
    )


@lru_cache(maxsize=4096)
def _rectangle_sums(rows: int, columns: int, most: int, least: int) -> tuple[int, int, int]:
    """Rectangles, their positions, and those of matmuls that take as long as `least` of them."""
    sizes = [
        (rectangle.row_end - rectangle.row) * (rectangle.column_end - rectangle.column)
        for rectangle in rectangles(rows, columns, most)
    ]
    return len(sizes), sum(sizes), sum(max(size, least) for size in sizes)


def _stores(rates: Rates, out: OutRates, look: OutLook) -> EngineSum:
    """Output buffers to y; what is added comes the same way."""
    runs = 1 if look.columns == rates.y_width else look.stored
    frames = rates.out_frames
    each = look.stored * look.columns // runs * rates.y_bytes
    buffers = -(-out.channels // rates.lines)
    one = EngineSum(
        moved=moved_ns(rates.timing, out.channels * frames * runs, each),
        loads=buffers,
        bytes=out.channels * frames * look.stored * look.columns * rates.y_bytes,
        instructions=buffers,
    )
    return one.times(rates.ways)
