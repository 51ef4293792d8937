"""A convolution traced and scheduled: its launches, each with a timeline for every reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nkisim import Run
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule
from trnconv.ask.launches import planned_parts
from trnconv.ask.question import Question
from trnconv.forms.form import Priced
from trnconv.planner.best import best_plan
from trnconv.runtime.launch import trace_plan

READINGS = tuple(Reading)
_OF_ONE_CORE = ("tensor", "vector", "scalar", "gpsimd", "dma", "dma issue")


@dataclass(frozen=True)
class TimedLaunch:
    """One launch of a convolution's kernel on one core."""

    taken: Priced
    run: Run
    timelines: dict[Reading, Timeline]


@dataclass(frozen=True)
class TimedLayer:
    """All launches of one call, one after the other. Modelled."""

    question: Question
    launches: tuple[TimedLaunch, ...]  # equal ones are the same object

    @property
    def machine(self) -> Machine:
        """Where it would run."""
        return self.question.machine

    @property
    def longest(self) -> TimedLaunch:
        """The launch to look at."""
        return max(self.launches, key=lambda one: next(iter(one.timelines.values())).makespan_ns)

    def ns(self, reading: Reading = Reading.default) -> float:
        """Time on the core, launches themselves not counted."""
        return sum(one.timelines[reading].makespan_ns for one in self.launches)

    def busy_shares(self, reading: Reading = Reading.default) -> dict[str, float]:
        """How much of that time each engine works."""
        lines = [one.timelines[reading] for one in self.launches]
        total = self.ns(reading)
        busy = {name: sum(line.busy_ns.get(name, 0.0) for line in lines) for name in _OF_ONE_CORE}
        return {name: ns / total for name, ns in busy.items() if ns}

    def of_peak(self, reading: Reading = Reading.default) -> float:
        """Multiply-adds of a direct convolution over what the array could have done in the time.

        A fast algorithm does fewer: it may pass 1.
        """
        return self.question.shape.macs() / (macs_per_ns(self.machine) * self.ns(reading))

    def array_use(self, reading: Reading = Reading.default) -> float:
        """Multiply-adds the array did, over what it could have done (MFU)."""
        done = sum(one.timelines[reading].flops for one in self.launches) / 2
        return done / (macs_per_ns(self.machine) * self.ns(reading))

    @property
    def hbm_bytes(self) -> int:
        """Traffic with HBM; the same in every reading."""
        return sum(int(_any(one).hbm_bytes) for one in self.launches)

    @property
    def static_instructions(self) -> int:
        """In the programs of all launches."""
        return sum(_any(one).static_instructions for one in self.launches)

    @property
    def executed_instructions(self) -> int:
        """Turns of loops counted."""
        return sum(_any(one).executed_instructions for one in self.launches)


def _any(launch: TimedLaunch) -> Timeline:
    return next(iter(launch.timelines.values()))


def macs_per_ns(machine: Machine) -> float:
    """What the whole array does at its clock."""
    return float(machine.partitions**2 * machine.timing.pe_ghz)


def time_layer(question: Question, readings: Sequence[Reading] = READINGS) -> TimedLayer:
    """Plan, trace without data, and schedule; launches of equal shape once."""
    parts = planned_parts(question, lambda part: _scheduled(best_plan(part), readings))
    return TimedLayer(question, tuple(launch for _, launch in parts))


def time_taken(
    question: Question, taken: Priced, readings: Sequence[Reading] = READINGS
) -> TimedLayer:
    """The same for a plan that was taken before, of a layer of one launch."""
    return TimedLayer(question, (_scheduled(taken, readings),))


def _scheduled(taken: Priced, readings: Sequence[Reading]) -> TimedLaunch:
    run = trace_plan(taken.plan)
    lines = {
        reading: schedule(run.trace, run.machine, reading, memory=run.memory)
        for reading in readings
    }
    return TimedLaunch(taken, run, lines)
