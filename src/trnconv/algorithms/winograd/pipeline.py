"""How the engines of a Winograd kernel keep each other waiting: its stream in large steps.

Sums of busy times do not tell what F(m, 3) takes: a bank is read while it still grows, transforms
of the next unit are squeezed between chains, and inputs, residual and streamed weights share a
queue. So the kernel's order of work (`order.py`) is run on nkisim's clocks, where a step is all
matmuls of a product, or one instruction of another engine.
"""

from __future__ import annotations

from math import ceil

from trnconv.algorithms.winograd.input_run import InputRun
from trnconv.algorithms.winograd.late_norm import LateNorm
from trnconv.algorithms.winograd.on_chip import OnChip, Part, Pool, Rotation
from trnconv.algorithms.winograd.order import run_body
from trnconv.algorithms.winograd.recipe import Unit
from trnconv.algorithms.winograd.steady_state import NormWork, OutWork, SteadyState, TransferWork


class Pipeline(InputRun):
    """One core at work. Times are of the default reading, in ns from a drained start."""

    def __init__(self, steady: SteadyState) -> None:
        super().__init__(steady)
        slots = steady.slots
        self.tiles = steady.outs
        self.banks = Pool(steady.machine.psum_banks - (steady.stages > 1))
        self.copies, self.outs = Rotation(slots.copies), Rotation(slots.outs)
        self.residuals, self.weights = Rotation(slots.residuals), Rotation(slots.weights)
        self.kept_weights = 0.0  # when they are there
        self.y_places = 0.0  # when offsets of an iteration into y are there
        self.begun: float | None = None  # the start of the first product
        self.block_ends: dict[int, float] = {}  # of the last product of each block of a body
        self.done = 0.0  # the end of everything that was waited for
        self.count = steady.blocks  # that are left
        self.late = LateNorm()
        steps = range(0 if steady.norm is None else steady.norm.slots)
        self.squares = [[OnChip() for _ in self.tiles] for _ in steps]  # that norms use in turn
        self.products = [[OnChip() for _ in self.tiles] for _ in steps]

    def load_weights(self) -> None:
        """All of them, if they stay."""
        if self.recipe.kept_weights is not None:
            self.done = self.kept_weights = self.move(self.recipe.kept_weights, "load", 0.0)

    def begin_iteration(self) -> None:
        """Offsets of the blocks of an iteration; those into y are loaded for the first store."""
        self.x_places = self.move(TransferWork(1, 4), "load", 0.0)
        self.y_places = -1.0

    def run(self, left: int) -> float:
        """The units of a body, if so many blocks are left; when the last product has ended."""
        self.count = left
        run_body(self)
        return self.multiplied

    def outputs_of(self, unit: Unit) -> tuple[int, ...]:
        """Outputs of a unit's tiles that exist."""
        return self.recipe.wanted[unit.number]

    def stores(self, unit: Unit) -> bool:
        """Whether a unit completes outputs."""
        return self.recipe.stored[unit.number]

    def rectangles(self, unit: Unit, tile: OutWork) -> tuple[int, ...]:
        """Positions of each."""
        del unit
        return tile.rectangles

    def next_out(self) -> OnChip:
        """An output buffer."""
        out = self.outs.take()
        out.ready = 0.0
        return out

    def residual_of(self, unit: Unit, tile: OutWork) -> OnChip | None:
        """What is added to an output buffer, loaded; None if nothing is."""
        del unit
        if not self.recipe.residual:
            return None
        buffer = self.residuals.take()
        self._load_y_places()
        buffer.ready = self.move(tile.store, "load", max(buffer.free, self.y_places))
        return buffer

    def chain(self, unit: Unit, tile: OutWork, rectangle: int) -> ChainRun:
        """Products of a rectangle."""
        return ChainRun(self, unit, tile, rectangle)

    def norm_of(self, unit: Unit, outs: list[OnChip]) -> NormRun | None:
        """The norm of a unit's outputs, if there is one."""
        del unit
        norm = self.recipe.norm
        return None if norm is None else NormRun(self, norm, outs)

    def store(self, tile: OutWork, out: OnChip) -> None:
        """An output buffer."""
        self._load_y_places()
        self.done = out.free = self.move(tile.store, "store", max(out.ready, self.y_places))

    def _load_y_places(self) -> None:
        if self.y_places < 0:
            self.y_places = self.move(TransferWork(1, 4), "load", 0.0)


class ChainRun:
    """A rectangle of an output tile on its way through a pipeline: its steps, placed on clocks."""

    def __init__(self, line: Pipeline, unit: Unit, tile: OutWork, elems: int) -> None:
        steady = line.recipe
        self.line = line
        self.unit = unit
        self.tile = tile
        self.elems = elems
        self.outputs = steady.outputs
        self.midgroup = steady.midgroup
        self.wanted = steady.wanted[unit.number]
        self.stages = steady.stages
        self.stage = unit.number % steady.stages
        self.phases = tile.phases
        self.gpsimd_outputs = steady.gpsimd_outputs
        self.epilogue = steady.epilogue
        self.banks: list[OnChip] = []  # in hand
        self.kept: list[OnChip] = []  # what the second part of a chain needs of the first

    def bank(self) -> OnChip:
        """A bank of PSUM."""
        bank = self.line.banks.take()
        self.banks.append(bank)
        return bank

    def give_back(self) -> None:
        """All banks, in the order in which they were taken."""
        self.line.banks.give(*self.banks)
        self.banks = []

    def tile_copy(self) -> OnChip:
        """A float32 tile."""
        return self.line.copies.take()

    def multiply(self, bank: OnChip, position: int, begins: bool) -> None:  # noqa: FBT001
        """One product of a rectangle; streamed weights come in parts."""
        del begins
        line, unit, tile = self.line, self.unit, self.tile
        reads = [line.v[slot][position] for slot in unit.reads]
        ready = max(bank.free, line.kept_weights)
        share = self._share()
        if line.recipe.kept_weights is None:
            parts = tile.weights[: ceil(share * len(tile.weights))]
            matmuls = tile.matmuls * (share / len(parts))
            cost = line.costs.product(matmuls, self.elems, tile.share)
            for number, part in enumerate(parts):
                weights = line.weights.take()
                loaded = line.move(part, "load", weights.free)
                there = line.inputs_ready(tile, unit, position, (number, len(parts)), cost.busy_ns)
                placed = line.tensor(cost, max(ready, loaded, there))
                weights.free = placed.released + line.hop_ns
        else:
            cost = line.costs.product(tile.matmuls * share, self.elems, tile.share)
            there = line.inputs_ready(tile, unit, position, (0, 1), cost.busy_ns)
            placed = line.tensor(cost, max(ready, there))
        if line.begun is None:
            line.begun = placed.start
        bank.written(placed.visible + line.hop_ns)
        line.used(placed.released, *reads)
        line.multiplied = line.block_ends[unit.block] = placed.busy_end

    def _share(self) -> float:
        """The share of a unit's frames that are not padding; tiles of frames mix them."""
        number, frames, missing = self.unit.number, len(self.unit.reads), self.line.recipe.missing
        zeros = sum(missing[number + n] for n in range(frames)) if frames > 1 else 0
        return 1 - zeros / frames

    def copy(self, dst: OnChip, bank: OnChip, scale: int, bias: bool) -> None:  # noqa: FBT001
        """By the Scalar engine."""
        del scale, bias
        line = self.line
        placed = line.scalar(line.costs.scalar(self.elems), max(bank.ready, dst.free))
        line.used(placed.released, bank)
        dst.written(placed.visible + line.hop_ns)

    def add(self, dst: OnChip, bank: OnChip, scale: int, other: OnChip) -> None:
        """By the Vector engine."""
        del scale
        line = self.line
        ready = max(bank.vector_ready, other.vector_ready, dst.free)
        placed = line.vector(line.costs.vector(self.elems, psum=True), ready)
        line.used(placed.released, bank, other)
        dst.ready, dst.vector_ready = placed.visible + line.hop_ns, placed.visible

    def add_on_gpsimd(self, dst: OnChip, other: OnChip, residual: OnChip, output: int) -> None:
        """Phase by phase of stacked columns, none of which waits for another."""
        del output
        line, ready = self.line, max(other.ready, residual.ready, dst.free)
        for _ in range(self.phases):
            placed = line.gpsimd(line.costs.gpsimd(self.elems), ready)
            line.used(placed.released, residual, other)
            dst.written(placed.visible + line.hop_ns)

    def held(self, which: int, output: int) -> OnChip:
        """What stages hold, which no other engine than Vector reads: nothing waits for it."""
        del which, output
        return OnChip()

    def between(self) -> OnChip:
        """The bank that sums of stages go through, which is Vector's alone."""
        return OnChip()

    def combine(self, dst: OnChip, first: OnChip, total: OnChip, adds: bool) -> None:  # noqa: FBT001
        """A sum or a difference, by the Vector engine."""
        del dst, first, adds
        self.line.vector(self.line.costs.vector(self.elems, psum=True), total.vector_ready)

    def view(self, buffer: OnChip, output: int, phase: int) -> OnChip:
        """A part of an output buffer, or of a residual: all of it is as one place."""
        del output, phase
        return buffer

    def part(self, tile: OnChip, phase: int) -> Part:
        """A column phase of a copy, on its own way out."""
        del phase
        return Part(tile)

    def write(
        self, out: OnChip, output: int, phase: int, bank: OnChip, scale: int, other: OnChip
    ) -> None:
        """An output, by the Vector engine."""
        del output, phase, scale
        line, ready = self.line, max(bank.vector_ready, other.vector_ready, out.free)
        placed = line.vector(line.costs.vector(self.elems, psum=True), ready)
        line.used(placed.released, bank, other)
        line.written(out, placed.visible)

    def activate(self, dst: OnChip, value: Part) -> None:
        """By the Scalar engine."""
        line = self.line
        placed = line.scalar(line.costs.scalar(self.elems), max(value.ready, dst.free))
        line.used(placed.released, value, value.whole)
        line.written(dst, placed.visible)

    def add_buffer(self, dst: OnChip, value: Part, residual: OnChip) -> None:
        """By the Vector engine, two cycles an element."""
        line, ready = self.line, max(value.vector_ready, residual.ready, dst.free)
        placed = line.vector(line.costs.vector(2 * self.elems, psum=False), ready)
        line.used(placed.released, value, value.whole, residual)
        line.written(dst, placed.visible)

    def store(self, out: OnChip) -> None:
        """An output buffer, if outputs are stored beside their norm."""
        norm = self.line.recipe.norm
        if norm is None or norm.keeps:
            self.line.store(self.tile, out)


class NormRun:
    """The norm of a unit's outputs: its steps, placed on clocks."""

    def __init__(self, line: Pipeline, work: NormWork, outs: list[OnChip]) -> None:
        self.line = line
        self.work = work
        self.outs = outs
        self.steps = len(work.steps)
        self.room = (work.slots, work.sums, work.slots)
        self.sums: list[OnChip] = []

    def square(self, step: int) -> None:
        """By the Scalar engine."""
        line, cost = self.line, self.line.costs.scalar(self.work.steps[step])
        for out, square in zip(self.outs, self.line.squares[step % self.work.slots], strict=True):
            placed = line.scalar(cost, max(out.ready, square.free))
            square.written(placed.visible + line.hop_ns)

    def sum_up(self, step: int) -> None:
        """By the Tensor engine."""
        line, squares = self.line, self.line.squares[step % self.work.slots]
        bank = line.banks.take()
        ready = max(bank.free, *(square.ready for square in squares))
        cost = line.costs.sums(self.work.matmuls, self.work.steps[step])
        placed = line.tensor(cost, ready)
        bank.written(placed.visible + line.hop_ns)
        line.used(placed.released, *squares)
        self.sums.append(bank)

    def multiply(self, step: int) -> None:
        """By the Vector engine."""
        line, bank = self.line, self.sums[step]
        cost = line.costs.vector(self.work.steps[step], psum=True)
        for product in self.line.products[step % self.work.slots]:
            placed = line.vector(cost, max(bank.vector_ready, product.free))
            line.used(placed.released, bank)
            product.written(placed.visible + line.hop_ns)
        line.banks.give(bank)

    def finish(self, step: int) -> None:
        """By the Scalar engine, in place of the outputs."""
        line, cost = self.line, self.line.costs.scalar(self.work.steps[step])
        for out, product in zip(self.outs, self.line.products[step % self.work.slots], strict=True):
            placed = line.scalar(cost, max(product.ready, out.free))
            line.used(placed.released, product)
            line.written(out, placed.visible)

    def store(self) -> None:
        """All output buffers."""
        for out, tile in zip(self.outs, self.line.tiles, strict=True):
            self.line.store(tile, out)
