"""A convolution traced and scheduled: its launches, each with a timeline for every reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nkisim import Run
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule_launch
from trnconv.algorithms.algorithm import Priced
from trnconv.planner.best import best_plan
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.launches import planned_parts
from trnconv.runtime.launch import trace_plans

if TYPE_CHECKING:
    from nkisim.memory.placement import MemoryUse

READINGS = tuple(Reading)
_OF_ONE_CORE = ("tensor", "vector", "scalar", "gpsimd", "dma", "dma issue")


@dataclass(frozen=True)
class TimedLaunch:
    """One launch of a convolution's kernel, on one core or on two that share a clock and HBM."""

    plans: tuple[Priced, ...]  # one for each core
    run: Run
    cores: dict[Reading, tuple[Timeline, ...]]

    @property
    def last(self) -> int:
        """The core that ends last, in the first reading."""
        lines = next(iter(self.cores.values()))
        return max(range(len(lines)), key=lambda core: lines[core].makespan_ns)

    @property
    def taken(self) -> Priced:
        """The plan of the core that ends last."""
        return self.plans[self.last]

    @property
    def timelines(self) -> dict[Reading, Timeline]:
        """Of the core that ends last."""
        return {reading: lines[self.last] for reading, lines in self.cores.items()}

    def ns(self, reading: Reading) -> float:
        """Until the last core ends."""
        return max(line.makespan_ns for line in self.cores[reading])

    @property
    def memory(self) -> MemoryUse:
        """Of the core that ends last."""
        return self.run.memories[self.last]


@dataclass(frozen=True)
class TimedLayer:
    """All launches of one call, one after the other. Modelled."""

    problem: ConvProblem
    launches: tuple[TimedLaunch, ...]  # equal ones are the same object

    @property
    def machine(self) -> Machine:
        """Where it would run."""
        return self.problem.machine

    @property
    def launched(self) -> int:
        """Cores of a launch."""
        return len(self.launches[0].plans)

    @property
    def longest(self) -> TimedLaunch:
        """The launch to look at."""
        return max(self.launches, key=lambda launch: launch.ns(next(iter(launch.cores))))

    def ns(self, reading: Reading = Reading.default) -> float:
        """Until the last core of every launch ends, launches themselves not counted."""
        return sum(launch.ns(reading) for launch in self.launches)

    def _lines(self, reading: Reading) -> list[Timeline]:
        """Of all cores of all launches."""
        return [line for launch in self.launches for line in launch.cores[reading]]

    def busy_shares(self, reading: Reading = Reading.default) -> dict[str, float]:
        """How much of that time each engine works; of two cores, on average."""
        lines = self._lines(reading)
        total = self.launched * self.ns(reading)
        busy = {name: sum(line.busy_ns.get(name, 0.0) for line in lines) for name in _OF_ONE_CORE}
        return {name: ns / total for name, ns in busy.items() if ns}

    def of_peak(self, reading: Reading = Reading.default) -> float:
        """Multiply-adds of a direct convolution over what the arrays could have done in the time.

        A fast algorithm does fewer: it may pass 1.
        """
        return self.problem.shape.macs() / (self._macs_per_ns * self.ns(reading))

    def array_use(self, reading: Reading = Reading.default) -> float:
        """Multiply-adds the arrays did, over what they could have done (MFU)."""
        done = sum(line.flops for line in self._lines(reading)) / 2
        return done / (self._macs_per_ns * self.ns(reading))

    @property
    def _macs_per_ns(self) -> float:
        return self.launched * macs_per_ns(self.machine)

    @property
    def hbm_bytes(self) -> int:
        """Traffic of all cores with HBM; the same in every reading."""
        return sum(int(line.hbm_bytes) for line in self._lines(self._any))

    @property
    def static_instructions(self) -> int:
        """In the programs of all launches; of two cores, the longer one's."""
        return sum(
            max(line.static_instructions for line in launch.cores[self._any])
            for launch in self.launches
        )

    @property
    def executed_instructions(self) -> int:
        """Iterations of loops counted, on all cores."""
        return sum(line.executed_instructions for line in self._lines(self._any))

    @property
    def _any(self) -> Reading:
        return next(iter(self.launches[0].cores))


def macs_per_ns(machine: Machine) -> float:
    """What the whole array does at its clock."""
    return float(machine.partitions**2 * machine.timing.pe_ghz)


def time_layer(
    problem: ConvProblem, readings: Sequence[Reading] = READINGS, cores: int | None = None
) -> TimedLayer:
    """Plan, trace without data, and schedule; launches of equal shape once.

    `cores` of a launch: None is what the machine's has.
    """
    parts = planned_parts(problem, lambda part: _scheduled(_plans(part, cores), readings))
    return TimedLayer(problem, tuple(launch for _, launch in parts))


def time_taken(
    problem: ConvProblem, plans: tuple[Priced, ...], readings: Sequence[Reading] = READINGS
) -> TimedLayer:
    """The same for plans that were taken before, one for each core, of a layer of one launch."""
    return TimedLayer(problem, (_scheduled(plans, readings),))


def _plans(problem: ConvProblem, cores: int | None) -> tuple[Priced, ...]:
    alone = cores_of(problem.machine, cores) == 1
    return (best_plan(problem),) if alone else shared_plans(problem)


def _scheduled(plans: tuple[Priced, ...], readings: Sequence[Reading]) -> TimedLaunch:
    run = trace_plans(tuple(priced.plan for priced in plans))
    lines = {
        reading: schedule_launch(run.traces, run.machine, reading, memories=run.memories)
        for reading in readings
    }
    return TimedLaunch(plans, run, lines)
