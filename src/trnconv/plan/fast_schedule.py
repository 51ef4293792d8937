"""When a fast kernel loads, prepares and multiplies what, and in which slots.

Input frames and tiles of transformed inputs are numbered through all blocks of all turns, and use
their slots in turn. A unit's transformed inputs are prepared during the unit before. An input is
loaded as soon as its slot was read for the last time, but not more than a unit before it is needed,
nor before the block ahead of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.plan.fast_plan import FastPlan
from trnconv.plan.fast_recipe import Prepare, Unit, XLoad


@dataclass(frozen=True)
class Schedule:
    """The body of a turn, and what comes before the first one."""

    first_loads: tuple[XLoad, ...]
    first_prepares: tuple[Prepare, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class _Sequence:
    """Frames, tiles of transformed inputs and units, all numbered from the first turn on."""

    plan: FastPlan

    @property
    def tiles_of_block(self) -> int:
        return self.plan.block_frames if self.plan.by_rows else self.plan.units

    def frames_of(self, tile: int) -> list[int]:
        """The input frames a tile of transformed inputs is made of."""
        plan = self.plan
        block, number = divmod(tile, self.tiles_of_block)
        first = block * plan.block_frames
        if plan.by_rows:
            return [first + number]
        at = first + plan.m * number
        return list(range(at, at + plan.algorithm.products))

    def tiles_from(self, frame: int) -> list[int]:
        """The tiles that are made of an input frame."""
        block = frame // self.plan.block_frames
        first = block * self.tiles_of_block
        tiles = range(first, first + self.tiles_of_block)
        return [tile for tile in tiles if frame in self.frames_of(tile)]

    def tiles_read_by(self, unit: int) -> list[int]:
        """The tiles a unit multiplies."""
        block, number = divmod(unit, self.plan.units)
        first = block * self.tiles_of_block + number
        return list(range(first, first + self.plan.read_frames))

    def uses(self, tile: int) -> list[int]:
        """The units that multiply a tile."""
        block = tile // self.tiles_of_block
        units = range(block * self.plan.units, (block + 1) * self.plan.units)
        return [unit for unit in units if tile in self.tiles_read_by(unit)]

    def prepared_during(self, tile: int) -> int:
        return self.uses(tile)[0] - 1

    def loaded_before(self, frame: int) -> int:
        """The unit before which a frame is loaded."""
        plan = self.plan
        free = max(self.prepared_during(tile) for tile in self.tiles_from(frame - plan.x_slots)) + 1
        needed = min(self.prepared_during(tile) for tile in self.tiles_from(frame))
        block_ahead = (frame // plan.block_frames - 1) * plan.units
        return min(max(free, needed - 1, block_ahead), max(free, needed))


def broken_schedule(plan: FastPlan) -> list[str]:
    """Why slots do not suffice; empty if they do."""
    sequence = _Sequence(plan)
    blocks, broken = plan.body_blocks, []
    if blocks * plan.block_frames % plan.x_slots:
        broken.append(
            f"{plan.x_slots} input slots for {blocks} x {plan.block_frames} frames of a turn: turns"
            " would differ; use a divisor"
        )
    if blocks * sequence.tiles_of_block % plan.v_slots:
        broken.append(
            f"{plan.v_slots} slots for {blocks} x {sequence.tiles_of_block} transformed tiles of a"
            " turn: turns would differ; use a divisor"
        )
    if broken:
        return broken
    count = sequence.tiles_of_block * blocks
    for tile in range(count, 2 * count):
        if sequence.prepared_during(tile) <= sequence.uses(tile - plan.v_slots)[-1]:
            return [f"{plan.v_slots} slots of transformed inputs: a unit and the next need more"]
    frames = plan.block_frames * blocks
    for frame in range(frames, 2 * frames):
        needed = min(sequence.prepared_during(tile) for tile in sequence.tiles_from(frame))
        if sequence.loaded_before(frame) > needed:
            return [f"{plan.x_slots} input slots: transforms of a unit need more at once"]
    return []


def schedule(plan: FastPlan) -> Schedule:
    """The body, and what comes before it."""
    sequence = _Sequence(plan)
    frames = range((plan.body_blocks + 1) * plan.block_frames)
    tiles = range((plan.body_blocks + 1) * sequence.tiles_of_block)
    loads = {frame: sequence.loaded_before(frame) for frame in frames}
    units = [
        Unit(
            number // plan.units,
            number % plan.units,
            tuple(tile % plan.v_slots for tile in sequence.tiles_read_by(number)),
            tuple(_load(plan, frame) for frame in frames if loads[frame] == number),
            tuple(
                _prepare(sequence, tile)
                for tile in tiles
                if sequence.prepared_during(tile) == number
            ),
        )
        for number in range(plan.body_blocks * plan.units)
    ]
    return Schedule(
        tuple(_load(plan, frame) for frame in frames if loads[frame] < 0),
        tuple(_prepare(sequence, tile) for tile in tiles if sequence.prepared_during(tile) < 0),
        tuple(units),
    )


def _load(plan: FastPlan, frame: int) -> XLoad:
    block, number = divmod(frame, plan.block_frames)
    return XLoad(block, number, frame % plan.x_slots)


def _prepare(sequence: _Sequence, tile: int) -> Prepare:
    plan = sequence.plan
    slots = tuple(frame % plan.x_slots for frame in sequence.frames_of(tile))
    return Prepare(tile // sequence.tiles_of_block, tile % plan.v_slots, slots)
