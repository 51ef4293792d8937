"""A convolution traced and scheduled: its launches, each with a timeline for every reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nkisim import Run
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule
from trnconv.geometry import TransposedShape
from trnconv.plan.choose import Priced
from trnconv.plan.fast_candidates import PricedFast
from trnconv.plan.fast_choose import in_words as fast_in_words
from trnconv.plan.parts import planned_parts
from trnconv.plan.question import Question, Shape, best_plan
from trnconv.runtime.modelled import trace_plan

READINGS = tuple(Reading)
DIRECT = "direct"
_OF_ONE_CORE = ("tensor", "vector", "scalar", "gpsimd", "dma", "dma issue")


@dataclass(frozen=True)
class TimedLaunch:
    """One launch of a convolution's kernel on one core."""

    shape: Shape
    taken: Priced | PricedFast
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

    def timed(shape: Shape) -> TimedLaunch:
        return _timed(replace(question, shape=shape), readings)

    if isinstance(question.shape, TransposedShape):
        return TimedLayer(question, (timed(question.shape),))
    parts = planned_parts(question.shape, timed)
    return TimedLayer(question, tuple(launch for _, launch in parts))


def time_taken(
    question: Question, taken: Priced | PricedFast, readings: Sequence[Reading] = READINGS
) -> TimedLayer:
    """The same for a plan that was taken before, of a layer of one launch."""
    return TimedLayer(question, (_scheduled(question, taken, readings),))


def _timed(question: Question, readings: Sequence[Reading]) -> TimedLaunch:
    return _scheduled(question, best_plan(question), readings)


def _scheduled(
    question: Question, taken: Priced | PricedFast, readings: Sequence[Reading]
) -> TimedLaunch:
    run = trace_plan(taken.plan, question.shape)
    lines = {
        reading: schedule(run.trace, run.machine, reading, memory=run.memory)
        for reading in readings
    }
    return TimedLaunch(question.shape, taken, run, lines)


def algorithm(taken: Priced | PricedFast) -> str:
    """Direct, or the transform and the axis it goes along."""
    if isinstance(taken, Priced):
        return DIRECT
    return f"{taken.plan.transform}, {'rows' if taken.plan.by_rows else 'frames'}"


def plan_in_words(taken: Priced | PricedFast) -> str:
    """The decisions in a line."""
    if isinstance(taken, PricedFast):
        return fast_in_words(taken.plan)
    plan = taken.plan
    loop = f"a hardware loop of {plan.body_blocks} blocks a turn" if plan.rolled else "unrolled"
    weights = "weights streamed" if plan.streamed else "weights in SBUF"
    return (
        f"direct, blocks of {plan.frames} frames x {plan.rows} rows x {plan.columns} columns,"
        f" {weights}, {loop}"
    )
