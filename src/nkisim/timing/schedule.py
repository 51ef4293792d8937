"""Schedule: traces in, timelines out. One core for itself, or both cores of a launch together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nkisim.machine import Machine, Reading
from nkisim.memory.placement import MemoryUse
from nkisim.timing.core_schedule import CoreSchedule, TurnEnd
from nkisim.timing.pair import Pair
from nkisim.timing.shared_limit import SharedLimit
from nkisim.timing.timeline import Timeline
from nkisim.trace import Trace


def schedule(
    trace: Trace,
    machine: Machine,
    reading: Reading = Reading.default,
    *,
    memory: MemoryUse | None = None,
    extrapolate: bool = True,
    per_tensor: bool = False,
) -> Timeline:
    """When every instruction of a trace would run on a machine, read one way.

    Of a launch on two cores this is one core that never waits for the other: `schedule_launch` has
    both. `extrapolate=False` runs every iteration of every loop. `per_tensor=True` lets
    instructions wait for each other that touch different parts of one on-chip tensor (KILN).
    """
    made = CoreSchedule(
        machine.read(reading), trace, SharedLimit(), per_tensor=per_tensor, paired=False
    )
    steps = made.steps()
    asked = next(steps, None)
    while asked is not None:
        assert isinstance(asked, TurnEnd), "a core for itself meets nobody"
        left_out = asked.left - 1 if extrapolate and asked.repeats else 0
        try:
            asked = steps.send(left_out)
        except StopIteration:
            asked = None
    return _timeline(made, machine, reading, memory)


def schedule_launch(
    traces: Sequence[Trace],
    machine: Machine,
    reading: Reading = Reading.default,
    *,
    memories: Sequence[MemoryUse | None] = (None, None),
    extrapolate: bool = True,
    per_tensor: bool = False,
) -> tuple[Timeline, ...]:
    """The timelines of all cores of a launch, on one clock that starts with both of them.

    core_barrier and sendrecv run when both cores are ready for them; the two share the bandwidth
    of their HBM stack, in every reading all of it. The launch takes as long as the longer one.
    """
    if len(traces) == 1:
        options = {"extrapolate": extrapolate, "per_tensor": per_tensor}
        return (schedule(traces[0], machine, reading, memory=memories[0], **options),)
    read = machine.read(reading)
    stack = machine.read(Reading.optimistic).timing.hbm_bytes_per_ns  # of nobody else's traffic
    read = replace(read, timing=replace(read.timing, hbm_bytes_per_ns=stack))
    # A window places many instructions of a core at once: there, each core has HBM for itself.
    shared = SharedLimit() if read.timing.reorder_window == 1 else None
    one, two = (
        CoreSchedule(read, trace, shared or SharedLimit(), per_tensor=per_tensor, paired=True)
        for trace in traces
    )
    Pair((one, two), extrapolate=extrapolate).run()
    return tuple(
        _timeline(core, machine, reading, memory)
        for core, memory in zip((one, two), memories, strict=True)
    )


def _timeline(
    made: CoreSchedule, machine: Machine, reading: Reading, memory: MemoryUse | None
) -> Timeline:
    """Everything that was scheduled, added up."""
    return Timeline(
        machine=machine,
        reading=reading,
        makespan_ns=made.makespan,
        launch_ns=made.machine.timing.launch_ns,
        busy_ns=made.core.busy_ns,
        flops=made.flops,
        hbm_bytes=made.core.hbm_bytes,
        static_instructions=made.trace.static_count,
        compiler_instructions=made.trace.compiler_count,
        executed_instructions=made.executed,
        memory=memory,
        events=made.events,
        elisions=tuple(made.elisions),
        unknown_loops=made.trace.unknown_loops,
    )
