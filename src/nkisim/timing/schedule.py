"""Schedule: Trace in, Timeline out. Costs, hazards and engines meet here and nowhere else."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from nkisim.enums import engine
from nkisim.machine import Machine, Reading
from nkisim.memory.placement import MemoryUse
from nkisim.timing.core import Core
from nkisim.timing.costs import Cost, cost_of
from nkisim.timing.hazards import Hazards, Waits, read_only_allocations
from nkisim.timing.ledger import Settled
from nkisim.timing.loops import Mark, SteadyState, nearly_equal
from nkisim.timing.reorder import Lane, Reordering
from nkisim.timing.timeline import Elision, Events, Timeline
from nkisim.trace import Instruction, Item, Loop, Trace

_CHUNK = 20_000  # rows a reordering window looks at together; bounds its memory


def schedule(
    trace: Trace,
    machine: Machine,
    reading: Reading = Reading.default,
    *,
    memory: MemoryUse | None = None,
    extrapolate: bool = True,
) -> Timeline:
    """When every instruction of a trace would run on a machine, read one way.

    `extrapolate=False` runs every iteration of every loop.
    """
    scheduler = _Scheduler(machine.read(reading), trace, extrapolate=extrapolate)
    scheduler.run(trace.items)
    return scheduler.timeline(machine, reading, trace, memory)


class _Scheduler:
    """The state of a schedule in the making.

    A hardware loop costs time at the end of every iteration, in which everything stands still: it
    takes as long as the unrolled stream and that cost. So clocks here leave those pauses out, and
    only what goes into `events` has them in.
    """

    def __init__(self, machine: Machine, trace: Trace, *, extrapolate: bool) -> None:
        timing = machine.timing
        self.machine = machine
        self.extrapolate = extrapolate
        self.window = int(timing.reorder_window)
        self.core = Core(machine)
        # What a semaphore adds until another engine sees a result; DMA has it in `dma_done_ns`.
        self.hop_ns = dict.fromkeys(engine, timing.semaphore_ns) | {engine.dma: 0.0}
        self.events = Events()
        self.visible_ns = array("d")  # as in `events`, without pauses
        self.settled = Settled(0, array("d"))
        self.hazards = Hazards(read_only_allocations(trace.instructions()), self.settled)
        self.named = {index for one in trace.instructions() for index in one.after}
        self.rows_of: dict[int, int] = {}  # index of a named instruction -> its latest row
        self.costs: dict[Any, Cost] = {}
        self.elisions: list[Elision] = []
        self.flops = 0
        self.executed = 0
        self.makespan = 0.0
        self.paused = 0.0

    def run(self, items: Sequence[Item]) -> None:
        """Schedule a stretch of straight code and loops, in order."""
        straight: list[Instruction] = []
        for item in items:
            if isinstance(item, Loop):
                self._run_straight(straight)
                straight = []
                self._run_loop(item)
            else:
                straight.append(item)
        self._run_straight(straight)

    def _run_straight(self, instructions: list[Instruction]) -> None:
        if self.window > 1:
            for first in range(0, len(instructions), _CHUNK):
                self._run_reordered(instructions[first : first + _CHUNK])
            return
        first = self._reserve(instructions)
        for row, instruction in enumerate(instructions, first):
            self.settled.rows = row
            waits = self._waits(instruction, row)
            self._commit(
                row, instruction, self._cost(instruction), *self._ready(instruction, waits)
            )

    def _run_reordered(self, instructions: list[Instruction]) -> None:
        first = self._reserve(instructions)
        self.settled.rows = first
        costs = [self._cost(instruction) for instruction in instructions]
        waits = [self._waits(one, row) for row, one in enumerate(instructions, first)]
        ready: dict[int, tuple[float, int]] = {}
        lanes: dict[object, Lane] = {}

        def ready_at(number: int) -> float:
            ready[number] = self._ready(instructions[number], waits[number])
            return ready[number][0]

        def run(number: int) -> float:
            one, cost = instructions[number], costs[number]
            self._commit(first + number, one, cost, *ready.pop(number))
            return self.core.free(one, cost)

        for one, cost in zip(instructions, costs, strict=True):
            key = _lane_key(one, cost)
            if key not in lanes:
                window = 1 if one.engine is engine.tensor else self.window
                lanes[key] = Lane(window, self.core.free(one, cost))
        in_lane = [lanes[_lane_key(*pair)] for pair in zip(instructions, costs, strict=True)]
        producers = [_producers(one, first, number) for number, one in enumerate(waits)]
        Reordering(in_lane, producers, ready_at, run).go()

    def _reserve(self, instructions: list[Instruction]) -> int:
        """Rows for instructions, in program order; `_commit` fills in the times."""
        first = self.events.reserve(instructions)
        zeros = bytes(len(instructions) * self.visible_ns.itemsize)
        self.visible_ns.frombytes(zeros)
        self.settled.released_ns.frombytes(zeros)
        return first

    def _waits(self, instruction: Instruction, row: int) -> Waits:
        waits = self.hazards.waits(instruction, row)
        if self.named:
            for index in instruction.after:
                if index in self.rows_of:
                    producer = self.rows_of[index]
                    waits.writers.append((producer, self.events.instructions[producer].engine))
            if instruction.index in self.named:
                self.rows_of[instruction.index] = row
        return waits

    def _ready(self, instruction: Instruction, waits: Waits) -> tuple[float, int]:
        """When everything an instruction waits for has happened, and the row that was last.

        An engine that needs its own result waits for it as long as it takes (but for the Tensor
        engine, which adds up in PSUM); it reads and writes in the order of its instructions.
        """
        where, hop_ns, visible_ns = instruction.engine, self.hop_ns, self.visible_ns
        latest, cause = 0.0, -1
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
                when = self.settled.released_ns[row] + hop_ns[other]
                if when > latest:
                    latest, cause = when, row
        return latest, cause

    def _commit(
        self, row: int, instruction: Instruction, cost: Cost, ready: float, cause: int
    ) -> None:
        start, busy_end, released, visible = self.core.place[instruction.engine](cost, ready)
        self.visible_ns[row] = visible
        self.settled.released_ns[row] = released
        events, paused = self.events, self.paused
        events.start_ns[row] = start + paused
        events.busy_end_ns[row] = busy_end + paused
        events.released_ns[row] = released + paused
        events.visible_ns[row] = visible + paused
        if start <= ready:
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
        cost = self.costs.get(key)
        if cost is None:
            cost = self.costs[key] = cost_of(instruction, self.machine)
        return cost

    def _run_loop(self, loop: Loop) -> None:
        trips = 1 if loop.trips is None else loop.trips
        steady = SteadyState()
        iterations = self.hazards.iterations
        turn = 0
        while turn < trips:
            iterations[loop.number] = turn
            self.run(loop.body)
            self.paused += self.machine.timing.loop_iteration_ns
            turn += 1
            if self.extrapolate and turn < trips - 1:
                steady.add(Mark(self._meters(), self.core.condition(), len(self.events)))
                turn += self._skip(loop, steady, trips - turn)
        iterations.pop(loop.number, None)

    def _skip(self, loop: Loop, steady: SteadyState, left: int) -> int:
        """Let iterations pass if they repeat, all but the last few; returns how many."""
        period = steady.period()
        if period is None or left <= period or self._drifts(steady.ago(period).end_row):
            return 0
        periods = (left - 1) // period
        skipped = periods * period
        first_row, end_row = steady.ago(1).end_row, len(self.events)
        before = self.makespan + self.paused
        self._advance([periods * gain for gain in steady.gains(period)])
        self._postpone(steady.ago(period).end_row, periods)
        duration = self.makespan + self.paused - before
        self.elisions.append(
            Elision(before, duration, skipped, duration / skipped, first_row, end_row)
        )
        last = self.hazards.iterations[loop.number] + skipped
        for row in range(first_row, end_row):
            self.hazards.note_skipped(self.events.instructions[row], row, loop.number, last)
        return skipped

    def _drifts(self, first_row: int) -> bool:
        """Whether, in the period from `first_row` on, instructions of one lane gain unequally.

        They keep their order, so sooner or later those that gain less are caught up with.
        """
        start_ns, rows = self.events.start_ns, len(self.events) - first_row
        gains: dict[object, float] = {}
        for row in range(first_row, len(self.events)):
            instruction = self.events.instructions[row]
            lane = _lane_key(instruction, self._cost(instruction))
            gain = start_ns[row] - start_ns[row - rows]
            if not nearly_equal(gain, gains.setdefault(lane, gain)):
                return True
        return False

    def _postpone(self, first_row: int, periods: int) -> None:
        """Let the rows from `first_row` on, one period, stand for those some periods later."""
        end_row = len(self.events)
        rows = end_row - first_row
        for column in (self.visible_ns, self.settled.released_ns):
            for row in range(first_row, end_row):
                column[row] += periods * (column[row] - column[row - rows])

    def _meters(self) -> list[float]:
        """Every number that grows while a loop runs."""
        return [self.flops, self.executed, self.makespan, self.paused, *self.core.meters()]

    def _advance(self, gains: list[float]) -> None:
        """Add to the meters, in their order."""
        self.flops += int(gains[0])
        self.executed += int(gains[1])
        self.makespan += gains[2]
        self.paused += gains[3]
        self.core.advance(gains[4:])

    def timeline(
        self, machine: Machine, reading: Reading, trace: Trace, memory: MemoryUse | None
    ) -> Timeline:
        """Everything that was scheduled, added up."""
        return Timeline(
            machine=machine,
            reading=reading,
            makespan_ns=self.makespan + self.paused,
            launch_ns=self.machine.timing.launch_ns,
            busy_ns=self.core.busy_ns,
            flops=self.flops,
            hbm_bytes=self.core.hbm_bytes,
            static_instructions=trace.static_count,
            executed_instructions=self.executed,
            memory=memory,
            events=self.events,
            elisions=tuple(self.elisions),
            unknown_loops=trace.unknown_loops,
        )


def _lane_key(instruction: Instruction, cost: Cost) -> object:
    """Transfers of one direction are a lane; so are the instructions of an engine."""
    return instruction.engine if cost.transfer is None else cost.transfer.direction


def _producers(waits: Waits, first: int, number: int) -> set[int]:
    """The rows of this chunk that a row waits for, counted from the chunk's first."""
    rows = {row - first for many in waits for row, _ in many if row >= first}
    rows.discard(number)  # an instruction that works in place does not wait for itself
    return rows
