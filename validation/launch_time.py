"""LaunchTime: how long one launch of a traced kernel takes on a machine, on one core or two.

Everything in this folder that schedules goes through `launch_time`, so that there is one place to
say how the cores of a launch are timed together.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkisim import Run
from nkisim.machine import Machine, Reading
from nkisim.timing import schedule_launch


@dataclass(frozen=True)
class LaunchTime:
    """Modelled, in ns."""

    makespan_ns: float  # without launch
    launch_ns: float
    bound: str  # the busiest engine of the core that ends last
    scheduled: int  # instructions looked at, of all cores; iterations of a loop that repeat are not


def launch_time(run: Run, machine: Machine, reading: Reading = Reading.default) -> LaunchTime:
    """The launch ends with the slower of its cores; both are on one clock."""
    timelines = schedule_launch(run.traces, machine, reading, memories=run.memories)
    last = max(timelines, key=lambda timeline: timeline.makespan_ns)
    scheduled = sum(len(timeline.events) for timeline in timelines)
    return LaunchTime(last.makespan_ns, last.launch_ns, last.bound, scheduled)
