"""Stream: a row's kernel, traced once, and timed as often as there are machines and readings."""

from __future__ import annotations

from dataclasses import dataclass

import nkisim
from nkisim import Kernel, Run
from nkisim.machine import Machine, Reading
from validation.launch_time import launch_time
from validation.row import Row


@dataclass(frozen=True)
class Timed:
    """What is modelled for a row, in the unit of its published figure."""

    us: float
    bound: str
    scheduled: int  # instructions that the scheduler looked at


@dataclass(frozen=True)
class Stream:
    """The instructions of a row: one launch, or two where the figure is a slope."""

    row: Row
    runs: tuple[Run, ...]  # with `repeats` and with twice as many, for a slope

    @property
    def machine(self) -> Machine:
        """The machine of the row."""
        return self.runs[0].machine

    def time(self, reading: Reading = Reading.default, machine: Machine | None = None) -> Timed:
        """The row's figure as modelled; `machine` replaces the row's, to change a constant."""
        times = [launch_time(run, machine or self.machine, reading) for run in self.runs]
        scheduled, last = sum(time.scheduled for time in times), times[-1]
        if self.row.repeats:
            few, many = times
            ns = (many.makespan_ns - few.makespan_ns) / self.row.repeats
        else:
            ns = last.makespan_ns + _launch_ns(self.row, last.launch_ns)
        return Timed(ns / 1e3, last.bound, scheduled)


def _launch_ns(row: Row, of_machine: float) -> float:
    if not row.includes_launch:
        return 0.0
    return of_machine if row.launch_us is None else 1e3 * row.launch_us


def stream_of(row: Row) -> Stream:
    """Run a row's kernel without values, as often as its figure needs."""
    if not row.repeats:
        return Stream(row, (_run(row, {}),))
    return Stream(row, tuple(_run(row, {"repeats": times * row.repeats}) for times in (1, 2)))


def _run(row: Row, changed: dict[str, int]) -> Run:
    kernel = row.kernel if isinstance(row.kernel, Kernel) else Kernel(row.kernel)
    launched = kernel if row.cores == 1 else kernel[row.cores]
    options = row.options | changed
    return nkisim.run(
        launched, *row.arguments, machine=row.machine, lnc=row.cores, values=False, **options
    )
