"""Inputs on their way through a pipeline: loaded, and transformed, as `core.py` does it."""

from __future__ import annotations

from collections.abc import Iterable

from trnconv.forms.minimal.engine_clocks import EngineClocks
from trnconv.forms.minimal.on_chip import OnChip
from trnconv.forms.minimal.pipeline_parts import Preparation, Preparations
from trnconv.forms.minimal.recipe import Prepare, XLoad
from trnconv.forms.minimal.score import InWork, Score


class InputRun(EngineClocks):
    """The engines, and slots of inputs and transformed inputs."""

    def __init__(self, score: Score) -> None:
        super().__init__(score.machine, in_loop=score.rolled)
        self.score = score
        self.x = [[OnChip() for _ in score.ins] for _ in range(score.slots.x)]
        self.v = [[OnChip() for _ in range(score.m + 2)] for _ in range(score.slots.v)]
        self.completes = any(work.completed or work.scaled for work in score.ins)
        self.x_places = 0.0  # when offsets of a turn into x are there
        self.cleared: dict[tuple[int, int], float] = {}  # when borders of transformed inputs are
        self.made: dict[tuple[int, int, int], float] = {}  # when what early steps make is there

    def load_frames(self, loads: Iterable[XLoad]) -> None:
        """Input frames, zeros where there is none."""
        for load in loads:
            for work, tile in zip(self.score.ins, self.x[load.slot], strict=True):
                if self.score.missing[load.frame]:
                    tile.ready = self.on_gpsimd(work.zeros, tile.free)
                    continue
                cleared = [self.on_gpsimd(elems, tile.free) for elems in work.x_cleared]
                ready = max(tile.free, self.x_places, *cleared)
                tile.ready = max(self.move(part, "load", ready) for part in work.loads)

    def preparations(self, prepares: Iterable[Prepare]) -> Preparations:
        """In the kernel's order (`core.PrepareSteps`)."""
        tiles, count = range(len(self.score.ins)), self.score.early_steps
        early: list[Preparation] = []
        others: list[Preparation] = []
        for prepare in prepares:
            if self.completes:
                (early if count else others).extend(Preparation(prepare, n, -1) for n in tiles)
            for tile in tiles:
                before = len(early)
                early += [Preparation(prepare, tile, step) for step in range(count)]
                for step in range(count, len(self.score.steps)):
                    needs = self.score.steps[step].needs
                    after = before + needs if needs or self.completes else 0
                    others.append(Preparation(prepare, tile, step, after))
        return Preparations(early, others)

    def prepare(self, work: Preparation) -> None:
        """One step."""
        of = self.score.ins[work.tile]
        if work.step < 0:
            self._clear(work, of)
            for slot, frame in zip(work.prepare.fresh, work.prepare.frames, strict=True):
                self._complete(of, self.x[slot][work.tile], exists=not self.score.missing[frame])
            return
        step = self.score.steps[work.step]
        v = self.v[work.prepare.slot][step.product]  # -1, scratch: as the last one
        if work.step == 0 and not self.completes:
            self._clear(work, of)
        slot = work.prepare.slot
        inputs = [self.x[work.prepare.x_slots[number]][work.tile] for number in step.inputs]
        made = [self.made[slot, work.tile, product] for product in step.made]
        cleared = self.cleared.get((slot, work.tile), 0.0)  # a step writes around the border
        ready = max((v.free, cleared, *(x.ready for x in inputs), *made))
        if work.step < self.score.early_steps:
            placed = self.gpsimd(self.costs.gpsimd(of.step), ready)
            self.made[slot, work.tile, step.product] = placed.visible + self.hop_ns
        else:
            cycles = of.step * (2 if self.score.wide else 1)
            placed = self.vector(self.costs.vector(cycles, psum=False), ready)
        for x in inputs:
            x.free = max(x.free, placed.released + self.hop_ns)
        v.ready = max(v.ready, placed.visible + self.hop_ns)
        if work.step == len(self.score.steps) - 1:
            self._fill(work, of)

    def _clear(self, work: Preparation, of: InWork) -> None:
        """The border of transformed inputs, all products."""
        slot, free = work.prepare.slot, max(product.free for product in self.v[work.prepare.slot])
        for elems in of.v_cleared:
            self.cleared[slot, work.tile] = self.on_gpsimd(elems, free)

    def _fill(self, work: Preparation, of: InWork) -> None:
        """Columns that padding repeats, all products."""
        products = self.v[work.prepare.slot]
        for elems in of.filled:
            ready = max(product.ready for product in products)
            filled = self.scalar(self.costs.scalar(elems), ready)
            for product in products:
                product.ready = max(product.ready, filled.visible + self.hop_ns)

    def _complete(self, of: InWork, x: OnChip, *, exists: bool) -> None:
        if of.scaled and exists:
            scaled = self.scalar(self.costs.scalar(of.scaled), x.ready)
            x.ready = scaled.visible + self.hop_ns
        for elems in of.completed:
            x.ready = self.on_gpsimd(elems, x.ready)
