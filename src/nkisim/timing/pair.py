"""Pair: two cores of a launch on one clock. They meet where the kernel says so, and share HBM."""

from __future__ import annotations

from math import isclose
from typing import NamedTuple

from nkisim.timing.core_schedule import Arrival, CoreSchedule, IterationEnd, Placement, Stop

_SAME = 1e-3  # relative difference of two iterations that count as equal: HBM is shared in turns


class _Iterations(NamedTuple):
    """The ends of one turn on both cores."""

    ends: tuple[IterationEnd, IterationEnd]

    @property
    def offset_ns(self) -> float:
        """How much later the second core ends it."""
        return self.ends[1].at_ns - self.ends[0].at_ns

    def follows(self, earlier: _Iterations) -> bool:
        """Whether it is the next iteration after another one and like it in everything.

        Cores that do not meet in the loop may drift apart in it.
        """
        took = max(end.took_ns for end in self.ends)
        pairs = list(zip(earlier.ends, self.ends, strict=True))
        return (
            self.ends[0].left == self.ends[1].left
            and all(then.left == now.left + 1 and now.repeats for then, now in pairs)
            and all(isclose(then.took_ns, now.took_ns, rel_tol=_SAME) for then, now in pairs)
            and (not self.ends[0].meets or abs(earlier.offset_ns - self.offset_ns) < _SAME * took)
        )


class Pair:
    """Runs the schedules of both cores, an instruction of each in turn."""

    def __init__(self, cores: tuple[CoreSchedule, CoreSchedule], *, extrapolate: bool) -> None:
        self._steps = [core.steps() for core in cores]
        self._asked: list[Stop | None] = [Placement(), Placement()]
        self._extrapolate = extrapolate
        self._iterations: dict[int, _Iterations] = {}  # the last iteration of every loop, by number

    def run(self) -> None:
        """Schedule both traces."""
        self._asked = [next(steps, None) for steps in self._steps]
        while any(asked is not None for asked in self._asked):
            self._go_on()

    def _go_on(self) -> None:
        """Answer whoever can be answered."""
        one, two = self._asked
        if isinstance(one, Placement) or isinstance(two, Placement):
            for core, asked in enumerate((one, two)):
                if isinstance(asked, Placement):
                    self._answer(core, 0.0)
        elif (
            isinstance(one, IterationEnd) and isinstance(two, IterationEnd) and one.loop == two.loop
        ):
            skipped = self._skipped(_Iterations((one, two)))
            for core in (0, 1):
                self._answer(core, skipped)
        elif isinstance(one, IterationEnd):
            self._answer(0, 0.0)
        elif isinstance(two, IterationEnd):
            self._answer(1, 0.0)
        else:
            assert isinstance(one, Arrival), "a core that has ended meets nobody"
            assert isinstance(two, Arrival), "a core that has ended meets nobody"
            assert one.meeting == two.meeting, "both cores meet in the same order"
            self._answer(0, two.at_ns)
            self._answer(1, one.at_ns)

    def _answer(self, core: int, answer: float) -> None:
        try:
            self._asked[core] = self._steps[core].send(answer)
        except StopIteration:
            self._asked[core] = None

    def _skipped(self, iterations: _Iterations) -> int:
        """How many iterations to leave out on both cores."""
        loop = iterations.ends[0].loop
        earlier = self._iterations.get(loop)
        self._iterations[loop] = iterations
        if not self._extrapolate or earlier is None or not iterations.follows(earlier):
            return 0
        return iterations.ends[0].left - 1
