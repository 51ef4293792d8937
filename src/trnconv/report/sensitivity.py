"""What the open points of the timing model do to a layer: schedule it again, one changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nkisim.machine import Reading
from nkisim.timing import schedule_launch
from trnconv.report.content import Effect, ReadingRow
from trnconv.report.schedules import TimedLaunch, TimedLayer

_NOTHING = 5e-5  # of the time: what would be shown as 0.0 %


def reading_row(number: int, cost_model_ns: float, timed: TimedLayer) -> ReadingRow:
    """A layer that was scheduled in every reading."""
    return ReadingRow(
        number=number,
        cost_model_ns=cost_model_ns,
        optimistic_ns=timed.ns(Reading.optimistic),
        default_ns=timed.ns(Reading.default),
        pessimistic_ns=timed.ns(Reading.pessimistic),
    )


def effects(launch: TimedLaunch) -> Iterator[Effect]:
    """Every open point of the machine, by name: the time if it alone had its other values."""
    before = launch.ns(Reading.default)
    for name, open_point in launch.run.machine.timing.assumptions().items():
        changes = [
            0.0 if value == open_point else _ns_with(launch, name, value) / before - 1
            for value in (open_point.optimistic, open_point.pessimistic)
        ]
        yield Effect(
            name=name,
            default=float(open_point),
            optimistic=open_point.optimistic,
            pessimistic=open_point.pessimistic,
            optimistic_change=changes[0],
            pessimistic_change=changes[1],
        )


def _ns_with(launch: TimedLaunch, name: str, value: float) -> float:
    machine = launch.run.machine
    changed = replace(machine, timing=replace(machine.timing, **{name: value}))  # type: ignore[arg-type] # all are floats
    lines = schedule_launch(launch.run.traces, changed, Reading.default)
    return max(line.makespan_ns for line in lines)


def largest_first(effects: Sequence[Effect]) -> tuple[tuple[Effect, ...], tuple[str, ...]]:
    """Those that change the time, and the names of the others."""
    seen = [effect for effect in effects if _size(effect) >= _NOTHING]
    names = tuple(effect.name for effect in effects if _size(effect) < _NOTHING)
    return tuple(sorted(seen, key=lambda effect: -_size(effect))), names


def _size(effect: Effect) -> float:
    return max(abs(effect.optimistic_change), abs(effect.pessimistic_change))
