"""CoreSchedule: the instructions of one core, each placed when it can run.

It runs as a generator: it stops where it has to know something of the other core, or where
iterations of a loop may be left out, and is told.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from nkisim.enums import engine
from nkisim.machine import Machine
from nkisim.timing.core import Core
from nkisim.timing.costs import Cost, cost_of
from nkisim.timing.hazards import Hazards, Waits, read_only_allocations
from nkisim.timing.ledger import Settled
from nkisim.timing.reorder import Reordering, WaitingLane
from nkisim.timing.shared_limit import SharedLimit
from nkisim.timing.timeline import DRAINED, OTHER_CORE, Elision, Events
from nkisim.trace import Instruction, Item, Loop, Trace

_CHUNK = 20_000  # rows a reordering window looks at together; bounds its memory


@dataclass(frozen=True, slots=True)
class Placement:
    """An instruction is placed: the other core may place one, so that both get their share."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """At a barrier or an exchange of both cores. Asks when the other core arrives."""

    meeting: int
    at_ns: float


@dataclass(frozen=True, slots=True)
class IterationEnd:
    """An iteration has drained. Asks how many of the iterations that are left to leave out."""

    loop: int
    meets: bool  # the other core, in its body
    left: int
    at_ns: float
    took_ns: float
    conditions: tuple[Hashable, Hashable]  # in which it started and ended

    @property
    def repeats(self) -> bool:
        """Whether the next iteration takes as long: it starts as this one did."""
        return self.conditions[0] == self.conditions[1]


Stop = Placement | Arrival | IterationEnd
Steps = Generator[Stop, float, None]


class CoreSchedule:
    """The schedule of one core in the making.

    A row is one execution of an instruction: its number in the columns of `events`. An instruction
    of a loop has a row for every iteration that is scheduled. For each row: whom does it wait for
    (`_waits`), when is that over (`_ready`), when does its engine take it (`_commit`).

    An iteration of a hardware loop is a barrier of all engines and queues: nothing of it starts
    before everything earlier has ended, and a pause (KILN, DFA).
    """

    def __init__(
        self, machine: Machine, trace: Trace, hbm: SharedLimit, *, per_tensor: bool, paired: bool
    ) -> None:
        timing = machine.timing
        self.machine = machine
        self.trace = trace
        self.core = Core(machine, hbm, trace.core)
        self.events = Events()
        self.elisions: list[Elision] = []
        self.flops = 0
        self.executed = 0
        self.makespan = 0.0
        self._hbm = hbm
        self._paired = paired
        self._window = int(timing.reorder_window)
        # What a semaphore adds until another engine sees a result; DMA has it in `dma_done_ns`.
        self._hop_ns = dict.fromkeys(engine, timing.semaphore_ns) | {engine.dma: 0.0}
        self._settled = Settled(0, self.events.released_ns)
        read_only = read_only_allocations(trace.instructions())
        self._hazards = Hazards(read_only, self._settled, per_tensor=per_tensor)
        # Instructions that others were told to come after (`with_schedule`), by index.
        self._named = {index for instruction in trace.instructions() for index in instruction.after}
        self._rows_of: dict[int, int] = {}  # index of a named instruction -> its latest row
        self._costs: dict[Any, Cost] = {}
        self._floor = 0.0  # nothing starts before: the last barrier

    def steps(self) -> Steps:
        """Schedule the whole trace."""
        return self._run(self.trace.items)

    def _run(self, items: Sequence[Item]) -> Steps:
        """Straight code and loops, in order."""
        straight: list[Instruction] = []
        for item in items:
            if isinstance(item, Loop):
                yield from self._run_straight(straight)
                straight = []
                yield from self._run_loop(item)
            elif self._paired and item.index in self.trace.meetings:
                yield from self._run_straight(straight)
                straight = []
                yield from self._meet(item)
            else:
                straight.append(item)
        yield from self._run_straight(straight)

    def _run_straight(self, instructions: list[Instruction]) -> Steps:
        if self._window > 1:
            for first in range(0, len(instructions), _CHUNK):
                self._run_reordered(instructions[first : first + _CHUNK])
        elif self._paired:
            for instruction in instructions:
                self._run_in_order([instruction])
                yield Placement()
        else:
            self._run_in_order(instructions)

    def _run_in_order(self, instructions: list[Instruction]) -> None:
        first = self.events.reserve(instructions)
        for row, instruction in enumerate(instructions, first):
            self._settled.rows = row
            waits = self._waits(instruction, row)
            self._commit(
                row, instruction, self._cost(instruction), *self._ready(instruction, waits)
            )

    def _run_reordered(self, instructions: list[Instruction]) -> None:
        first = self.events.reserve(instructions)
        self._settled.rows = first
        costs = [self._cost(instruction) for instruction in instructions]
        waits = [
            self._waits(instruction, row) for row, instruction in enumerate(instructions, first)
        ]
        ready: dict[int, tuple[float, int]] = {}
        lanes: dict[object, WaitingLane] = {}

        def ready_at(number: int) -> float:
            ready[number] = self._ready(instructions[number], waits[number])
            return ready[number][0]

        def run(number: int) -> float:
            one, cost = instructions[number], costs[number]
            self._commit(first + number, one, cost, *ready.pop(number))
            return self.core.free(one, cost)

        for instruction, cost in zip(instructions, costs, strict=True):
            key = self.core.lane(instruction, cost)
            if key not in lanes:
                window = 1 if instruction.engine is engine.tensor else self._window
                lanes[key] = WaitingLane(window, self.core.free(instruction, cost))
        in_lane = [lanes[self.core.lane(*pair)] for pair in zip(instructions, costs, strict=True)]
        producers = [_producers(wait, first, number) for number, wait in enumerate(waits)]
        Reordering(in_lane, producers, ready_at, run).go()

    def _meet(self, instruction: Instruction) -> Steps:
        """A barrier or an exchange: it runs when both cores are ready for it."""
        row = self.events.reserve([instruction])
        self._settled.rows = row
        cost = self._cost(instruction)
        ready, cause = self._ready(instruction, self._waits(instruction, row))
        arrived = max(ready, self.core.free(instruction, cost))
        other = yield Arrival(self.trace.meetings[instruction.index], arrived)
        if other > arrived:
            ready, cause = other, OTHER_CORE
        self._commit(row, instruction, cost, ready, cause)

    def _waits(self, instruction: Instruction, row: int) -> Waits:
        """Whom a row waits for: because of memory they share, or because the kernel says so."""
        waits = self._hazards.waits(instruction, row)
        if self._named:
            for index in instruction.after:
                if index in self._rows_of:
                    producer = self._rows_of[index]
                    waits.writers.append((producer, self.events.instructions[producer].engine))
            if instruction.index in self._named:
                self._rows_of[instruction.index] = row
        return waits

    def _ready(self, instruction: Instruction, waits: Waits) -> tuple[float, int]:
        """When everything an instruction waits for has happened, and the row that was last.

        An engine that needs its own result waits for it as long as it takes (but for the Tensor
        engine, which adds up in PSUM); it reads and writes in the order of its instructions.
        """
        where, hop_ns, visible_ns = instruction.engine, self._hop_ns, self.events.visible_ns
        latest, cause = self._floor, DRAINED
        for row, other in waits.results:
            if other is where:
                when = visible_ns[row] if where is not engine.tensor else 0.0
            else:
                when = visible_ns[row] + hop_ns[other]
            if when > latest:
                latest, cause = when, row
        in_order = where is not engine.dma
        for row, other in waits.writers:
            if other is not where or not in_order:
                when = visible_ns[row] + hop_ns[other]
                if when > latest:
                    latest, cause = when, row
        for row, other in waits.readers:
            if other is not where or not in_order:
                when = self._settled.released_ns[row] + hop_ns[other]
                if when > latest:
                    latest, cause = when, row
        return latest, cause

    def _commit(
        self, row: int, instruction: Instruction, cost: Cost, ready: float, cause: int
    ) -> None:
        """Place a row on its engine, not before `ready`; `cause` is what ended then."""
        start, busy_end, released, visible = self.core.place[instruction.engine](cost, ready)
        events = self.events
        events.start_ns[row] = start
        events.busy_end_ns[row] = busy_end
        events.released_ns[row] = released
        events.visible_ns[row] = visible
        if start <= ready and ready:  # else it waited for its own engine, or for nothing
            events.cause[row] = cause
        self.makespan = max(self.makespan, visible)
        self.flops += cost.flops
        self.executed += 1

    def _cost(self, instruction: Instruction) -> Cost:
        """The cost, looked up by all that rules may look at: they are pure."""
        operands = (*instruction.writes, *instruction.reads)
        key = (
            instruction.op,
            instruction.engine,
            id(instruction.options),  # equal options of a trace are one object
            instruction.loop < 0,
            len(instruction.writes),
            *[access.layout for access in operands],
            *[(access.offset & 3, access.anywhere) for access in operands],
        )
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = cost_of(instruction, self.machine)
        return cost

    def _run_loop(self, loop: Loop) -> Steps:
        """Iteration after iteration; after each but the last two, ask how many to leave out."""
        trips = 1 if loop.trips is None else loop.trips
        iterations = self._hazards.iterations
        self._drain(self.machine.timing.semaphore_ns)
        iteration = 0
        while iteration < trips:
            iterations[loop.number] = iteration
            begin, first_row, totals = self._floor, len(self.events), self._totals()
            before = self.core.condition(begin)
            yield from self._run(loop.body)
            self._drain(self.machine.timing.loop_iteration_ns)
            iteration += 1
            if iteration < trips - 1:
                took = self._floor - begin
                conditions = before, self.core.condition(self._floor)
                kind = (loop.number, loop.meets, trips - iteration)
                skipped = int((yield IterationEnd(*kind, self._floor, took, conditions)))
                if skipped:
                    self._leave_out(skipped, took, first_row, totals)
                    iteration += skipped
        iterations.pop(loop.number, None)

    def _drain(self, pause_ns: float) -> None:
        """Everything ends; what comes next starts after a pause."""
        self._floor = self.makespan = self.makespan + pause_ns
        self.core.drain(self._floor)
        if not self._paired:
            self._hbm.drained(self._floor)
        self._hazards.drain()
        self.events.barriers.append((len(self.events), self._floor))

    def _leave_out(
        self, iterations: int, took_ns: float, first_row: int, totals: Sequence[float]
    ) -> None:
        """Let iterations pass that repeat the one that began at `first_row`, with these totals."""
        gains = [now - then for now, then in zip(self._totals(), totals, strict=True)]
        shift = iterations * took_ns
        self.flops += iterations * int(gains[0])
        self.executed += iterations * int(gains[1])
        self.core.pass_by(iterations, gains[2:], shift)
        self.elisions.append(
            Elision(self._floor, shift, iterations, took_ns, first_row, len(self.events))
        )
        self.makespan += shift
        self._drain(0.0)

    def _totals(self) -> list[float]:
        """What an iteration of a loop adds to."""
        return [self.flops, self.executed, *self.core.totals()]


def _producers(waits: Waits, first: int, number: int) -> set[int]:
    """The rows of this chunk that a row waits for, counted from the chunk's first."""
    rows = {row - first for many in waits for row, _ in many if row >= first}
    rows.discard(number)  # an instruction that works in place does not wait for itself
    return rows
