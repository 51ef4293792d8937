"""What a Winograd kernel's pipeline depends on, for blocks of a plan's most frequent kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nkisim.machine import Machine
from trnconv.algorithms.recipe_parts import Rectangle
from trnconv.algorithms.rectangles import rectangles
from trnconv.algorithms.winograd.block_cost import norm_matmuls
from trnconv.algorithms.winograd.blocks import (
    BlockSpan,
    column_kinds,
    frame_spans,
    most_frequent_frames,
    row_kinds,
)
from trnconv.algorithms.winograd.channels import (
    InChannels,
    OutChannels,
    in_channels,
    matrices_of_a_load,
    out_channels,
    taps_of,
)
from trnconv.algorithms.winograd.in_parts import in_part
from trnconv.algorithms.winograd.pipeline_schedule import schedule
from trnconv.algorithms.winograd.plan import V_BYTES, WIDTH, WinogradPlan
from trnconv.algorithms.winograd.recipe import InLoad, Prepare, Unit, XLoad
from trnconv.algorithms.winograd.sbuf import float_copies, norm_slots, out_slots, tile_rows
from trnconv.problem.epilogue import ITEM_BYTES, NO_RESIDUAL, Epilogue


class TransferWork(NamedTuple):
    """A transfer: its descriptors, and bytes of each."""

    descriptors: int
    bytes_each: float


class StepWork(NamedTuple):
    """A step of a transform: the product it makes, or -1, and the inputs it reads, by slot."""

    product: int
    inputs: tuple[int, ...]
    made: tuple[int, ...]  # products it reads that early steps make


class InWork(NamedTuple):
    """A tile of input channels: loads of a frame, and elements of what is done to it."""

    loads: tuple[TransferWork, ...]
    zeros: int  # GpSimd: all of a frame that does not exist
    x_cleared: tuple[int, ...]  # GpSimd: borders of inputs
    completed: tuple[int, ...]  # GpSimd: copies, for a new frame
    v_cleared: tuple[int, ...]  # GpSimd: borders of transformed inputs
    paired: int  # GpSimd or Vector: two frames are added, if they are
    step: int  # Vector: a step of the transform
    filled: tuple[int, ...]  # Scalar: columns that padding repeats
    scaled: int  # Scalar: a new frame


class ReadWork(NamedTuple):
    """Transformed inputs that a product reads, and the share of its matmuls before they do."""

    tile: int  # of input channels
    read: int  # of the tiles that a unit reads
    begins: float


class OutWork(NamedTuple):
    """A tile of output channels: its rectangles, and what a product and a store take."""

    rectangles: tuple[int, ...]  # positions
    matmuls: int  # of a product
    reads: tuple[ReadWork, ...]  # in the order of its matmuls
    share: float  # of the array
    phases: int  # columns that share a matmul, each on its own way out
    weights: tuple[TransferWork, ...]  # loads of a product's weights, if they are streamed
    store: TransferWork


class NormWork(NamedTuple):
    """The norm of a unit's outputs: positions of each step, and what sums up its squares."""

    steps: tuple[int, ...]
    matmuls: int
    keeps: bool  # whether outputs are stored too
    slots: int  # steps that are held at once
    sums: int  # banks that chains do not need


@dataclass(frozen=True)
class SlotCounts:
    """How many there are of what is used in turn."""

    x: int
    v: int
    outs: int
    residuals: int
    weights: int
    copies: int


@dataclass(frozen=True)
class SteadyState:
    """One block, and how blocks follow each other."""

    machine: Machine
    outputs: int  # of a tile
    steps: tuple[StepWork, ...]  # of a transform
    gpsimd_steps: int  # the first of them, on that engine
    step_needs: tuple[int, ...]  # how many of those each step waits for
    completes: bool  # inputs are scaled or copied before they are transformed
    scaled: bool
    gpsimd_outputs: tuple[int, ...]
    midgroup: bool
    epilogue: Epilogue
    residual: bool
    wide: bool  # inputs of four bytes: a step takes two cycles an element
    in_tiles: tuple[InWork, ...]
    v_frames: int  # that lie one after the other in a tile of transformed inputs
    x_tiles: int  # of input channels whose inputs are loaded as they are transformed; 0: ahead
    steps_ahead: bool  # steps of the GpSimd engine come before the others
    late_pauses: int  # of a unit, before the first of the other steps
    stages: int  # units that compute the same outputs together
    gpsimd_pairs: bool
    outs: tuple[OutWork, ...]  # of a group
    kept_weights: TransferWork | None  # None: they are streamed
    slots: SlotCounts
    first_loads: tuple[XLoad, ...]
    first_prepares: tuple[Prepare, ...]
    units: tuple[Unit, ...]  # of a body
    blocks: int  # of a body
    wanted: tuple[tuple[int, ...], ...]  # outputs of each unit of a block
    stored: tuple[bool, ...]  # whether a unit completes them
    missing: tuple[bool, ...]  # frames of a block that are zeros
    looped: bool
    norm: NormWork | None


def steady_state(plan: WinogradPlan, tiles: tuple[int, int]) -> SteadyState:
    """That of a plan's tiles of output channels, first and end: a group."""
    row, column = most_frequent(plan)
    streamed, group = plan.streamed > 0, out_channels(plan)[slice(*tiles)]
    frames = most_frequent_frames(plan)
    outs = tuple(_out_work(plan, tile, row, column) for tile in group)
    products = plan.stages * plan.transforms.products
    weights = sum(len(taps_of(plan, tile.shared)) * tile.width * products for tile in group)
    residual = plan.epilogue.residual != NO_RESIDUAL
    body = schedule(plan)
    ins = tuple(_in_work(plan, tile, row, column) for tile in in_channels(plan))
    return SteadyState(
        machine=plan.machine,
        outputs=plan.m,
        steps=_steps(plan),
        gpsimd_steps=plan.gpsimd_steps,
        step_needs=plan.transforms.needs(plan.gpsimd_steps),
        completes=any(work.completed or work.scaled for work in ins),
        scaled=plan.prologue.scaled,
        gpsimd_outputs=plan.gpsimd_outputs,
        midgroup=plan.midgroup,
        epilogue=plan.epilogue,
        residual=residual,
        wide=plan.item_bytes > V_BYTES,
        in_tiles=ins,
        v_frames=plan.v_frames,
        x_tiles=plan.x_tiles,
        steps_ahead=plan.steps_ahead,
        late_pauses=plan.late_pauses,
        stages=plan.stages,
        gpsimd_pairs=plan.gpsimd_pairs,
        outs=outs,
        kept_weights=None if streamed else TransferWork(plan.machine.partitions, weights * V_BYTES),
        slots=SlotCounts(
            plan.x_slots,
            plan.v_slots,
            out_slots(plan),
            plan.residual_buffers if residual else 0,
            plan.streamed,
            float_copies(plan),
        ),
        first_loads=body.first_loads,
        first_prepares=body.first_prepares,
        units=body.units,
        blocks=plan.body_blocks,
        wanted=tuple(unit.outputs for unit in frames.units),
        stored=tuple(unit.frames > 0 for unit in frames.units),
        missing=tuple(frame.piece < 0 for frame in frames.frames),
        looped=plan.looped,
        norm=_norm_work(plan, row, column),
    )


def _norm_work(plan: WinogradPlan, row: BlockSpan, column: BlockSpan) -> NormWork | None:
    if plan.epilogue.norm is None:
        return None
    frames = _stored_frames(plan)
    left, bank = row.stored * column.outs * frames, plan.machine.psum_bank_fp32_elems
    steps = tuple(min(bank, left - first) for first in range(0, left, bank))
    sums = plan.machine.psum_banks - plan.chain_banks
    return NormWork(steps, norm_matmuls(plan), plan.epilogue.norm.keeps, norm_slots(plan), sums)


def _stored_frames(plan: WinogradPlan) -> int:
    """Output frames of a unit."""
    return plan.unit_frames if plan.by_rows else len(frame_spans(plan)[0].units[0].outputs)


def _steps(plan: WinogradPlan) -> tuple[StepWork, ...]:
    """A row tile's inputs lie in one slot, those of a tile of frames in a slot each."""
    algorithm, early = plan.transforms, plan.gpsimd_steps
    count, made = algorithm.products, {step.dst for step in algorithm.steps[:early]}
    works = []
    for step in algorithm.steps:
        inputs = tuple(operand for operand in (step.a, step.b) if operand < count)
        if plan.by_rows:
            inputs = (0,) if inputs else ()
        read = tuple(operand - count for operand in (step.a, step.b) if operand in made)
        works.append(StepWork(step.dst - count if step.dst < 2 * count else -1, inputs, read))
    return tuple(works)


def most_frequent(plan: WinogradPlan) -> tuple[BlockSpan, BlockSpan]:
    """Rows and columns of the kind of block that there are most of; of those, the largest."""
    row, column = (
        max(kinds, key=lambda kind: (kind[1], kind[0].outs))[0]
        for kinds in (row_kinds(plan), column_kinds(plan))
    )
    return row, column


def _in_work(plan: WinogradPlan, tile: InChannels, row: BlockSpan, column: BlockSpan) -> InWork:
    part, products = in_part(plan, tile, row, column), plan.transforms.products
    written = part.written
    v_rows = plan.v_frames * (row.outs // plan.m if plan.by_rows else row.ins)
    copies = [(part.rows - copy.rows) * (part.columns - copy.columns) for copy in part.copies]
    return InWork(
        loads=tuple(_load_of(plan, load) for load in part.loads),
        zeros=part.rows * part.columns,
        x_cleared=tuple(_area(clear) for clear in part.x_clears),
        completed=tuple(copies),
        v_cleared=tuple(products * _area(clear) for clear in part.v_clears),
        paired=part.rows * part.columns if plan.frame_pairs else 0,
        step=_area(written),
        filled=len(part.v_fills) * (products * v_rows,),
        scaled=_area(part.inside) if plan.prologue.scaled else 0,
    )


def _load_of(plan: WinogradPlan, load: InLoad) -> TransferWork:
    rows = load.into.row_end - load.into.row
    runs = 1 if load.whole else rows
    return TransferWork(load.lines * runs, _area(load.into) // runs * plan.item_bytes)


def _area(part: Rectangle) -> int:
    return (part.row_end - part.row) * (part.column_end - part.column)


def _reads(plan: WinogradPlan, tile: OutChannels) -> tuple[ReadWork, ...]:
    taps = taps_of(plan, tile.shared)
    first: dict[tuple[int, int], float] = {}
    for number, tap in enumerate(taps):
        read = tap.read if plan.read_frames > 1 else 0  # frames that share sums lie in one tile
        first.setdefault((tap.tile, read), number / len(taps))
    return tuple(ReadWork(*which, begins) for which, begins in first.items())


def _out_work(plan: WinogradPlan, tile: OutChannels, row: BlockSpan, column: BlockSpan) -> OutWork:
    machine, taps = plan.machine, len(taps_of(plan, tile.shared))
    columns, most = -(-column.outs // tile.stack), machine.psum_bank_fp32_elems
    sizes = tuple(_area(part) for part in rectangles(tile_rows(plan, row.outs), columns, most))
    runs = 1 if column.outs == plan.shape.out_size(WIDTH) else row.stored
    frames = _stored_frames(plan)
    loads = -(-taps // matrices_of_a_load(taps))
    lines = max(part.lines for part in in_channels(plan))
    row_bytes = taps * tile.width * V_BYTES
    return OutWork(
        rectangles=sizes,
        matmuls=taps * (tile.stack if tile.side_by_side else 1),
        reads=_reads(plan, tile),
        share=lines * tile.width / machine.partitions**2,
        phases=min(tile.stack, column.outs),
        weights=loads * (TransferWork(machine.partitions, row_bytes / loads),),
        store=TransferWork(
            tile.channels * frames * runs,
            row.stored * column.outs // runs * ITEM_BYTES[plan.epilogue.dtype or plan.dtype],
        ),
    )
