"""Device rules about loops: PSUM, what an iteration leaves to the next, trips, launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nkisim.device_rules import loop_rules as rules
from nkisim.enums import engine
from nkisim.memory.layout import MemoryRegion
from nkisim.trace import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.device_rules.rule_monitor import RuleMonitor
    from nkisim.machine import Machine
    from nkisim.memory.allocation import Allocation
    from nkisim.trace import Access, Instruction, Loop

_WHOLE_ITERATION = 2  # a loop of one iteration leaves nothing to a next one


class LoopChecks:
    """What the rules about loops need to remember of one core."""

    def __init__(self, monitor: RuleMonitor, machine: Machine, programs: int, lnc: int) -> None:
        self.monitor = monitor
        self._machine = machine
        self._programs = programs
        self._lnc = lnc
        self._regions: dict[Allocation, tuple[int, ...]] = {}  # of PSUM: the loops it was used in

    def enter(self, who: str, trips: int | None, depth: int) -> None:
        """A loop begins, inside of `depth` others."""
        monitor = self.monitor
        if self._programs < self._lnc:
            what = f"a device loop, launched on {self._programs} of {self._lnc} programs"
            monitor.broken(rules.LOOP_ON_ONE_PROGRAM, what, who)
        if depth:
            monitor.broken(rules.NESTED_LOOPS, "a device loop inside another one", who)
        if trips == 0 and self._programs > 1:
            monitor.broken(rules.ZERO_TRIPS, "a loop of no trips", who)
        self.count(who, trips)

    def count(self, who: str, trips: int | None) -> None:
        """How often a loop runs is known."""
        most = self._machine.loop_trips_max
        if trips is not None and most is not None and trips > most:
            self.monitor.broken(rules.LOOP_TRIPS, f"{trips} trips, the most is {most}", who)

    def issue(self, instruction: Instruction, loops: Sequence[Loop]) -> None:
        """An instruction of the first iteration of a loop."""
        for access in instruction.writes:
            if access.layout.region is MemoryRegion.psum:
                self._written(instruction, access, loops[-1])
                self._used(instruction, access, loops)
        for access in instruction.reads:
            if access.layout.region is MemoryRegion.psum:
                self._used(instruction, access, loops)

    def _written(self, instruction: Instruction, access: Access, loop: Loop) -> None:
        outside = access.allocation.index < loop.allocations_before
        if outside and instruction.engine is engine.tensor:
            what = f"{access.allocation.name!r} was allocated before the loop that writes it"
            self.monitor.broken(rules.PSUM_ACROSS_LOOP, what, instruction.op)

    def _used(self, instruction: Instruction, access: Access, loops: Sequence[Loop]) -> None:
        path = tuple([loop.number for loop in loops])
        known = self._regions.setdefault(access.allocation, path)
        if known != path:
            shared = min(len(known), len(path))
            if known[:shared] != path[:shared]:
                what = f"{access.allocation.name!r} in a second loop"
                self.monitor.broken(rules.PSUM_IN_TWO_LOOPS, what, instruction.op)

    def leave(self, loop: Loop) -> None:
        """The first iteration of a loop is recorded, and how often it runs is known."""
        if loop.trips is not None and loop.trips < _WHOLE_ITERATION:
            return
        if not self.monitor.unseen(rules.SBUF_REFILL):
            return
        for name, refill in _refills(loop):
            what = f"{name!r} is refilled by {refill.op} for the next iteration, and nothing waits"
            self.monitor.broken(rules.SBUF_REFILL, what, refill.op, refill.place)


class _LoopUse(NamedTuple):
    position: int
    instruction: Instruction
    access: Access


def _refills(loop: Loop) -> list[tuple[str, Instruction]]:
    """Writes to SBUF from outside that other engines read an iteration later, with no wait in this.

    A tensor that is read only after it was written in the same iteration is not left to the next
    one, and what one engine alone reads and writes is in that engine's order. A value that is
    updated in place is no refill: kernels that ship (NKL, TB) count up offset cells which the next
    iteration's DMA reads.
    """
    reads: dict[Allocation, list[_LoopUse]] = {}
    writes: dict[Allocation, list[_LoopUse]] = {}
    awaited: set[int] = set()
    for position, instruction in enumerate(walk(loop.body)):
        awaited.update(instruction.after)
        for found, accesses in ((reads, instruction.reads), (writes, instruction.writes)):
            for access in accesses:
                allocation = access.allocation
                outside = allocation.index < loop.allocations_before
                if outside and allocation.region is MemoryRegion.sbuf:
                    use = _LoopUse(position, instruction, access)
                    found.setdefault(allocation, []).append(use)
    return [
        (allocation.name, write.instruction)
        for allocation, written in writes.items()
        for write in written
        if write.instruction.index not in awaited
        and not _updates(write)
        and _is_left(write, written, reads.get(allocation, []))
    ]


def _updates(write: _LoopUse) -> bool:
    """Whether the instruction also reads what it writes."""
    mine = write.access.allocation
    reads = (read for read in write.instruction.reads if read.allocation is mine)
    return any(_meet(_LoopUse(write.position, write.instruction, read), write) for read in reads)


def _is_left(write: _LoopUse, writes: list[_LoopUse], reads: list[_LoopUse]) -> bool:
    """Whether another engine finds what was written an iteration later, and nobody in this one."""
    if any(read.position > write.position and _meet(read, write) for read in reads):
        return False
    for read in reads:
        other = read.instruction.engine is not write.instruction.engine
        if other and _meet(read, write):
            before = (use for use in writes if use.position < read.position)
            if not any(_meet(use, read) for use in before):
                return True
    return False


def _meet(use: _LoopUse, other: _LoopUse) -> bool:
    """Whether two accesses of one tensor may share bytes; run-time offsets may be anywhere."""
    mine, theirs = use.access, other.access
    if mine.anywhere or theirs.anywhere or mine.step or theirs.step:
        return True
    top, start = mine.start_partition, theirs.start_partition
    if top >= start + theirs.layout.partitions or start >= top + mine.layout.partitions:
        return False
    (low, high), (least, most) = mine.byte_interval, theirs.byte_interval
    return low < most and least < high
