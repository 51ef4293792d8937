"""Inputs on their way through a pipeline: loaded, and transformed, as `core.py` does it."""

from __future__ import annotations

from collections.abc import Iterable

from trnconv.forms.minimal.engine_clocks import EngineClocks
from trnconv.forms.minimal.on_chip import OnChip
from trnconv.forms.minimal.pipeline_parts import OutputRun, Preparation, Preparations
from trnconv.forms.minimal.prepare_steps import COMPLETE, LOAD, PAIR_UP
from trnconv.forms.minimal.recipe import Prepare, XLoad
from trnconv.forms.minimal.sbuf import PAIRED_TILES
from trnconv.forms.minimal.score import InWork, Score, StepWork


class InputRun(EngineClocks):
    """The engines, and slots of inputs and transformed inputs."""

    def __init__(self, score: Score) -> None:
        super().__init__(score.machine, in_loop=score.rolled)
        self.score = score
        held = score.x_tiles or len(score.ins)
        self.x = [[OnChip() for _ in range(held)] for _ in range(score.slots.x)]
        self.v = [[OnChip() for _ in range(score.m + 2)] for _ in range(score.slots.v)]
        self.paired = [OnChip() for _ in range(PAIRED_TILES)]
        self.completes = any(work.completed or work.scaled for work in score.ins)
        self.multiplied = 0.0  # the end of the last product
        self.x_places = 0.0  # when offsets of a turn into x are there
        self.cleared: dict[tuple[int, int], float] = {}  # when borders of transformed inputs are
        # When a tile of a product's is there, by slot, product and tile of channels.
        self.transformed: dict[tuple[int, int, int], float] = {}
        # When what early steps make is there, by slot, tile, frame and product.
        self.made: dict[tuple[int, int, int, int], float] = {}

    def load_frames(self, loads: Iterable[XLoad]) -> None:
        """Input frames of all tiles of channels."""
        for load in loads:
            for number in range(len(self.score.ins)):
                self._load_tile(number, load.frame, load.slot)

    def _load_tile(self, number: int, frame: int, slot: int) -> None:
        """A frame of a tile of channels, zeros where there is none."""
        work, tile = self.score.ins[number], self.input_of(number, slot)
        if self.score.missing[frame]:
            tile.ready = self.on_gpsimd(work.zeros, tile.free)
            return
        cleared = [self.on_gpsimd(elems, tile.free) for elems in work.x_cleared]
        ready = max(tile.free, self.x_places)
        if not self.score.x_tiles:  # late loads do not wait for rows beside theirs
            ready = max(ready, *cleared, 0.0)
        moved = [self.move(part, "load", ready) for part in work.loads]
        tile.ready = max(*cleared, *moved, 0.0)

    def input_of(self, tile: int, slot: int) -> OnChip:
        """An input slot of a tile of channels, which may be one that tiles use in turn."""
        return self.x[slot][tile % len(self.x[slot])]

    def preparations(self, prepares: Iterable[Prepare]) -> Preparations:
        """In the kernel's order (`prepare_steps.py`)."""
        tiles, count = range(len(self.score.ins)), self.score.early_steps
        works = Preparations([], [], [])
        if self.score.x_tiles:
            self._list_with_loads(works, prepares)
            return works
        for prepare in prepares:
            if self.completes:
                first = works.early if count and self.score.steps_ahead else works.others
                for tile in tiles:
                    first.extend(self._completion(prepare, tile))
            if self.score.stages > 1:
                self._list_pairs(works, prepare, [])
                continue
            for tile in tiles:
                self._list_steps(works, prepare, tile, [])
        return works

    def _list_with_loads(self, works: Preparations, prepares: Iterable[Prepare]) -> None:
        tiles, held = range(len(self.score.ins)), self.score.x_tiles
        loads = [Preparation(prepare, tile, 0, LOAD) for prepare in prepares for tile in tiles]
        works.first.extend(loads[:held])
        if self.score.stages > 1:
            for prepare in prepares:
                self._list_pairs(works, prepare, loads)
            return
        for number, load in enumerate(loads):
            if self.completes:
                works.others.extend(self._completion(load.prepare, load.tile))
            amid = loads[number + held - 1 : number + held] if number else []
            self._list_steps(works, load.prepare, load.tile, amid)

    def _list_pairs(self, works: Preparations, prepare: Prepare, loads: list[Preparation]) -> None:
        tiles = len(self.score.ins)
        works.others.extend(self._pair_of(prepare, 0, loads))
        for tile in range(tiles):
            amid = self._pair_of(prepare, tile + 1, loads) if tile + 1 < tiles else []
            self._list_steps(works, prepare, tile, amid)

    def _pair_of(self, prepare: Prepare, tile: int, loads: list[Preparation]) -> list[Preparation]:
        completes = self._completion(prepare, tile) if loads and self.completes else []
        later = tile - 1 + self.score.x_tiles
        return [
            *(loads[later : later + 1] if tile else []),
            *completes,
            Preparation(prepare, tile, 0, PAIR_UP),
        ]

    def _completion(self, prepare: Prepare, tile: int) -> list[Preparation]:
        count = max(1, len(prepare.fresh)) if self.score.late_pauses else 1
        return [Preparation(prepare, tile, frame, COMPLETE) for frame in range(count)]

    def _list_steps(
        self, works: Preparations, prepare: Prepare, tile: int, amid: list[Preparation]
    ) -> None:
        count, every = self.score.early_steps, len(self.score.steps)
        half = self.score.v_frames * every // 2
        for frame in range(self.score.v_frames):
            before = len(works.early)
            for step in range(every):
                works.others.extend(amid if frame * every + step == half else [])
                if step < count:
                    works.early.append(Preparation(prepare, tile, frame, step))
                    continue
                needs = self.score.steps[step].needs
                after = before + needs if needs or self.completes else 0
                after = after if self.score.steps_ahead else before + count
                works.others.append(Preparation(prepare, tile, frame, step, after))

    def prepare(self, work: Preparation) -> None:
        """One step."""
        of = self.score.ins[work.tile]
        if work.step == LOAD:
            for slot, frame in zip(work.prepare.fresh, work.prepare.frames, strict=True):
                self._load_tile(work.tile, frame, slot)
            return
        if work.step == COMPLETE:
            new = list(zip(work.prepare.fresh, work.prepare.frames, strict=True))
            if work.frame == 0:
                self._clear(work, of)
            if self.score.late_pauses:
                new = new[work.frame : work.frame + 1]
            for slot, frame in new:
                exists = not self.score.missing[frame]
                self._complete(of, self.input_of(work.tile, slot), exists=exists)
            return
        if work.step == PAIR_UP:
            self._pair_up(work, of)
            return
        self._transform(work, of)

    def _transform(self, work: Preparation, of: InWork) -> None:
        """One step of a transform."""
        slot, tile, frame = work.prepare.slot, work.tile, work.frame
        step = self.score.steps[work.step]
        v = self.v[slot][step.product]  # -1, scratch: as the last one
        if work.step == 0 and frame == 0 and not self.completes:
            self._clear(work, of)
        inputs = self._inputs_of(work, step)
        # A step writes around the border.
        ready = max(v.free, self.cleared.get((slot, tile), 0.0))
        for x in inputs:
            ready = max(ready, x.ready)
        for product in step.made:
            ready = max(ready, self.made[slot, tile, frame, product])
        if work.step < self.score.early_steps:
            placed = self.gpsimd(self.costs.gpsimd(of.step), ready)
            self.made[slot, tile, frame, step.product] = placed.visible + self.hop_ns
        else:
            cycles = of.step * (2 if self.score.wide else 1)
            placed = self.vector(self.costs.vector(cycles, psum=False), ready)
        self.used(placed.released, *inputs)
        self._note(v, (slot, step.product, tile), placed.visible + self.hop_ns)
        if work.step == len(self.score.steps) - 1 and frame == self.score.v_frames - 1:
            self._fill(work, of)

    def _inputs_of(self, work: Preparation, step: StepWork) -> list[OnChip]:
        """What a step of a transform reads: inputs, or a pair of them."""
        if self.score.stages > 1:
            return [self._paired(work.tile)] if step.inputs else []
        slots = work.prepare.x_slots
        return [self.input_of(work.tile, slots[work.frame + number]) for number in step.inputs]

    def _paired(self, tile: int) -> OnChip:
        return self.paired[tile % len(self.paired)]

    def _pair_up(self, work: Preparation, of: InWork) -> None:
        """Two frames of a tile of channels."""
        inputs = [self.input_of(work.tile, slot) for slot in work.prepare.x_slots]
        dst = self._paired(work.tile)
        ready = max(dst.free, *(x.ready for x in inputs))
        if self.score.gpsimd_pairs:
            placed = self.gpsimd(self.costs.gpsimd(of.paired), ready)
        else:
            placed = self.vector(self.costs.vector(of.paired, psum=False), ready)
        self.used(placed.released, *inputs)
        dst.ready = placed.visible + self.hop_ns

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
            for number, product in enumerate(products):
                key = (work.prepare.slot, number, work.tile)
                self._note(product, key, filled.visible + self.hop_ns)

    def inputs_ready(
        self, goal: OutputRun, product: int, part: tuple[int, int], busy_ns: float
    ) -> float:
        """When matmuls of one of several parts of a product may begin, and then go on.

        The last ones need not be there before the first ones: those of later tiles and frames.
        """
        slots, (number, parts) = goal.unit.reads, part
        latest = max(self.v[slot][product].ready for slot in slots)
        if latest <= self.multiplied:
            return latest
        return max(
            self.transformed[slots[work.read], product, work.tile]
            - max(0.0, work.begins * parts - number) * busy_ns
            for work in goal.tile.reads
            if work.begins * parts < number + 1
        )

    def _note(self, v: OnChip, key: tuple[int, int, int], ready: float) -> None:
        """When a tile of channels of a product's is there."""
        self.transformed[key] = ready
        v.ready = max(v.ready, ready)

    def _complete(self, of: InWork, x: OnChip, *, exists: bool) -> None:
        if of.scaled and exists:
            scaled = self.scalar(self.costs.scalar(of.scaled), x.ready)
            x.ready = scaled.visible + self.hop_ns
        for elems in of.completed:
            x.ready = self.on_gpsimd(elems, x.ready)
