"""LoopNest: the device loops of one core that are running, and how their bodies enter the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import NkiValidationError
from nkisim.running.loop_consistency import Body, OpenLoop
from nkisim.running.programs import Region
from nkisim.tensors.registers import RunTimeValue
from nkisim.trace import Instruction, Item, Loop, Trace, walk

if TYPE_CHECKING:
    from nkisim.device_rules.rule import DeviceRule
    from nkisim.memory.placement import Memory
    from nkisim.memory.storage import Storage
    from nkisim.running.loop_checks import LoopChecks


class LoopNest:
    """The loops around the instruction that is issued next, outermost first."""

    def __init__(self, memory: Memory, trace: Trace, checks: LoopChecks) -> None:
        self.memory = memory
        self.trace = trace
        self.regions: list[Region] = []  # the loops of the program
        self._checks = checks
        self._items: list[Item] = trace.items
        self._inside = self.regions  # those that the next loop is beside
        self._loops: list[OpenLoop] = []
        self._iterations: set[object] = set()  # the iterations that are running, one a loop
        self._loops_seen = 0
        self._checking = 0  # > 0 in iterations that are only held against the first one
        self._replaying = 0  # > 0 while a loop iteration after the first one runs

    @property
    def recording(self) -> bool:
        """Whether instructions enter the trace (not in later iterations of a loop)."""
        return not self._replaying

    def in_loop_breaks(self, rule: DeviceRule, what: str, instruction: str) -> None:
        """Inside a device loop, a rule is broken."""
        if self._loops:
            self._checks.monitor.broken(rule, what, instruction)

    def _issue_in_loop(self, instruction: Instruction) -> None:
        innermost = self._loops[-1]
        instruction.loop = innermost.loop.number
        innermost.issue(instruction, {loop.loop.number: loop.count for loop in self._loops})
        if not self._replaying:
            self._checks.issue(instruction, [loop.loop for loop in self._loops])

    def _running(self, number: int) -> Loop | None:
        return next((loop.loop for loop in self._loops if loop.loop.number == number), None)

    def begin_loop(self, who: str, trips: int | None, step: int) -> Loop:
        """Start a dynamic loop: what is issued until `next_iteration` or `end_loop` is its body."""
        recording = self.recording
        unrecorded = -2 - len(self._loops)  # tells it from the loops around it, and from no loop
        number = self._loops_seen if recording else unrecorded
        loop = Loop(number, trips, step, self.memory.next_index)
        if recording:
            self._checks.enter(who, trips, len(self._loops))
        body = self._loops[-1].inner_body() if self._loops else Body()
        first = body is not None and not body.entries
        self._loops.append(OpenLoop(loop, self._items, body, first=first))
        self._iterations.add(self._loops[-1].iteration)
        if recording:
            self._loops_seen += 1
            self._items.append(loop)
            self._items = loop.body
            self._enter_region(loop)
        return loop

    def _enter_region(self, loop: Loop) -> None:
        region = Region(loop)
        self._inside.append(region)
        self._inside = region.inside

    def skip_loop(self, who: str) -> None:
        """A dynamic loop that runs no iteration."""
        if self._loops:
            self._loops[-1].skip_loop()
        if self.recording:
            self._checks.enter(who, 0, len(self._loops))
            self._inside.append(Region())

    def loops_around(self) -> tuple[int, ...]:
        """Numbers of the dynamic loops now running, outermost first."""
        return tuple(loop.loop.number for loop in self._loops)

    def outlives_iteration(self, storage: Storage) -> bool:
        """Whether a tensor was there before the innermost dynamic loop now running."""
        if not self._loops:
            return False
        return storage.allocation.index < self._loops[-1].loop.allocations_before

    def follows_counter(self, *values: object) -> bool:
        """Whether one of the values changes with a dynamic loop now running."""
        followed = [v.loop_factors for v in values if isinstance(v, RunTimeValue)]
        return any(self._running(number) is not None for factors in followed for number in factors)

    def count(self, value: int | None) -> None:
        """The value of the innermost loop's counter; None where a shape-only run has none."""
        self._loops[-1].count = value

    def next_iteration(self, *, only_checked: bool = False) -> None:
        """An iteration has ended, and another begins: run, held against the first, not recorded.

        `only_checked`: it stands for no iteration that the first one did not stand for.
        """
        innermost = self._loops[-1]
        if only_checked:
            self._checking += 1
            innermost.checking = True
        if innermost.iterations == 0:
            self._replaying += 1
            self.memory.replaying = True
        self._end_iteration(innermost)
        self._iterations.add(innermost.iteration)
        self.memory.next_index = innermost.loop.allocations_before

    def _end_iteration(self, innermost: OpenLoop) -> None:
        self._iterations.discard(innermost.iteration)
        innermost.end_iteration(self.memory.next_index)

    def end_loop(self, who: str, loop: Loop) -> None:
        """Leave the loop; what it shares with the code around it lives through all of it."""
        ended = self._loops[-1]
        assert ended.loop is loop, "loops end in the order they began, reversed"
        self._end_iteration(ended)
        self._loops.pop()
        self._checking -= ended.checking
        if ended.iterations > 1:
            self._replaying -= 1
            self.memory.replaying = self._replaying > 0
        self._items = ended.outside
        self.memory.next_index = ended.allocated
        if not self._replaying:
            self._leave_region()
            self._keep_alive(loop)
            self._checks.count(who, loop.trips)
            self._checks.leave(loop)

    def _leave_region(self) -> None:
        self._inside = self.regions
        for _ in self._loops:
            self._inside = self._inside[-1].inside

    def require_ended(self) -> None:
        """Refuse a kernel that left a dynamic loop before its end."""
        if self._loops:
            raise NkiValidationError(
                "a dynamic loop that the kernel left by break or return",
                instruction="nl.dynamic_range",
                limit="a hardware loop runs to its end",
                remedy="bound the loop by a register, or use nl.while_loop",
            )

    def _keep_alive(self, loop: Loop) -> None:
        body = list(walk(loop.body))
        if not body:
            return
        first, last = body[0].index, body[-1].index
        for instruction in body:
            for access in (*instruction.reads, *instruction.writes):
                if access.allocation.index < loop.allocations_before:
                    access.allocation.first_use = min(access.allocation.first_use, first)
                    access.allocation.last_use = max(access.allocation.last_use, last)
