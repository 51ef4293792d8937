"""Where things of a kernel by differences lie in SBUF."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.algorithms.recipe_parts import Ring
from trnconv.algorithms.sbuf_space import SbufSpace
from trnconv.algorithms.winograd_upsample.blocks import (
    column_spans,
    frame_reads,
    row_spans,
    tap_sets,
)
from trnconv.algorithms.winograd_upsample.plan import V_BYTES, UpsamplePlan
from trnconv.algorithms.winograd_upsample.terms import PRODUCTS, TIMES, plane_sizes
from trnconv.problem.epilogue import NO_RESIDUAL

CONSTANTS = 2  # columns of an output tile: bias and scale
X_SLOTS = 2  # one is loaded while differences are made of the other
OUT_SLOTS = 3
RESIDUAL_SLOTS = 2
CHAIN_COPIES = 6  # float32 tiles of a chain
_CHAINS = 2  # whose copies are held at once
STEP_ELEMS = 1024
_ALIGN = 64
_FLOAT_BYTES = _INT_BYTES = 4


@dataclass(frozen=True)
class UpsampleMemory:
    """Rings, each for all tiles of channels, addresses in bytes, and the end of everything."""

    x: Ring
    v: Ring
    weights: Ring
    copies: Ring
    out: Ring
    residual: Ring
    constants_address: int
    places_address: int
    end: int


def channel_tiles(channels: int, lines: int) -> tuple[tuple[int, int], ...]:
    """Channels of each tile, first and count; the last one has the rest."""
    return tuple((first, min(lines, channels - first)) for first in range(0, channels, lines))


def x_elems(rows: int, columns: int) -> int:
    """Of an input tile: the block, and a row and a column around it."""
    return (rows + 2) * (columns + 2)


def v_elems(rows: int, columns: int) -> int:
    """Of all planes of a block."""
    return sum(down * across for down, across in plane_sizes(rows, columns))


def pieces_of(plan: UpsamplePlan) -> int:
    """In how many pieces of rows each plane is made, so that no step keeps an engine for long."""
    rows = max(span.count for span in row_spans(plan))
    columns = max(span.count for span in column_spans(plan))
    return min(rows, -(-rows * columns // STEP_ELEMS))


def v_slots(plan: UpsamplePlan) -> int:
    """Input frames whose differences are held: those of a unit, and those made for the next."""
    reads = [{frame for frame, _ in reads} for reads in frame_reads(plan.shape)]
    following = zip(reads, [*reads[1:], set()], strict=True)
    within = max(len(now | after) for now, after in following)
    return max(within, len(reads[-1]) + len(reads[0]))


def set_columns(plan: UpsamplePlan) -> int:
    """Weights of an output channel for one set of taps: a column for each product and tile."""
    return len(PRODUCTS) * len(channel_tiles(plan.shape.c_in, plan.machine.partitions))


def weight_slots(plan: UpsamplePlan) -> tuple[int, int]:
    """Slots for weights, and columns of each."""
    sets = tap_sets(plan.shape)
    if not plan.streamed:
        return 1, len(sets) * set_columns(plan) * plan.shape.c_out
    taps = max(len(reads) for reads in frame_reads(plan.shape))
    width = min(plan.machine.partitions, plan.shape.c_out)
    return 2 * taps, set_columns(plan) * width


def lay_out(plan: UpsamplePlan) -> UpsampleMemory:
    """Everything one after the other."""
    space = SbufSpace(plan.machine, _ALIGN)
    rows = max(span.count for span in row_spans(plan))
    columns = max(span.count for span in column_spans(plan))
    tiles = len(channel_tiles(plan.shape.c_in, plan.machine.partitions))
    outs = TIMES * rows * TIMES * columns
    added = 0 if plan.epilogue.residual == NO_RESIDUAL else RESIDUAL_SLOTS
    bank = plan.machine.psum_bank_fp32_elems
    blocks = max(1, plan.iteration_spans) * len(column_spans(plan))
    return UpsampleMemory(
        x=space.ring(X_SLOTS * tiles, x_elems(rows, columns), plan.item_bytes),
        v=space.ring(v_slots(plan) * tiles, v_elems(rows, columns), V_BYTES),
        weights=space.ring(*weight_slots(plan), V_BYTES),
        copies=space.ring(_CHAINS * CHAIN_COPIES, min(bank, rows * columns), _FLOAT_BYTES),
        out=space.ring(OUT_SLOTS, outs, plan.out_bytes),
        residual=space.ring(added, outs // (TIMES if plan.epilogue.coarse else 1), plan.item_bytes),
        constants_address=space.ring(1, constant_columns(plan), _FLOAT_BYTES).address,
        places_address=space.ring(1, 2 * blocks, _INT_BYTES).address,
        end=space.taken,
    )


def constant_columns(plan: UpsamplePlan) -> int:
    """Columns of the image of constants."""
    return CONSTANTS * len(channel_tiles(plan.shape.c_out, plan.machine.partitions))
