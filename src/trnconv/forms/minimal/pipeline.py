"""How the engines of a fast kernel keep each other waiting: its stream in large steps.

Sums of busy times do not tell what F(m, 3) takes: a bank is read while it still grows, transforms
of the next unit are squeezed between chains, and inputs, residual and streamed weights share a
queue. So the kernel's order of work (`kernel.py`, `chains.py`) is followed on nkisim's clocks,
where a step is all matmuls of a product, or one instruction of another engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from trnconv.ask.ends import BEFORE, IDENTITY
from trnconv.forms.minimal.filler import EARLIER, LAST_PAUSES
from trnconv.forms.minimal.input_run import InputRun
from trnconv.forms.minimal.norm_run import NormRun
from trnconv.forms.minimal.on_chip import OnChip, Pool, Rotation
from trnconv.forms.minimal.pipeline_parts import OutputRun, Preparations
from trnconv.forms.minimal.recipe import Prepare, Unit
from trnconv.forms.minimal.score import OutWork, Score, TransferWork
from trnconv.forms.minimal.stages import FIRST, HELD, SECOND


class Pipeline(InputRun):
    """One core at work. Times are of the default reading, in ns from a drained start."""

    def __init__(self, score: Score) -> None:
        super().__init__(score)
        slots = score.slots
        self.banks = Pool(score.machine.psum_banks - (score.stages > 1))
        self.copies, self.outs = Rotation(slots.copies), Rotation(slots.outs)
        self.residuals, self.weights = Rotation(slots.residuals), Rotation(slots.weights)
        self.kept_weights = 0.0  # when they are there
        self.y_places = 0.0  # when offsets of a turn into y are there
        self.begun: float | None = None  # the start of the first product
        self.block_ends: list[float] = []  # of the last product of each block
        self.done = 0.0  # the end of everything that was waited for
        self.pauses = self.all_pauses = self.prepared = self.early = 0
        self.works = Preparations([], [], [])
        self.norm = None if score.norm is None else NormRun(score.norm, len(score.outs))

    def begin(self) -> None:
        """What the first unit needs, with nothing to hide it behind."""
        body = self.score.body
        self.load_frames(body.first_loads)
        works = self.preparations(body.first_prepares)
        for work in works.first:
            self.prepare(work)
        ahead = len(works.early) if self.score.steps_ahead else 0
        for work in works.early[:ahead]:
            self.prepare(work)
        for work in works.others:
            for early in works.early[ahead : work.after]:
                self.prepare(early)
            ahead = max(ahead, work.after)
            self.prepare(work)
        self.done = max(product.ready for products in self.v for product in products)

    def load_weights(self) -> None:
        """All of them, if they stay."""
        if self.score.kept_weights is not None:
            self.done = self.kept_weights = self.move(self.score.kept_weights, "load", 0.0)

    def begin_turn(self) -> None:
        """Offsets of the blocks of a turn; those into y are loaded for the first store."""
        self.x_places = self.move(TransferWork(1, 4), "load", 0.0)
        self.y_places = -1.0

    def run_body(self, left: int) -> float:
        """The units of a body, if so many blocks are left; when the last product has ended."""
        for unit in self.score.body.units:
            if unit.block < left:
                self.load_frames(load for load in unit.loads if load.block < left)
                self._run_unit(unit, [prepare for prepare in unit.prepares if prepare.block < left])
                if unit.number == len(self.score.wanted) - 1:
                    self.block_ends.append(self.multiplied)
        return self.multiplied

    def _run_unit(self, unit: Unit, prepares: Iterable[Prepare]) -> None:
        """As `kernel.run_unit`: a chain of F(4,3) ends after the next one has begun."""
        self.works = self.preparations(prepares)
        for work in self.works.first:
            self.prepare(work)
        self.pauses = self.prepared = self.early = 0
        chains = sum(len(tile.rectangles) for tile in self.score.outs)
        self.all_pauses = max(1, chains * self.score.m - LAST_PAUSES)
        if not self.score.wanted[unit.number]:
            self.all_pauses = 1
            self._pause()
            return
        before: OutputRun | None = None
        outs = []
        stored = self.score.stored[unit.number]
        for tile in self.score.outs:
            out = self.outs.take() if stored else None
            if out is not None:
                out.ready = 0.0
                outs.append(out)
            added = self._residual(tile) if stored else None
            for number, elems in enumerate(tile.rectangles):
                goal = OutputRun(tile, elems, unit, self.score.wanted[unit.number], out)
                goal.added = added
                goal.completes = number == len(tile.rectangles) - 1
                self._begin_chain(goal)
                if before is not None:
                    self._finish(before)
                before = goal
        if before is not None:
            self._finish(before)
        if stored:
            self.complete_norm()
            if self.norm is not None:
                self.norm.begin(outs)

    def _residual(self, tile: OutWork) -> OnChip | None:
        if not self.score.residual:
            return None
        buffer = self.residuals.take()
        self._load_y_places()
        buffer.ready = self.move(tile.store, "load", max(buffer.free, self.y_places))
        return buffer

    def _load_y_places(self) -> None:
        if self.y_places < 0:
            self.y_places = self.move(TransferWork(1, 4), "load", 0.0)

    def _begin_chain(self, goal: OutputRun) -> None:
        if self.score.m > 2:
            self._middle_outputs(goal)
        elif self.score.midgroup:
            self._two_outputs(goal)
        else:
            self._two_outputs_of_whole_sums(goal)

    def _finish(self, goal: OutputRun) -> None:
        if self.score.m > 2:
            self._outer_outputs(goal)
        stores = self.score.norm is None or self.score.norm.keeps
        if goal.completes and goal.out is not None and stores:
            self._load_y_places()
            ready = max(goal.out.ready, self.y_places)
            self.done = goal.out.free = self.move(goal.tile.store, "store", ready)

    def _two_outputs(self, goal: OutputRun) -> None:
        left, right = self._take(goal, 2)
        p1, p2 = self.copies.take(), self.copies.take()
        self._multiply(goal, left, 1)
        if 1 in goal.wanted:
            self._copy(p1, left, goal.elems)
        self._multiply(goal, right, 2)
        if 1 in goal.wanted:
            self._add_first(goal, 1, p1, p1)
        if 0 in goal.wanted:
            self._copy(p2, right, goal.elems)
            self._add_first(goal, 0, p2, p2)
            self._multiply(goal, left, 0)
            self._end(goal, 0, left, p2, p2)
        self._pause()
        if 1 in goal.wanted:
            self._multiply(goal, right, 3)
            self._end(goal, 1, right, p1, p1)
        self._give_back(goal)
        self._pause()

    def _two_outputs_of_whole_sums(self, goal: OutputRun) -> None:
        first, second, third, fourth = self._take(goal, 4)
        p1, both, between = (self.copies.take() for _ in range(3))
        self._multiply(goal, first, 1)
        self._copy(p1, first, goal.elems)
        self._multiply(goal, second, 2)
        if 0 in goal.wanted:
            self._add(both, second, p1, goal.elems)
            self._add_first(goal, 0, both, both)
            self._multiply(goal, third, 0)
            self._end(goal, 0, third, both, both)
        self._pause()
        if 1 in goal.wanted:
            self._add(between, second, p1, goal.elems)
            self._add_first(goal, 1, between, between)
            self._multiply(goal, fourth, 3)
            self._end(goal, 1, fourth, between, between)
        self._give_back(goal)
        self._pause()

    def _middle_outputs(self, goal: OutputRun) -> None:
        a, b = self._take(goal, 2)
        q, p3, twice, half = (self.copies.take() for _ in range(4))
        self._multiply(goal, b, 3)
        self._copy(p3, b, goal.elems)
        self._multiply(goal, a, 1)
        self._copy(q, a, goal.elems)
        self._multiply(goal, b, 4)
        self._copy(twice, b, goal.elems)
        self._copy(half, b, goal.elems)
        if 2 in goal.wanted:
            self._add_first(goal, 2, twice, twice)
        if 0 in goal.wanted:
            self._add_first(goal, 0, half, half)
        self._pause()
        self._add(b, b, p3, goal.elems)
        self._multiply(goal, a, 2)
        self._add(q, a, q, goal.elems)
        if 2 in goal.wanted:
            self._end(goal, 2, a, twice, twice)
        added = self._add_first(goal, 1, p3, q) if 1 in goal.wanted else q
        if 3 in goal.wanted:
            self._add_first(goal, 3, q, q)
        self._pause()
        if 1 in goal.wanted:
            self._end(goal, 1, b, added, p3)
        goal.kept = [a, b, q, half]

    def _outer_outputs(self, goal: OutputRun) -> None:
        a, b, q, half = goal.kept
        (c,), g = self._take(goal, 1), self.copies.take()
        if 3 in goal.wanted:
            self._multiply(goal, c, 5)
            self._add(g, c, q, goal.elems)
            self._end(goal, 3, b, g, g)
        self._pause()
        if 0 in goal.wanted:
            self._multiply(goal, a, 0)
            self._end(goal, 0, a, half, half)
        self._give_back(goal)
        self._pause()

    def _take(self, goal: OutputRun, count: int) -> list[OnChip]:
        taken = [self.banks.take() for _ in range(count)]
        goal.banks += taken
        return taken

    def _give_back(self, goal: OutputRun) -> None:
        self.banks.give(*goal.banks)
        goal.banks = []

    def _pause(self) -> None:
        """A share of the steps that prepare the next unit."""
        self.pauses += 1
        early, others = len(self.works.early), len(self.works.others)
        if self.score.steps_ahead:
            self._prepare_early(min(early, EARLIER * early * self.pauses // self.all_pauses))
        late = min(self.score.late_pauses, self.all_pauses - 1)
        until = min(others, others * max(0, self.pauses - late) // (self.all_pauses - late))
        while self.prepared < until:
            work = self.works.others[self.prepared]
            self._prepare_early(work.after)
            self.prepare(work)
            self.prepared += 1
        self._share_norm()

    def _prepare_early(self, until: int) -> None:
        while self.early < until:
            self.prepare(self.works.early[self.early])
            self.early += 1

    def _share_norm(self) -> None:
        """A share of the norm of the unit before."""
        if self.norm is not None and self.norm.outs:
            for stage in self.norm.share(self.pauses, self.all_pauses):
                self.norm.advance(self, self.banks, stage)
            if self.norm.is_done:
                self.complete_norm()

    def complete_norm(self) -> None:
        """What is left of it, and its stores."""
        norm = self.norm
        if norm is None or not norm.outs:
            return
        for stage in norm.rest():
            norm.advance(self, self.banks, stage)
        self._load_y_places()
        for out, tile in zip(norm.outs, self.score.outs, strict=True):
            ready = max(out.ready, self.y_places)
            self.done = out.free = self.move(tile.store, "store", ready)
        norm.outs = []

    def _multiply(self, goal: OutputRun, bank: OnChip, product: int) -> None:
        """One product of a rectangle; streamed weights come in parts."""
        reads = [self.v[slot][product] for slot in goal.unit.reads]
        ready = max(bank.free, self.kept_weights)
        tile, share = goal.tile, self._share(goal.unit)
        if self.score.kept_weights is None:
            parts = tile.weights[: ceil(share * len(tile.weights))]
            matmuls = tile.matmuls * (share / len(parts))
            cost = self.costs.product(matmuls, goal.elems, tile.share)
            for number, part in enumerate(parts):
                weights = self.weights.take()
                loaded = self.move(part, "load", weights.free)
                there = self.inputs_ready(goal, product, (number, len(parts)), cost.busy_ns)
                placed = self.tensor(cost, max(ready, loaded, there))
                weights.free = placed.released + self.hop_ns
        else:
            cost = self.costs.product(tile.matmuls * share, goal.elems, tile.share)
            there = self.inputs_ready(goal, product, (0, 1), cost.busy_ns)
            placed = self.tensor(cost, max(ready, there))
        if self.begun is None:
            self.begun = placed.start
        bank.written(placed.visible + self.hop_ns)
        for v in reads:
            v.free = max(v.free, placed.released + self.hop_ns)
        self.multiplied = placed.busy_end

    def _share(self, unit: Unit) -> float:
        """The share of a unit's frames that are not padding; tiles of frames mix them."""
        frames, missing = len(unit.reads), self.score.missing
        zeros = sum(missing[unit.number + n] for n in range(frames)) if frames > 1 else 0
        return 1 - zeros / frames

    def _copy(self, dst: OnChip, bank: OnChip, elems: int) -> None:
        placed = self.scalar(self.costs.scalar(elems), max(bank.ready, dst.free))
        self.used(placed.released, bank)
        dst.written(placed.visible + self.hop_ns)

    def _add(self, dst: OnChip, bank: OnChip, other: OnChip, elems: int) -> None:
        ready = max(bank.vector_ready, other.vector_ready, dst.free)
        placed = self.vector(self.costs.vector(elems, psum=True), ready)
        self.used(placed.released, bank, other)
        dst.ready, dst.vector_ready = placed.visible + self.hop_ns, placed.visible

    def _end(
        self, goal: OutputRun, output: int, bank: OnChip, other: OnChip, between: OnChip
    ) -> None:
        """An output, or what a stage holds, which no other engine reads."""
        stage = goal.unit.number % self.score.stages
        if self.score.stages == 1:
            self._end_output(goal, output, bank, other, between)
            return
        cost, total = self.costs.vector(goal.elems, psum=True), OnChip()
        placed = self.vector(cost, max(bank.vector_ready, other.vector_ready))
        self.used(placed.released, bank, other)
        total.vector_ready = placed.visible
        if stage == SECOND:
            for _ in range(HELD):
                self.vector(cost, total.vector_ready)
        elif stage != FIRST:
            self._end_output(goal, output, total, total, between)

    def _end_output(
        self, goal: OutputRun, output: int, bank: OnChip, other: OnChip, between: OnChip
    ) -> None:
        """Phase by phase of stacked columns; with more to do, by way of parts of `between`."""
        out = goal.out
        if out is None:
            return
        added = None if output in self.score.gpsimd_outputs else goal.added
        if self.score.end.activation != IDENTITY or added is not None:
            self._add(between, bank, other, goal.elems)
            for part in between.parts(goal.tile.phases):
                self._finish_output(goal, out, part, added)
                between.free = max(between.free, part.free)
            return
        for _ in range(goal.tile.phases):
            ready = max(bank.vector_ready, other.vector_ready, out.free)
            placed = self.vector(self.costs.vector(goal.elems, psum=True), ready)
            self.used(placed.released, bank, other)
            self.written(out, placed.visible)

    def _add_first(self, goal: OutputRun, output: int, dst: OnChip, other: OnChip) -> OnChip:
        """dst = other + residual by the GpSimd engine, if that is its work; else other as it is."""
        if goal.added is None or output not in self.score.gpsimd_outputs:
            return other
        ready = max(other.ready, goal.added.ready, dst.free)
        for _ in range(goal.tile.phases):
            placed = self.gpsimd(self.costs.gpsimd(goal.elems), ready)
            self.used(placed.released, goal.added, other)
            dst.written(placed.visible + self.hop_ns)
        return dst

    def _finish_output(
        self, goal: OutputRun, out: OnChip, value: OnChip, added: OnChip | None
    ) -> None:
        end = self.score.end
        if added is None:
            self._activate(out, value, goal)
        elif end.activation == IDENTITY:
            self._add_residual(out, value, added, goal)
        elif end.residual == BEFORE:
            self._add_residual(value, value, added, goal)
            self._activate(out, value, goal)
        else:
            self._activate(value, value, goal)
            self._add_residual(out, value, added, goal)

    def _activate(self, dst: OnChip, value: OnChip, goal: OutputRun) -> None:
        placed = self.scalar(self.costs.scalar(goal.elems), max(value.ready, dst.free))
        self.used(placed.released, value)
        self.written(dst, placed.visible)

    def _add_residual(self, dst: OnChip, value: OnChip, added: OnChip, goal: OutputRun) -> None:
        ready = max(value.vector_ready, added.ready, dst.free)
        placed = self.vector(self.costs.vector(2 * goal.elems, psum=False), ready)
        self.used(placed.released, value, added)
        self.written(dst, placed.visible)
