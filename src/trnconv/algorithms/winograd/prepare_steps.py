"""The order in which transformed inputs are prepared: loads, and steps of each tile of channels.

`PrepareSteps` lists the steps; the functions say what each of them does, with an executor's verbs.
"""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.algorithms.winograd.executors import BodyExecutor, Decisions
from trnconv.algorithms.winograd.recipe import COMPLETE, LOAD, PAIR_UP, Prepare, PrepareStep, XLoad


class PrepareSteps(nl.NKIObject):
    """All steps of some preparations: those of the GpSimd engine come early, both in order.

    `first` are loads that nothing has to come before. Each later one stands amid the steps on the
    tile after the one whose place it takes, so that the queue of loads need not wait for those.
    Then steps of the GpSimd engine come just before the others of their frame: not before a load.
    """

    def __init__(self, recipe: Decisions, prepares: tuple[Prepare, ...] | list[Prepare]) -> None:
        self.recipe = recipe
        self.first: list[PrepareStep] = []
        self.early: list[PrepareStep] = []
        self.others: list[PrepareStep] = []
        if recipe.x_tiles > 0:
            self.list_with_loads(prepares)
            return
        for prepare in prepares:
            if recipe.completes:
                ahead = recipe.gpsimd_steps > 0 and recipe.steps_ahead
                first = self.early if ahead else self.others
                for tile in range(len(recipe.in_tiles)):
                    self.list_completion(first, prepare, tile)
            if recipe.stages > 1:
                self.list_pairs(prepare, [])
            else:
                for tile in range(len(recipe.in_tiles)):
                    self.list_steps(prepare, tile, [])

    def list_with_loads(self, prepares: tuple[Prepare, ...] | list[Prepare]) -> None:
        """The same if inputs are loaded tile by tile."""
        loads = []
        for prepare in prepares:
            for tile in range(len(self.recipe.in_tiles)):
                loads.append(PrepareStep(prepare, tile, 0, LOAD, 0))
        held = min(self.recipe.x_tiles, len(loads))
        self.first = loads[0:held]
        if self.recipe.stages > 1:
            for prepare in prepares:
                self.list_pairs(prepare, loads)
            return
        for number in range(len(loads)):
            work = loads[number]
            if self.recipe.completes:
                self.list_completion(self.others, work.prepare, work.tile)
            amid = []
            if 0 < number <= len(loads) - held:
                amid = [loads[number + held - 1]]
            self.list_steps(work.prepare, work.tile, amid)

    def list_pairs(self, prepare: Prepare, loads: list[PrepareStep]) -> None:
        """Steps of one preparation whose frames are paired first, each tile's amid those before it.

        A pair leaves the place of its inputs to those of a later tile, if they are loaded late:
        amid the next tile's steps, so that the queue of loads need not wait for the pair.
        """
        tiles = len(self.recipe.in_tiles)
        self.others = self.others + self.pair_of(prepare, 0, loads)
        for tile in range(tiles):
            amid = []
            if tile + 1 < tiles:
                amid = self.pair_of(prepare, tile + 1, loads)
            self.list_steps(prepare, tile, amid)

    def pair_of(self, prepare: Prepare, tile: int, loads: list[PrepareStep]) -> list[PrepareStep]:
        """How a tile's frames are paired: completed, if they were not before, then added."""
        steps = []
        later = tile - 1 + self.recipe.x_tiles
        if tile > 0 and later < len(loads):
            steps.append(loads[later])
        if len(loads) > 0 and self.recipe.completes:
            self.list_completion(steps, prepare, tile)
        steps.append(PrepareStep(prepare, tile, 0, PAIR_UP, 0))
        return steps

    def list_completion(self, steps: list[PrepareStep], prepare: Prepare, tile: int) -> None:
        """What the new frames of a tile need, at once or one by one."""
        count = 1
        if self.recipe.late_pauses > 0:
            count = max(1, len(prepare.fresh))
        for frame in range(count):
            steps.append(PrepareStep(prepare, tile, frame, COMPLETE, 0))

    def list_steps(self, prepare: Prepare, tile: int, amid: list[PrepareStep]) -> None:
        """Those of one tile of channels, with others amid: the load of another one."""
        half = self.recipe.v_frames * len(self.recipe.steps) // 2
        for frame in range(self.recipe.v_frames):
            before = len(self.early)
            for step in range(len(self.recipe.steps)):
                if frame * len(self.recipe.steps) + step == half:
                    self.others = self.others + amid
                if step < self.recipe.gpsimd_steps:
                    self.early.append(PrepareStep(prepare, tile, frame, step, 0))
                else:
                    needed = self.recipe.step_needs[step]
                    after = before + needed if needed > 0 or self.recipe.completes else 0
                    if not self.recipe.steps_ahead:
                        after = before + self.recipe.gpsimd_steps
                    self.others.append(PrepareStep(prepare, tile, frame, step, after))


def load_frame(body: BodyExecutor, load: XLoad) -> None:
    """One frame of a block, all tiles of channels."""
    for tile in range(len(body.recipe.in_tiles)):
        load_tile(body, load.block, tile, load.frame, load.slot)


def load_tile(body: BodyExecutor, block: int, tile: int, frame: int, slot: int) -> None:
    """One frame of a tile of channels; zeros where there is none."""
    x = body.input_tile(block, tile, slot)
    if body.is_missing(block, frame):
        body.zero_input(x, tile)
    else:
        body.clear_borders(x, block, tile)
        body.load_input(x, block, tile, frame)


def do_step(body: BodyExecutor, work: PrepareStep) -> None:
    """One step of a preparation."""
    if work.step >= 0:
        transform_step(body, work)
    elif work.step == COMPLETE:
        if work.frame == 0:
            body.clear_transformed(work)
        complete_inputs(body, work)
    elif work.step == PAIR_UP:
        body.pair_up(work)
    else:  # LOAD
        prepare = work.prepare
        for number in range(len(prepare.fresh)):
            frame, slot = prepare.frames[number], prepare.fresh[number]
            load_tile(body, prepare.block, work.tile, frame, slot)


def complete_inputs(body: BodyExecutor, work: PrepareStep) -> None:
    """The start and copies of channels, for inputs that are new; for one if steps are late."""
    prepare = work.prepare
    block, first, end = prepare.block, 0, len(prepare.fresh)
    if body.recipe.late_pauses > 0:
        first, end = work.frame, min(work.frame + 1, end)
    for number in range(first, end):
        x = body.input_tile(block, work.tile, prepare.fresh[number])
        frame = prepare.frames[number]
        if body.scales_inputs and not body.is_missing(block, frame):
            body.scale_input(x, block, work.tile, frame)
        body.copy_lines(x, block, work.tile)


def transform_step(body: BodyExecutor, work: PrepareStep) -> None:
    """One step of a transform; its border is cleared before the first, and filled by the last."""
    recipe = body.recipe
    if work.step == 0 and work.frame == 0 and not recipe.completes:
        body.clear_transformed(work)
    body.transform(work)
    if work.step == len(recipe.steps) - 1 and work.frame == recipe.v_frames - 1:
        body.fill_columns(work)
