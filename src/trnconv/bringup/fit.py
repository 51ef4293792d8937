"""Constants from measured times: the timing model is asked which values would have given them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nkisim.machine import Machine
from trnconv.bringup.runner import latency_ns, traced
from trnconv.bringup.timing_kernels import Clocked

_ROUNDS: Final = 3  # over all constants: each moves what others are fitted to
_STEPS: Final = 24  # of a bisection
_WIDEST: Final = 8.0  # a constant is looked for within so many times what is published
_LEAST_SHARE: Final = 0.1  # of a time that a constant has to decide, to be told from it
_NUDGE: Final = 1.1

Measure = Callable[[Clocked], float]


@dataclass(frozen=True)
class Fitted:
    """A constant: what was published or assumed, and what the times say; None: they do not."""

    field: str
    unit: str
    published: float
    value: float | None
    measured_ns: float


def fitted(
    clocked: Sequence[Clocked], machine: Machine, cores: int, measure: Measure
) -> list[Fitted]:
    """Every constant that a measured time decides, all of them at once."""
    traced = [_Traced(constant, machine, cores) for constant in clocked]
    times = [measure(constant) for constant in clocked]
    values: dict[str, float] = {}
    told = [constant.share(machine) >= _LEAST_SHARE for constant in traced]
    for _ in range(_ROUNDS):
        for constant, time, is_told in zip(traced, times, told, strict=True):
            if is_told:
                values[constant.field] = constant.value_of(time, _with(machine, values))
    return [
        Fitted(
            constant.field,
            constant.clocked.unit,
            float(getattr(machine.timing, constant.field)),
            values.get(constant.field),
            time,
        )
        for constant, time in zip(traced, times, strict=True)
    ]


def _with(machine: Machine, values: dict[str, float]) -> Machine:
    changes: Any = values
    return replace(machine, timing=replace(machine.timing, **changes))


class _Traced:
    """The two calls of a constant, traced once and timed on any machine."""

    def __init__(self, clocked: Clocked, machine: Machine, cores: int) -> None:
        self.clocked = clocked
        self.field = clocked.field
        self.runs = [
            traced(clocked.kernel, (*clocked.arrays, *constants), machine, cores)
            for constants in (clocked.many, clocked.few)
            if constants is not None
        ]

    def time(self, machine: Machine) -> float:
        """What the model gives for what is measured."""
        first, *others = (latency_ns(run, machine) for run in self.runs)
        return first - sum(others)

    def share(self, machine: Machine) -> float:
        """How much of the time follows the constant."""
        now = float(getattr(machine.timing, self.field))
        nudged = self.time(_with(machine, {self.field: now * _NUDGE}))
        before = self.time(machine)
        return abs(nudged - before) / before / (_NUDGE - 1) if before else 0.0

    def value_of(self, time: float, machine: Machine) -> float:
        """The value with which the model gives a time, others as they are."""
        now = float(getattr(machine.timing, self.field))
        low, high = now / _WIDEST, now * _WIDEST
        rising = self.time(_with(machine, {self.field: high})) > self.time(
            _with(machine, {self.field: low})
        )
        for _ in range(_STEPS):
            middle = (low + high) / 2
            above = self.time(_with(machine, {self.field: middle})) > time
            if above == rising:
                high = middle
            else:
                low = middle
        return (low + high) / 2
