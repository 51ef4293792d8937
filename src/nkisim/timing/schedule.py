"""Schedule: Trace in, Timeline out. Costs, hazards and engines meet here and nowhere else."""

from __future__ import annotations

from typing import Any

from nkisim.enums import engine
from nkisim.machine import Machine, Reading
from nkisim.memory import MemoryUse
from nkisim.timing.boxes import Box
from nkisim.timing.costs import Cost, cost_of
from nkisim.timing.engines import (
    ComputeEngine,
    DmaEngines,
    ScalarEngine,
    TensorEngine,
)
from nkisim.timing.hazards import Entry, Hazards, Waits, read_only_allocations
from nkisim.timing.loops import SteadyState
from nkisim.timing.reorder import reordered
from nkisim.timing.timeline import Elision, Events, Timeline
from nkisim.trace import Access, Instruction, Item, Loop, Trace


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


_NOWHERE = Box(0, 0, 0, 0)  # a wait that was asked for by name has no place


class _Scheduler:
    """The state of a schedule in the making."""

    def __init__(self, machine: Machine, trace: Trace, *, extrapolate: bool) -> None:
        timing = machine.timing
        self.machine = machine
        self.window = int(timing.reorder_window)
        self.extrapolate = extrapolate
        self.engines: dict[engine, ComputeEngine] = {
            engine.tensor: TensorEngine(machine),
            engine.vector: ComputeEngine(),
            engine.scalar: ScalarEngine(timing.table_load_ns),
            engine.gpsimd: ComputeEngine(),
            engine.sync: ComputeEngine(),
        }
        self.dma = DmaEngines(machine)
        self.hazards = Hazards(read_only_allocations(trace.instructions()))
        self.events = Events()
        self.rows_of: dict[int, int] = {}  # instruction index -> its latest row
        self.costs: dict[Any, Cost] = {}
        self.iteration: dict[int, int] = {}  # loop number -> iteration now running
        self.elisions: list[Elision] = []
        self.flops = 0
        self.executed = 0
        self.makespan = 0.0

    def run(self, items: list[Item]) -> None:
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
            self._run_reordered(instructions)
            return
        for instruction in instructions:
            row = self._reserve(instruction)
            self._commit(row, instruction, self._wait_for(instruction, row))

    def _run_reordered(self, instructions: list[Instruction]) -> None:
        rows = [self._reserve(instruction) for instruction in instructions]
        by_row = dict(zip(rows, instructions, strict=True))
        waits = {row: self._wait_for(one, row) for row, one in by_row.items()}
        order = reordered(
            rows,
            lambda row: self._lane(by_row[row]),
            lambda row: {entry[1] for entry in (*waits[row].results, *waits[row].readers)},
            lambda row: self.ready(by_row[row], waits[row])[0],
            lambda row: self._free(by_row[row]),
        )
        for row in order:
            self._commit(row, by_row[row], waits[row])

    def _lane(self, instruction: Instruction) -> tuple[Any, int]:
        where = instruction.engine
        if where is engine.dma:
            return self.dma.queue_of(instruction), self.window
        return where, 1 if where is engine.tensor else self.window

    def _free(self, instruction: Instruction) -> float:
        if instruction.engine is engine.dma:
            return self.dma.queue_of(instruction).issue_free
        return self.engines[instruction.engine].free

    def _reserve(self, instruction: Instruction) -> int:
        """A row for an instruction, in program order; `_commit` fills in the times."""
        events = self.events
        row = len(events.instructions)
        self.rows_of[instruction.index] = row
        events.instructions.append(instruction)
        for column in (events.start_ns, events.busy_end_ns, events.released_ns, events.visible_ns):
            column.append(0.0)
        events.cause.append(-1)
        return row

    def _wait_for(self, instruction: Instruction, number: int) -> Waits:
        waits = self.hazards.waits(instruction, number, self._shift)
        for index in instruction.after:
            row = self.rows_of.get(index)
            if row is not None:
                producer = self.events.instructions[row]
                waits.results.append(Entry(_NOWHERE, row, producer.engine))
        return waits

    def _shift(self, access: Access) -> int:
        return access.step * self.iteration.get(access.loop, 0) if access.step else 0

    def ready(self, instruction: Instruction, waits: Waits) -> tuple[float, int]:
        """When everything an instruction waits for has happened, and the row that was last."""
        where = instruction.engine
        hop = self.machine.timing.semaphore_ns
        latest, cause = 0.0, -1
        visible, released = self.events.visible_ns, self.events.released_ns
        for _, row, other in waits.results:
            if other is where and (where is engine.tensor or row < 0):
                continue  # accumulation in PSUM needs no wait; the array keeps its order
            when = visible[row] + (hop if other is not where else 0.0)
            if when > latest:
                latest, cause = when, row
        for _, row, other in waits.readers:
            if other is where and where is not engine.dma:
                continue  # an engine reads before it writes again
            when = released[row] + hop
            if when > latest:
                latest, cause = when, row
        return latest, cause

    def _commit(self, row: int, instruction: Instruction, waits: Waits) -> None:
        ready, cause = self.ready(instruction, waits)
        cost = self._cost(instruction)
        if instruction.engine is engine.dma:
            placed = self.dma.place(instruction, cost, ready)
        else:
            placed = self.engines[instruction.engine].place(cost, ready)
        events = self.events
        events.start_ns[row] = placed.start
        events.busy_end_ns[row] = placed.busy_end
        events.released_ns[row] = placed.released
        events.visible_ns[row] = placed.visible
        events.cause[row] = cause if placed.start <= ready else -1
        self.makespan = max(self.makespan, placed.visible)
        self.flops += cost.flops
        self.executed += 1

    def _cost(self, instruction: Instruction) -> Cost:
        key = (
            instruction.op,
            instruction.engine,
            instruction.options,
            *((access.layout, access.offset & 1) for access in instruction.writes),
            *((access.layout, access.offset & 1) for access in instruction.reads),
        )
        cost = self.costs.get(key)
        if cost is None:
            cost = self.costs[key] = cost_of(instruction, self.machine)
        return cost

    def _run_loop(self, loop: Loop) -> None:
        trips = 1 if loop.trips is None else loop.trips
        steady = SteadyState()
        for iteration in range(trips):
            self.iteration[loop.number] = iteration
            before, first_row = self._counts(), len(self.events)
            self.run(loop.body)
            self._skip(self.machine.timing.loop_iteration_ns)
            steady.add(self._frontier())
            left = trips - iteration - 1
            if left and self.extrapolate and steady.reached:
                self._extrapolate(left, steady.ns_per_iteration, before, first_row)
                break
        self.iteration.pop(loop.number, None)

    def _frontier(self) -> float:
        return max(self.dma.free, *(one.free for one in self.engines.values()))

    def _counts(self) -> list[tuple[Any, str, float]]:
        """Everything that adds up, as (object, attribute, value now)."""
        names: list[tuple[Any, str]] = [(self, "flops"), (self, "executed")]
        names += [(one, "busy") for one in self.engines.values()]
        names += [(self.dma, name) for name in ("busy", "issue_busy", "hbm_bytes")]
        return [(owner, name, getattr(owner, name)) for owner, name in names]

    def _extrapolate(
        self, left: int, each_ns: float, before: list[tuple[Any, str, float]], first_row: int
    ) -> None:
        """Pretend `left` more iterations ran like the last one."""
        ahead = left * each_ns
        self.elisions.append(Elision(self.makespan, ahead, left, each_ns))
        for owner, name, value in before:
            now = getattr(owner, name)
            setattr(owner, name, now + left * (now - value))
        self._skip(ahead)
        self.makespan += ahead
        for column in (self.events.released_ns, self.events.visible_ns):
            for row in range(first_row, len(self.events)):
                column[row] += ahead

    def _skip(self, ns: float) -> None:
        for one in self.engines.values():
            one.skip(ns)
        self.dma.skip(ns)

    def timeline(
        self, machine: Machine, reading: Reading, trace: Trace, memory: MemoryUse | None
    ) -> Timeline:
        """Everything that was scheduled, added up."""
        busy = {where.name: one.busy for where, one in self.engines.items()}
        busy["dma"] = self.dma.busy
        busy["dma issue"] = self.dma.issue_busy / self.machine.timing.dma_issue_queues
        return Timeline(
            machine=machine,
            reading=reading,
            makespan_ns=self.makespan,
            launch_ns=self.machine.timing.launch_ns,
            busy_ns=busy,
            flops=self.flops,
            hbm_bytes=self.dma.hbm_bytes,
            static_instructions=trace.static_count,
            executed_instructions=self.executed,
            memory=memory,
            events=self.events,
            elisions=tuple(self.elisions),
        )
