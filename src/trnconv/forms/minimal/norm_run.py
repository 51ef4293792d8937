"""The norm of a unit's outputs on its way through a pipeline: the order of `norm_steps`."""

from __future__ import annotations

from collections.abc import Iterator

from trnconv.forms.minimal.engine_clocks import EngineClocks
from trnconv.forms.minimal.norm_steps import STAGES
from trnconv.forms.minimal.on_chip import OnChip, Pool
from trnconv.forms.minimal.score import NormWork


class NormRun:
    """Output buffers of a unit, tiles that steps use in turn, and how far each stage has come."""

    def __init__(self, work: NormWork, tiles: int) -> None:
        self.work = work
        slots, each = range(work.slots), range(tiles)
        self._squares = [[OnChip() for _ in each] for _ in slots]
        self._products = [[OnChip() for _ in each] for _ in slots]
        self.begin([])

    def begin(self, outs: list[OnChip]) -> None:
        """Another unit; without buffers, none."""
        self.outs = outs
        self.done = [0] * STAGES
        self.sums: list[OnChip] = []

    @property
    def is_done(self) -> bool:
        """Whether all steps are."""
        return self.done[-1] == len(self.work.steps)

    def held(self, step: int) -> tuple[list[OnChip], list[OnChip]]:
        """Squares and products of a step, tile by tile."""
        slot = step % self.work.slots
        return self._squares[slot], self._products[slot]

    def share(self, pauses: int, all_pauses: int) -> Iterator[int]:
        """Stages that have a step to do when so many of all pauses have passed."""
        steps, span = len(self.work.steps), max(1, all_pauses - STAGES)
        for stage in reversed(range(STAGES)):
            until = min(steps, steps * max(0, pauses - stage) // span, self._ready(stage))
            while self.done[stage] < until:
                yield stage

    def rest(self) -> Iterator[int]:
        """The same until all is done, a step of each in turn."""
        while not self.is_done:
            for stage in reversed(range(STAGES)):
                if self.done[stage] < self._ready(stage):
                    yield stage

    def advance(self, engines: EngineClocks, banks: Pool, stage: int) -> None:
        """One more step of a stage, after what makes room for it, as `norm_steps` has them."""
        room = (self.work.slots, self.work.sums, self.work.slots)
        for later in range(STAGES - 1, stage, -1):
            if self.done[later - 1] - self.done[later] == room[later - 1]:
                self._run(engines, banks, later)
        self._run(engines, banks, stage)

    def _run(self, engines: EngineClocks, banks: Pool, stage: int) -> None:
        step, self.done[stage] = self.done[stage], self.done[stage] + 1
        squares, products = self.held(step)
        positions = self.work.steps[step]
        if stage == 0:
            for out, square in zip(self.outs, squares, strict=True):
                placed = engines.scalar(
                    engines.costs.scalar(positions), max(out.ready, square.free)
                )
                square.written(placed.visible + engines.hop_ns)
        elif stage == 1:
            bank = banks.take()
            ready = max(bank.free, *(square.ready for square in squares))
            placed = engines.tensor(engines.costs.sums(self.work.matmuls, positions), ready)
            bank.written(placed.visible + engines.hop_ns)
            engines.used(placed.released, *squares)
            self.sums.append(bank)
        elif stage == 2:
            if self.work.by_gpsimd:
                self._multiply_by_root(engines, self.sums[step], products, positions)
            else:
                self._multiply(engines, self.sums[step], products, positions)
            banks.give(self.sums[step])
        else:
            for out, product in zip(self.outs, products, strict=True):
                ready = max(product.ready, out.free)
                placed = engines.scalar(engines.costs.scalar(positions), ready)
                engines.used(placed.released, product)
                engines.written(out, placed.visible)

    def _multiply(
        self, engines: EngineClocks, bank: OnChip, products: list[OnChip], positions: int
    ) -> None:
        for product in products:
            ready = max(bank.vector_ready, product.free)
            placed = engines.vector(engines.costs.vector(positions, psum=True), ready)
            engines.used(placed.released, bank)
            product.written(placed.visible + engines.hop_ns)

    def _multiply_by_root(
        self, engines: EngineClocks, bank: OnChip, products: list[OnChip], positions: int
    ) -> None:
        roots = products[0]
        placed = engines.scalar(engines.costs.scalar(positions), max(bank.ready, roots.free))
        engines.used(placed.released, bank)
        ready = placed.visible + engines.hop_ns
        for product in reversed(products):
            placed = engines.gpsimd(engines.costs.gpsimd(positions), max(ready, product.free))
            product.written(placed.visible + engines.hop_ns)

    def _ready(self, stage: int) -> int:
        return self.done[stage - 1] if stage else len(self.work.steps)
