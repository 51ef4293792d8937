"""Running kernels: nki.jit, kernel[lnc](...), nki.simulate, and nkisim's own `run`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from nkisim.device_rules.rule_monitor import TouchedRule
from nkisim.device_rules.switches import read_switches
from nkisim.errors import NkiValidationError, RaceError, refuse
from nkisim.machine import Machine, find_machine
from nkisim.memory.placement import MemoryUse
from nkisim.numerics import dtypes
from nkisim.running.api_version import selected_version
from nkisim.running.build import Build, Buildable, build_of, schedule_edges
from nkisim.running.cores import CorePair
from nkisim.running.environment import default_machine, default_precise, logical_cores
from nkisim.running.garbage import collected_rarely
from nkisim.running.host_arrays import like
from nkisim.running.inspection import Inspection, Inspector
from nkisim.running.launch import Launch
from nkisim.running.launch_rules import launch_rules
from nkisim.running.outputs import require_written
from nkisim.running.races import Race, find_races
from nkisim.running.schedule_edges import Edges, add_edges
from nkisim.running.session import (
    FAST,
    RACE_HANDLING,
    REFUSE,
    REPORT,
    SUMMATIONS,
    Session,
    Settings,
    current_or_none,
)
from nkisim.running.tracebacks import ending_at_user
from nkisim.tensors.indirection import read_held
from nkisim.trace import Trace

_Each = TypeVar("_Each")
_DEFAULT_BUILD = Build()


def _only(name: str, each: tuple[_Each, ...]) -> _Each:
    if len(each) != 1:
        plural = "memories" if name == "memory" else f"{name}s"
        refuse(
            f"Run.{name}",
            f"a run on {len(each)} cores",
            f"there is one {name} per core",
            f"use .{plural}[core]",
        )
    return each[0]


@dataclass(frozen=True)
class Run:
    """What a kernel did: its outputs, and per core its trace and its use of memory."""

    outputs: Any  # what the kernel returned, as arrays; None in a shape-only run
    output_shapes: tuple[tuple[tuple[int, ...], str], ...]
    machine: Machine
    traces: tuple[Trace, ...]
    memories: tuple[MemoryUse, ...]
    races: tuple[Race, ...] = ()
    inspection: Inspection | None = None  # of runs that asked for it
    rules: tuple[TouchedRule, ...] = ()  # device rules that the kernel broke, and ran all the same

    @property
    def trace(self) -> Trace:
        """The trace of the one core; a launch on two cores has `traces`."""
        return _only("trace", self.traces)

    @property
    def memory(self) -> MemoryUse:
        """The memory use of the one core; a launch on two cores has `memories`."""
        return _only("memory", self.memories)


class Kernel(Buildable):
    """A function that runs as an NKI kernel; `kernel[2]` launches it on two cores."""

    def __init__(
        self,
        func: Callable[..., Any],
        lnc: int | None = None,
        edges: Edges = (),
        build: Build = _DEFAULT_BUILD,
    ) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.lnc = lnc
        self.edges = edges
        self.build = build

    @property
    def title(self) -> str:
        """What messages call the kernel."""
        return f"kernel {getattr(self.func, '__name__', repr(self.func))}"

    def __getitem__(self, lnc: int) -> Kernel:
        if lnc not in (1, 2) or isinstance(lnc, bool):
            refuse(
                self.title,
                f"launch grid [{lnc!r}]",
                "1 or 2 (cores of a logical NeuronCore)",
                "launch with kernel[1] or kernel[2]",
            )
        return self._with(lnc=lnc)

    def with_schedule(self, edges: Any) -> Kernel:
        """The kernel with extra order: ("consumer", "producer" or [producers]) by name."""
        return self._with(edges=schedule_edges(self.title, edges))

    def _with_build(self, build: Build) -> Kernel:
        return self._with(build=build)

    def _with(self, **changed: Any) -> Kernel:
        """The same kernel with other options."""
        options = {name: getattr(self, name) for name in ("lnc", "edges", "build")}
        return Kernel(self.func, **(options | changed))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; inside of another kernel, a plain call."""
        if current_or_none() is not None:
            return self.func(*args, **kwargs)
        return run(self, *args, **kwargs).outputs


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a function a kernel. Options for the compiler are kept in `Kernel.build`."""
    build = build_of(kwargs)
    if fn is None:
        return functools.partial(Kernel, build=build)
    return fn if isinstance(fn, Kernel) else Kernel(fn, build=build)


class Simulated:
    """A kernel that runs on the CPU when called; `simulate(kernel)[2](...)` uses two cores."""

    def __init__(self, kernel: Kernel, **how: Any) -> None:
        self.kernel = kernel
        self.how = how  # machine, lnc and rules, as for `run`

    def __getitem__(self, lnc: int) -> Simulated:
        return Simulated(self.kernel[lnc], **self.how)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays."""
        try:
            return run_kernel(self.kernel, args, kwargs, _settings(**self.how)).outputs
        except (NkiValidationError, AttributeError) as error:
            raise ending_at_user(error) from error.__cause__


def simulate(
    kernel: Any,
    *,
    machine: str | Machine | None = None,
    lnc: int | None = None,
    rules: Sequence[str] | None = None,
) -> Simulated:
    """The kernel as a function on arrays, run by nkisim; `lnc` and `rules` as for `run`."""
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    return Simulated(wrapped, machine=machine, lnc=lnc, rules=rules)


def run(
    kernel: Any,
    *args: Any,
    machine: str | Machine | None = None,
    values: bool = True,
    summation: str = FAST,
    races: str = REFUSE,
    inspect: bool = False,
    lnc: int | None = None,
    rules: Sequence[str] | None = None,
    **kwargs: Any,
) -> Run:
    """Run a kernel and return everything about the run; `values=False` computes shapes only.

    summation="fixed" adds up the sums of a matrix product in an order that does not depend on its
    shape, so that an element has the same bits whatever stands beside it. It takes longer to run,
    and changes nothing in the trace.
    races="report" lists conflicting accesses of two cores in `Run.races` instead of refusing them.
    inspect=True fills `Run.inspection`: reads before any write, stores that nothing read, and the
    first NaN or Inf.

    `lnc` is the number of cores of a logical NeuronCore that the kernel is compiled for (default:
    NEURON_LOGICAL_NC_CONFIG, else 2 from trn2 on). `rules` are switches for device rules: "strict",
    and names of rules that are off (default: the words of NKISIM_RULES).
    """
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    try:
        _require_one_of("summation", summation, SUMMATIONS)
        _require_one_of("races", races, RACE_HANDLING)
        settings = replace(
            _settings(machine, lnc, rules),
            values=values,
            summation=summation,
            report_races=races == REPORT,
        )
        inspector = Inspector() if inspect else None
        return run_kernel(wrapped, args, kwargs, settings, inspector)
    except (NkiValidationError, AttributeError) as error:
        raise ending_at_user(error) from error.__cause__


def _require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        refuse(
            "nkisim.run",
            f"{name}={value!r}",
            f"one of {', '.join(allowed)}",
            "pass one of them, or leave it out",
        )


def _settings(
    machine: str | Machine | None, lnc: int | None, rules: Sequence[str] | None
) -> Settings:
    chosen = default_machine() if machine is None else find_machine(machine)
    return Settings(
        machine=chosen,
        precise=default_precise(),
        lnc=logical_cores(chosen, lnc),
        switches=read_switches(rules),
        nki=selected_version(),
    )


def run_kernel(
    kernel: Kernel,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    inspector: Inspector | None = None,
) -> Run:
    """Run a kernel under given settings, and let an inspector watch it."""
    cores = kernel.lnc or 1
    if cores > settings.machine.lnc_max:
        refuse(
            f"kernel {kernel.func.__name__}",
            f"a launch on {cores} cores of {settings.machine.name}",
            f"{settings.machine.lnc_max} core: logical NeuronCores exist from NeuronCore-v3 on",
            "launch on one core, or choose trn2 or trn3",
        )
    pair = CorePair() if cores == 2 else None
    launch = Launch(kernel, settings, pair)
    launch.inspector = inspector
    bound = launch.bind(args, kwargs)
    with collected_rarely():
        if pair is None:
            program = None if kernel.lnc is None else (0, 1)
            sessions = [Session(settings, program)]
            results = [launch.execute(sessions[0], bound)]
        else:
            sessions = [Session(settings, (core, cores), pair) for core in range(cores)]
            results = pair.run([functools.partial(launch.execute, s, bound) for s in sessions])
    races = () if pair is None else tuple(find_races(pair.log))
    if not settings.report_races:
        _refuse_races(races)
    memories = tuple(session.memory.use() for session in sessions)
    for session in sessions:
        add_edges(session.trace, kernel.edges)
    returned = [launch.returned(result) for result in results]
    launch.require_one_result(returned)
    require_written(kernel.title, returned[0])
    rules = launch_rules(sessions, settings, returned[0])
    launch.copy_back()
    outputs = _outputs(results[0], launch.example) if settings.values else None
    shapes = tuple([(tensor.shape, tensor.dtype) for tensor in returned[0]])
    traces = tuple([session.trace for session in sessions])
    inspection = None if inspector is None else inspector.found(returned[0])
    return Run(outputs, shapes, settings.machine, traces, memories, races, inspection, rules)


def _refuse_races(races: tuple[Race, ...]) -> None:
    if races:
        listed = "\n    ".join(str(race) for race in races[:8])
        raise RaceError(
            f"{len(races)} unordered conflicting accesses of two cores:\n    {listed}",
            limit="what one core writes the other may not touch without an order: a core_barrier"
            " orders accesses to its data, a sendrecv what its tiles come from or lead to",
            remedy="put nisa.core_barrier(tensor, (0, 1)) between them, or give the cores disjoint"
            ' slices; nkisim.run(..., races="report") lists races in Run.races instead',
            place=races[0].place,
        )


def _outputs(result: Any, example: Any) -> Any:
    if result is None:
        return None
    if isinstance(result, (tuple, list)):
        return tuple(_outputs(item, example) for item in result)
    host = dtypes.to_host(np.array(read_held(result)), result.dtype)
    return like(host, example)
