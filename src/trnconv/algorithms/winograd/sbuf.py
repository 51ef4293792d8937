"""Where things of a Winograd kernel lie in SBUF."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnconv.algorithms.recipe_parts import Ring
from trnconv.algorithms.rectangles import rectangles
from trnconv.algorithms.sbuf_space import SbufSpace, aligned
from trnconv.algorithms.winograd.blocks import column_kinds, row_kinds
from trnconv.algorithms.winograd.channels import (
    in_channels,
    matrices_of_a_load,
    out_channels,
    taps_of,
)
from trnconv.algorithms.winograd.plan import LEAST, V_BYTES, WinogradPlan
from trnconv.algorithms.winograd.stages import HELD
from trnconv.problem.epilogue import NO_RESIDUAL
from trnconv.problem.prologue import FACTORS

CONSTANTS = 7  # columns of an output tile: see chains.py
_ALIGN = 64
_FLOAT_BYTES = _INT_BYTES = 4
_CHAINS = 2  # chains whose copies are held at once
PAIRED_TILES = 2  # one is transformed, another made
_NORM_STEPS = 4  # of a norm of one tile, whose squares and products are held at once
NORM_CONSTANTS = 2  # columns of an output tile: scale and b
_BF16_BYTES = 2


@dataclass(frozen=True)
class FastMemory:
    """Addresses on every partition, in bytes, and their end: what the plan needs."""

    x: tuple[Ring, ...]
    v: tuple[Ring, ...]
    weights: Ring
    scratch: Ring
    paired: Ring
    held: Ring
    copies: Ring
    out: Ring
    residual: Ring
    squares: Ring
    products: Ring
    ones: Ring
    under_root: Ring
    scales: Ring
    constants_address: int
    factors_address: int
    places_address: int
    end: int


def largest_inputs(plan: WinogradPlan) -> tuple[int, int]:
    """Elements of a frame of the largest input tile, and of the largest one of V, a product's."""
    rows = max(span.ins for span, _ in row_kinds(plan))
    columns = max(span.ins for span, _ in column_kinds(plan))
    v_rows = rows
    if plan.by_rows:
        v_rows = -(-max(span.outs for span, _ in row_kinds(plan)) // plan.m)
    return rows * columns, v_rows * columns


def group_columns(plan: WinogradPlan) -> int:
    """Columns of the weight image of the largest group."""
    tiles = out_channels(plan)
    widths = [
        sum(
            len(taps_of(plan, tile.shared)) * tile.width
            for tile in tiles[first : first + plan.group]
        )
        for first in range(0, len(tiles), plan.group)
    ]
    return max(widths) * plan.transforms.products * plan.stages


def largest_rectangle(plan: WinogradPlan) -> int:
    """Positions of the largest rectangle that a bank sums up."""
    most = plan.machine.psum_bank_fp32_elems
    sizes = {
        (rectangle.row_end - rectangle.row) * (rectangle.column_end - rectangle.column)
        for row in {span.outs for span, _ in row_kinds(plan)}
        for column in {span.outs for span, _ in column_kinds(plan)}
        for stack in {tile.stack for tile in out_channels(plan)}
        for rectangle in rectangles(tile_rows(plan, row), -(-column // stack), most)
    }
    return max(sizes)


def tile_rows(plan: WinogradPlan, outs: int) -> int:
    """Rows of sums of a unit, of blocks of so many rows: of tiles, frame after frame."""
    return plan.unit_frames * (outs // plan.m) if plan.by_rows else outs


def constant_columns(plan: WinogradPlan) -> int:
    """Columns of the image of constants."""
    return CONSTANTS * len(out_channels(plan))


def _weight_slots(plan: WinogradPlan) -> tuple[int, int]:
    """Slots for weights, and columns of each."""
    if not plan.streamed:
        return 1, group_columns(plan)
    widths = [
        matrices_of_a_load(len(taps_of(plan, tile.shared))) * tile.width
        for tile in out_channels(plan)
    ]
    return plan.streamed, max(widths)


def lay_out(plan: WinogradPlan) -> FastMemory:
    """Everything one after the other."""
    space, algorithm = SbufSpace(plan.machine, _ALIGN), plan.transforms
    x_elems, v_elems = largest_inputs(plan)
    count = len(in_channels(plan))
    x = tuple(
        space.ring(plan.x_slots, x_elems, plan.item_bytes) for _ in range(plan.x_tiles or count)
    )
    all_elems = algorithm.products * plan.v_frames * v_elems
    v = tuple(space.ring(plan.v_slots, all_elems, V_BYTES) for _ in range(count))
    out_rows = max(span.outs for span, _ in row_kinds(plan)) * plan.out_frames
    out_elems = out_rows * min(plan.columns, plan.shape.out_size(2))
    weights = space.ring(*_weight_slots(plan), V_BYTES)
    scratch = space.ring(1 if algorithm.scratch() else 0, v_elems, V_BYTES)
    paired = space.ring(PAIRED_TILES if plan.frame_pairs else 0, x_elems, V_BYTES)
    held = space.ring(held_tiles(plan), plan.m * largest_rectangle(plan), _FLOAT_BYTES)
    copies = space.ring(float_copies(plan), largest_rectangle(plan), _FLOAT_BYTES)
    out = space.ring(out_slots(plan), out_elems, plan.out_bytes)
    added = 0 if plan.epilogue.residual == NO_RESIDUAL else plan.residual_buffers
    residual = space.ring(added, out_elems, plan.item_bytes)
    norm = _norm_rings(plan, space)
    constants = space.ring(1, constant_columns(plan), _FLOAT_BYTES)
    factors = space.ring(1 if plan.prologue.scaled else 0, _factor_columns(plan), _FLOAT_BYTES)
    places = space.ring(1, _cells(plan), _INT_BYTES)
    return FastMemory(
        x,
        v,
        weights,
        scratch,
        paired,
        held,
        copies,
        out,
        residual,
        *norm,
        constants.address,
        factors.address,
        places.address,
        space.taken,
    )


def held_tiles(plan: WinogradPlan) -> int:
    """Tiles of sums between stages."""
    return HELD * len(out_channels(plan)) if plan.frame_pairs else 0


def out_slots(plan: WinogradPlan) -> int:
    """Output buffers. Those of a unit are normed together, while the next one fills its own."""
    if plan.epilogue.norm is None:
        return plan.out_buffers
    return max(plan.out_buffers, 2 * len(out_channels(plan)) + 1)


def norm_slots(plan: WinogradPlan) -> int:
    """Steps of a norm that are held at once. With more tiles, a step has more pauses."""
    return _NORM_STEPS if len(out_channels(plan)) == 1 else _NORM_STEPS - 1


def sums_root_by_lines(plan: WinogradPlan, terms: int) -> bool:
    """Whether lines beside the last tile's channels hold what is added under the root.

    Engines begin at quadrants only. Without such lines, a matmul of its own adds it.
    """
    last = out_channels(plan)[-1].channels
    return last % plan.machine.quadrant_partitions == 0 and last + terms <= plan.machine.partitions


def _norm_rings(plan: WinogradPlan, space: SbufSpace) -> tuple[Ring, Ring, Ring, Ring, Ring]:
    """Squares, products, ones, what is added under the root, and scales of a norm."""
    if plan.epilogue.norm is None:
        none = space.ring(0, 0, _FLOAT_BYTES)
        return none, none, none, none, none
    bank, lines = plan.machine.psum_bank_fp32_elems, plan.machine.partitions
    tiles, steps = len(out_channels(plan)), norm_slots(plan)
    return (
        space.ring(steps * tiles, bank, _BF16_BYTES),
        space.ring(steps * tiles, bank, _FLOAT_BYTES),
        space.ring(1, max(bank, lines), _BF16_BYTES),
        space.ring(1, lines, _BF16_BYTES),
        space.ring(1, NORM_CONSTANTS * tiles, _FLOAT_BYTES),
    )


def _factor_columns(plan: WinogradPlan) -> int:
    """Scales and shifts of a partition: of every piece and tile of input channels."""
    return FACTORS * len(plan.frames) * len(in_channels(plan))


def float_copies(plan: WinogradPlan) -> int:
    """Float32 tiles: those of the chains that are held at once."""
    copies = plan.transforms.copies
    return _CHAINS * (copies if plan.midgroup else copies + 1)


def _cells(plan: WinogradPlan) -> int:
    """Offsets of an iteration of a hardware loop."""
    return (len(plan.frames) + 1) * plan.body_blocks


@dataclass(frozen=True)
class SlotRoom:
    """What plans need that differ in slots and blocks of a body: so many bytes, and for each."""

    end: int  # with one slot of each kind
    x_bytes: int
    v_bytes: int

    def needed(self, v_slots: int, x_slots: int) -> int:
        """The end of everything; places of a body of one block."""
        return self.end + (v_slots - 1) * self.v_bytes + (x_slots - 1) * self.x_bytes


def with_least_buffers(plan: WinogradPlan) -> WinogradPlan:
    """The same with one slot of each kind and one block in a body, unrolled."""
    if plan.x_slots == plan.v_slots == plan.body_blocks == 1 and not plan.looped:
        return plan
    return plan.but(x_slots=1, v_slots=1, body_blocks=1, looped=False, spans=0)


def room_of(plan: WinogradPlan) -> SlotRoom:
    """What a plan with the least buffers needs: that of its size, with its own weights."""
    least = plan.but(**LEAST)
    room, other = _room_of_size(least), _weight_bytes(plan) - _weight_bytes(least)
    return SlotRoom(room.end + other, room.x_bytes, room.v_bytes)


@lru_cache(maxsize=4096)
def _room_of_size(plan: WinogradPlan) -> SlotRoom:
    memory = lay_out(plan)
    return SlotRoom(
        memory.end, sum(ring.pitch for ring in memory.x), sum(ring.pitch for ring in memory.v)
    )


@lru_cache(maxsize=4096)
def _weight_bytes(plan: WinogradPlan) -> int:
    slots, columns = _weight_slots(plan)
    return slots * aligned(columns * V_BYTES, _ALIGN)


def sbuf_end(plan: WinogradPlan) -> int:
    """`lay_out(plan).end`, for planners that ask often."""
    least = with_least_buffers(plan)
    return (
        room_of(least).needed(plan.v_slots, plan.x_slots)
        + _iteration_bytes(plan)
        - _iteration_bytes(least)
    )


def _iteration_bytes(plan: WinogradPlan) -> int:
    return aligned(_cells(plan) * _INT_BYTES, _ALIGN)
