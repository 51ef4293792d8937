"""Schedule: traces in, timelines out. One core for itself, or both cores of a launch together.

The work is done by `CoreSchedule`, a generator. It stops where it has a question, and whoever runs
it answers: `schedule` here for one core, `Pair` for two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nkisim.machine import Machine, Reading
from nkisim.memory.placement import MemoryUse
from nkisim.timing.core_schedule import CoreSchedule, IterationEnd
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
    both. `extrapolate=False` runs every iteration of every loop. `per_tensor=True` is stricter
    about waiting: instructions on different parts of one on-chip tensor wait for each other, too,
    as KILN (a source of `machine.py`) reports of a compiler.
    """
    made = CoreSchedule(
        machine.read(reading), trace, SharedLimit(), per_tensor=per_tensor, paired=False
    )
    steps = made.steps()
    stop = next(steps, None)
    while stop is not None:
        assert isinstance(stop, IterationEnd), "a core for itself meets nobody"
        # All iterations that are left but the last, which is always scheduled (see `Elision`).
        left_out = stop.left - 1 if extrapolate and stop.repeats else 0
        try:
            stop = steps.send(left_out)
        except StopIteration:
            stop = None
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
    of their HBM stack. The launch takes as long as the longer one.
    """
    if len(traces) == 1:
        options = {"extrapolate": extrapolate, "per_tensor": per_tensor}
        return (schedule(traces[0], machine, reading, memory=memories[0], **options),)
    read = machine.read(reading)
    # The pessimistic reading of a core for itself halves the stack, because the other core may be
    # busy. Here the other core's traffic is scheduled, so all of the stack is there to be shared.
    stack = machine.read(Reading.optimistic).timing.hbm_bytes_per_ns
    read = replace(read, timing=replace(read.timing, hbm_bytes_per_ns=stack))
    # To share HBM, the cores place one instruction each in turn. A reordering window places many of
    # one core at once: there, each core has the whole stack for itself.
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
    """Everything that was scheduled, added up.

    `machine` is the one that was asked about, with its open points; `made.machine` is it as read.
    """
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
