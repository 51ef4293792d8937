"""When a Winograd kernel loads, prepares and multiplies what, and in which slots.

Input frames and tiles of transformed inputs are numbered through all blocks of all iterations, and
use their slots in turn. A unit's transformed inputs are prepared during the unit before. An input
is loaded as soon as its slot was read for the last time, but not more than a unit before it is
needed, nor before the block ahead of its own. A plan that holds inputs of some tiles of channels
only (`x_tiles`) loads them as they are transformed; then there is nothing to load ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.algorithms.winograd.recipe import Prepare, Unit, XLoad
from trnconv.algorithms.winograd.stages import frames_of_unit


@dataclass(frozen=True)
class Schedule:
    """The body of an iteration, and what comes before the first one."""

    first_loads: tuple[XLoad, ...]
    first_prepares: tuple[Prepare, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class PipelineSchedule:
    """What a schedule depends on: frames, tiles of transformed inputs and units of a block.

    All three are numbered from the first iteration on.
    """

    by_frame: bool  # a tile of each frame, and units share them; else a tile of each unit
    units: int  # of a block
    block_frames: int
    read_frames: int  # tiles that a unit multiplies
    advance: int  # frames from unit to unit, if each has a tile
    tile_frames: int
    loads_ahead: bool  # inputs lie in slots of their own; else they are loaded tile by tile
    frame_pairs: bool = False  # a tile is made of two frames that need not be neighbours

    @property
    def tiles_of_block(self) -> int:
        """Tiles of transformed inputs."""
        return self.block_frames if self.by_frame else self.units

    def frames_of(self, tile: int) -> Sequence[int]:
        """The input frames a tile of transformed inputs is made of."""
        block, number = divmod(tile, self.tiles_of_block)
        first = block * self.block_frames
        if self.frame_pairs:
            return [first + frame for frame in frames_of_unit(number)]
        if self.by_frame:
            return range(first + number, first + number + 1)
        at = first + self.advance * number
        return range(at, at + self.tile_frames)

    def tiles_from(self, frame: int) -> Sequence[int]:
        """The tiles that are made of an input frame."""
        block, number = divmod(frame, self.block_frames)
        first = block * self.tiles_of_block
        if self.frame_pairs:
            return [first + unit for unit in range(self.units) if number in frames_of_unit(unit)]
        if self.by_frame:
            return range(first + number, first + number + 1)
        low = max(0, -(-(number - self.tile_frames + 1) // self.advance))
        high = min(self.units - 1, number // self.advance)
        return range(first + low, first + high + 1)

    def tiles_read_by(self, unit: int) -> range:
        """The tiles a unit multiplies."""
        block, number = divmod(unit, self.units)
        first = block * self.tiles_of_block + number
        return range(first, first + self.read_frames)

    def uses(self, tile: int) -> range:
        """The units that multiply a tile."""
        block, number = divmod(tile, self.tiles_of_block)
        first = block * self.units
        low, high = max(0, number - self.read_frames + 1), min(self.units - 1, number)
        return range(first + low, first + high + 1)

    def prepared_during(self, tile: int) -> int:
        """The unit during which a tile is made."""
        return self.uses(tile)[0] - 1

    def needed(self, frame: int) -> int:
        """The unit during which a frame is first transformed."""
        return self.prepared_during(self.tiles_from(frame)[0])

    def loaded_before(self, frame: int, x_slots: int) -> int:
        """The unit before which a frame is loaded."""
        free = self.prepared_during(self.tiles_from(frame - x_slots)[-1]) + 1
        needed = self.needed(frame)
        block_ahead = (frame // self.block_frames - 1) * self.units
        return min(max(free, needed - 1, block_ahead), max(free, needed))


def pipeline_schedule(plan: WinogradPlan) -> PipelineSchedule:
    """What its schedule depends on."""
    return PipelineSchedule(
        plan.by_rows and not plan.shares_sums and not plan.frame_pairs,
        plan.units,
        plan.block_frames,
        plan.read_frames,
        plan.out_frames,
        plan.tile_frames,
        plan.x_tiles == 0,
        plan.frame_pairs,
    )


def broken_schedule(plan: WinogradPlan) -> list[str]:
    """Why slots do not suffice; empty if they do."""
    return list(
        violated_slots(pipeline_schedule(plan), plan.body_blocks, plan.v_slots, plan.x_slots)
    )


@lru_cache(maxsize=4096)
def violated_slots(
    pipeline: PipelineSchedule, blocks: int, v_slots: int, x_slots: int
) -> tuple[str, ...]:
    """The same of a body of some blocks."""
    broken = []
    frames, tiles = blocks * pipeline.block_frames, blocks * pipeline.tiles_of_block
    if not pipeline.loads_ahead and x_slots != pipeline.tile_frames:
        broken.append(
            f"{x_slots} input slots of a tile of channels: it is transformed from"
            f" {pipeline.tile_frames} frames"
        )
    if pipeline.loads_ahead and frames % x_slots:
        broken.append(
            f"{x_slots} input slots for {blocks} x {pipeline.block_frames} frames of an iteration:"
            " iterations would differ; use a divisor"
        )
    if tiles % v_slots:
        broken.append(
            f"{v_slots} slots for {blocks} x {pipeline.tiles_of_block} transformed tiles of a"
            " iteration: iterations would differ; use a divisor"
        )
    if broken:
        return tuple(broken)
    for tile in range(tiles, 2 * tiles):
        if pipeline.prepared_during(tile) <= pipeline.uses(tile - v_slots)[-1]:
            return (f"{v_slots} slots of transformed inputs: a unit and the next need more",)
    for frame in range(frames, 2 * frames) if pipeline.loads_ahead else ():
        if pipeline.loaded_before(frame, x_slots) > pipeline.needed(frame):
            return (f"{x_slots} input slots: transforms of a unit need more at once",)
    return ()


def schedule(plan: WinogradPlan) -> Schedule:
    """The body, and what comes before it."""
    pipeline = pipeline_schedule(plan)
    frames = range((plan.body_blocks + 1) * plan.block_frames) if pipeline.loads_ahead else ()
    loads: defaultdict[int, list[XLoad]] = defaultdict(list)  # before which unit
    for frame in frames:
        before = max(-1, pipeline.loaded_before(frame, plan.x_slots))
        loads[before].append(_load(plan, frame))
    prepares: defaultdict[int, list[Prepare]] = defaultdict(list)  # during which unit
    for tile in range((plan.body_blocks + 1) * pipeline.tiles_of_block):
        prepares[max(-1, pipeline.prepared_during(tile))].append(_prepare(plan, pipeline, tile))
    units = [
        Unit(
            number // plan.units,
            number % plan.units,
            tuple(tile % plan.v_slots for tile in pipeline.tiles_read_by(number)),
            tuple(loads[number]),
            tuple(prepares[number]),
        )
        for number in range(plan.body_blocks * plan.units)
    ]
    return Schedule(tuple(loads[-1]), tuple(prepares[-1]), tuple(units))


def _load(plan: WinogradPlan, frame: int) -> XLoad:
    block, number = divmod(frame, plan.block_frames)
    return XLoad(block, number, frame % plan.x_slots)


def _prepare(plan: WinogradPlan, pipeline: PipelineSchedule, tile: int) -> Prepare:
    frames = pipeline.frames_of(tile)
    block, slot = tile // pipeline.tiles_of_block, tile % plan.v_slots
    if not pipeline.loads_ahead:
        slots = tuple(range(len(frames)))
        own = tuple(n % plan.block_frames for n in frames)
        return Prepare(block, slot, slots, slots, own, tile % plan.stages)
    new = [frame for frame in frames if pipeline.tiles_from(frame)[0] == tile]
    return Prepare(
        block,
        slot,
        tuple(frame % plan.x_slots for frame in frames),
        tuple(frame % plan.x_slots for frame in new),
        tuple(frame % plan.block_frames for frame in new),
        tile % plan.stages,
    )
