"""Inputs on their way through a pipeline: steps of loads and transforms, placed on clocks."""

from __future__ import annotations

from trnconv.algorithms.winograd.engine_clocks import EngineClocks
from trnconv.algorithms.winograd.on_chip import OnChip
from trnconv.algorithms.winograd.recipe import PrepareStep, Unit
from trnconv.algorithms.winograd.sbuf import PAIRED_TILES
from trnconv.algorithms.winograd.steady_state import OutWork, SteadyState, StepWork


class InputRun(EngineClocks):
    """The engines, and slots of inputs and transformed inputs."""

    def __init__(self, steady: SteadyState) -> None:
        super().__init__(steady.machine, in_loop=steady.looped)
        self.recipe = steady
        self.scales_inputs = steady.scaled
        held = steady.x_tiles or len(steady.in_tiles)
        self.x = [[OnChip() for _ in range(held)] for _ in range(steady.slots.x)]
        self.v = [[OnChip() for _ in range(steady.outputs + 2)] for _ in range(steady.slots.v)]
        self.paired = [OnChip() for _ in range(PAIRED_TILES)]
        self.multiplied = 0.0  # the end of the last product
        self.x_places = 0.0  # when offsets of an iteration into x are there
        self.cleared: dict[tuple[int, int], float] = {}  # when borders of transformed inputs are
        # When a tile of a product's is there, by slot, product and tile of channels.
        self.transformed: dict[tuple[int, int, int], float] = {}
        # When what early steps make is there, by slot, tile, frame and product.
        self.made: dict[tuple[int, int, int, int], float] = {}

    def is_missing(self, block: int, frame: int) -> bool:
        """Whether a frame of a block is padding; all blocks are alike."""
        del block
        return self.recipe.missing[frame]

    def input_tile(self, block: int, tile: int, slot: int) -> OnChip:
        """An input slot of a tile of channels, which may be one that tiles use in turn."""
        del block
        return self.x[slot][tile % len(self.x[slot])]

    def zero_input(self, x: OnChip, tile: int) -> None:
        """A frame that does not exist, of a tile of channels."""
        x.ready = self.on_gpsimd(self.recipe.in_tiles[tile].zeros, x.free)

    def clear_borders(self, x: OnChip, block: int, tile: int) -> None:
        """Padding of inputs."""
        del block
        x.ready = 0.0
        for elems in self.recipe.in_tiles[tile].x_cleared:
            x.ready = max(x.ready, self.on_gpsimd(elems, x.free))

    def load_input(self, x: OnChip, block: int, tile: int, frame: int) -> None:
        """What exists of a frame; late loads do not wait for borders beside theirs."""
        del block, frame
        ready = max(x.free, self.x_places)
        if not self.recipe.x_tiles:
            ready = max(ready, x.ready)
        for part in self.recipe.in_tiles[tile].loads:
            x.ready = max(x.ready, self.move(part, "load", ready))

    def scale_input(self, x: OnChip, block: int, tile: int, frame: int) -> None:
        """The start, in place."""
        del block, frame
        scaled = self.scalar(self.costs.scalar(self.recipe.in_tiles[tile].scaled), x.ready)
        x.ready = scaled.visible + self.hop_ns

    def copy_lines(self, x: OnChip, block: int, tile: int) -> None:
        """Channels once more on other lines."""
        del block
        for elems in self.recipe.in_tiles[tile].completed:
            x.ready = self.on_gpsimd(elems, x.ready)

    def clear_transformed(self, work: PrepareStep) -> None:
        """The border of transformed inputs, all products."""
        slot = work.prepare.slot
        free = max(product.free for product in self.v[slot])
        for elems in self.recipe.in_tiles[work.tile].v_cleared:
            self.cleared[slot, work.tile] = self.on_gpsimd(elems, free)

    def transform(self, work: PrepareStep) -> None:
        """One step of a transform, which writes inside the border."""
        steady, slot, tile, frame = self.recipe, work.prepare.slot, work.tile, work.frame
        step, elems = steady.steps[work.step], steady.in_tiles[tile].step
        v = self.v[slot][step.product]  # -1, scratch: as the last one
        inputs = self._inputs_of(work, step)
        ready = max(v.free, self.cleared.get((slot, tile), 0.0))
        for x in inputs:
            ready = max(ready, x.ready)
        for product in step.made:
            ready = max(ready, self.made[slot, tile, frame, product])
        if work.step < steady.gpsimd_steps:
            placed = self.gpsimd(self.costs.gpsimd(elems), ready)
            self.made[slot, tile, frame, step.product] = placed.visible + self.hop_ns
        else:
            cycles = elems * (2 if steady.wide else 1)
            placed = self.vector(self.costs.vector(cycles, psum=False), ready)
        self.used(placed.released, *inputs)
        self._note(v, (slot, step.product, tile), placed.visible + self.hop_ns)

    def _inputs_of(self, work: PrepareStep, step: StepWork) -> list[OnChip]:
        """What a step of a transform reads: inputs, or a pair of them."""
        if self.recipe.stages > 1:
            return [self._paired(work.tile)] if step.inputs else []
        slots = work.prepare.x_slots
        return [self.input_tile(0, work.tile, slots[work.frame + n]) for n in step.inputs]

    def _paired(self, tile: int) -> OnChip:
        return self.paired[tile % len(self.paired)]

    def pair_up(self, work: PrepareStep) -> None:
        """Two frames of a tile of channels."""
        inputs = [self.input_tile(0, work.tile, slot) for slot in work.prepare.x_slots]
        dst, elems = self._paired(work.tile), self.recipe.in_tiles[work.tile].paired
        ready = max(dst.free, *(x.ready for x in inputs))
        if self.recipe.gpsimd_pairs:
            placed = self.gpsimd(self.costs.gpsimd(elems), ready)
        else:
            placed = self.vector(self.costs.vector(elems, psum=False), ready)
        self.used(placed.released, *inputs)
        dst.ready = placed.visible + self.hop_ns

    def fill_columns(self, work: PrepareStep) -> None:
        """Columns that padding repeats, all products."""
        slot = work.prepare.slot
        products = self.v[slot]
        for elems in self.recipe.in_tiles[work.tile].filled:
            ready = max(product.ready for product in products)
            filled = self.scalar(self.costs.scalar(elems), ready)
            for number, product in enumerate(products):
                self._note(product, (slot, number, work.tile), filled.visible + self.hop_ns)

    def inputs_ready(
        self, tile: OutWork, unit: Unit, product: int, part: tuple[int, int], busy_ns: float
    ) -> float:
        """When matmuls of one of several parts of a product may begin, and then go on.

        The last ones need not be there before the first ones: those of later tiles and frames.
        """
        slots, (number, parts) = unit.reads, part
        latest = max(self.v[slot][product].ready for slot in slots)
        if latest <= self.multiplied:
            return latest
        return max(
            self.transformed[slots[work.read], product, work.tile]
            - max(0.0, work.begins * parts - number) * busy_ns
            for work in tile.reads
            if work.begins * parts < number + 1
        )

    def _note(self, v: OnChip, key: tuple[int, int, int], ready: float) -> None:
        """When a tile of channels of a product's is there."""
        self.transformed[key] = ready
        v.ready = max(v.ready, ready)
