"""Running kernels: nki.jit, kernel[lnc](...), nki.simulate, and nkisim's own `run`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from nkisim.errors import NkiValidationError, RaceError, refuse
from nkisim.machine import Machine, find_machine
from nkisim.memory.placement import MemoryUse
from nkisim.memory.storage import Storage
from nkisim.numerics import dtypes
from nkisim.running.api_version import selected_version
from nkisim.running.argument_names import positional_names
from nkisim.running.build import Build, Buildable, build_of, schedule_edges
from nkisim.running.cores import CorePair
from nkisim.running.garbage import collected_rarely
from nkisim.running.host_arrays import is_array, like, spec_of, to_numpy, write_back
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
    activated,
    current_or_none,
)
from nkisim.running.target import default_machine, default_precise
from nkisim.running.tracebacks import ending_at_user
from nkisim.tensors.indirection import read_held
from nkisim.tensors.layout import MemoryRegion
from nkisim.tensors.registers import NKIObject
from nkisim.tensors.tensor import NkiTensor
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
        return Kernel(self.func, lnc, self.edges, self.build)

    def with_schedule(self, edges: Any) -> Kernel:
        """The kernel with extra order: ("consumer", "producer" or [producers]) by name."""
        return Kernel(self.func, self.lnc, schedule_edges(self.title, edges), self.build)

    def _with_build(self, build: Build) -> Kernel:
        return Kernel(self.func, self.lnc, self.edges, build)

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

    def __init__(self, kernel: Kernel, target: str | Machine | None = None) -> None:
        self.kernel = kernel
        self.target = target

    def __getitem__(self, lnc: int) -> Simulated:
        return Simulated(self.kernel[lnc], self.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays."""
        try:
            settings = _settings(self.target, values=True)
            return run_kernel(self.kernel, args, kwargs, settings).outputs
        except (NkiValidationError, AttributeError) as error:
            raise ending_at_user(error) from error.__cause__


def simulate(kernel: Any, *, target: str | Machine | None = None) -> Simulated:
    """The kernel as a function on arrays, run by nkisim."""
    return Simulated(kernel if isinstance(kernel, Kernel) else Kernel(kernel), target)


def run(
    kernel: Any,
    *args: Any,
    target: str | Machine | None = None,
    values: bool = True,
    summation: str = FAST,
    races: str = REFUSE,
    **kwargs: Any,
) -> Run:
    """Run a kernel and return everything about the run; `values=False` computes shapes only.

    summation="fixed" adds up the sums of a matrix product in an order that does not depend on its
    shape, so that an element has the same bits whatever stands beside it. It takes longer to run,
    and changes nothing in the trace.
    races="report" lists conflicting accesses of two cores in `Run.races` instead of refusing them.
    """
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    try:
        _require_one_of("summation", summation, SUMMATIONS)
        _require_one_of("races", races, RACE_HANDLING)
        settings = replace(
            _settings(target, values=values), summation=summation, report_races=races == REPORT
        )
        return run_kernel(wrapped, args, kwargs, settings)
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


def _settings(target: str | Machine | None, *, values: bool) -> Settings:
    machine = default_machine() if target is None else find_machine(target)
    return Settings(
        machine=machine, values=values, precise=default_precise(), nki=selected_version()
    )


def run_kernel(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], settings: Settings
) -> Run:
    """Run a kernel under given settings."""
    cores = kernel.lnc or 1
    if cores > settings.machine.lnc_max:
        refuse(
            f"kernel {kernel.func.__name__}",
            f"a launch on {cores} cores of {settings.machine.name}",
            f"{settings.machine.lnc_max} core: logical NeuronCores exist from NeuronCore-v3 on",
            "launch on one core, or choose trn2 or trn3",
        )
    pair = CorePair() if cores == 2 else None
    launch = _Launch(kernel, settings, pair)
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
    launch.copy_back()
    outputs = _outputs(results[0], launch.example) if settings.values else None
    shapes = tuple([(tensor.shape, tensor.dtype) for tensor in returned[0]])
    traces = tuple([session.trace for session in sessions])
    return Run(outputs, shapes, settings.machine, traces, memories, races)


@dataclass(frozen=True)
class _Argument:
    """One array argument: the caller's object and the HBM storage it became."""

    value: Any
    storage: Storage


class _Launch:
    """One call of a kernel: its arguments as HBM tensors, shared by the cores."""

    def __init__(self, kernel: Kernel, settings: Settings, pair: CorePair | None) -> None:
        self.kernel = kernel
        self.settings = settings
        shared = pair is not None
        self.region = MemoryRegion.shared_hbm if shared else MemoryRegion.private_hbm
        self.arguments: list[_Argument] = []

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as the kernel sees them: arrays become HBM tensors."""
        names = positional_names(self.kernel.title, self.kernel.func, args, kwargs)
        positional = [self._bind_one(n, value) for n, value in zip(names, args, strict=True)]
        return positional, {name: self._bind_one(name, value) for name, value in kwargs.items()}

    def _bind_one(self, name: str, value: Any) -> Any:
        self._require_kind(name, value)
        if isinstance(value, tuple):
            return tuple(self._bind_one(f"{name}_{i}", item) for i, item in enumerate(value))
        if not is_array(value):
            return value
        spec = spec_of(value)
        scratch = Session(replace(self.settings, values=False))
        storage = scratch.allocate(spec.shape, spec.dtype, self.region, name, None)
        storage.precise = self.settings.precise
        if self.settings.values:
            self._adopt(storage, name, value)
        self.arguments.append(_Argument(value, storage))
        return storage

    def _require_kind(self, name: str, value: Any) -> None:
        """Refuse what NKI does not pass into kernels."""
        title = self.kernel.title
        if isinstance(value, list):
            refuse(
                title,
                f"argument {name} is a list",
                "kernels take tuples, not lists",
                "pass a tuple",
            )
        numpy_type = isinstance(value, type) and issubclass(value, np.generic)
        if numpy_type or isinstance(value, np.dtype):
            refuse(
                title,
                f"argument {name} is the NumPy type {value}",
                "dtypes are those of nki.language",
                "pass nl.float32, nl.bfloat16 ...",
            )
        wide = isinstance(value, int) and not -(2**31) <= value < 2**31
        if wide and self.settings.nki == "0.6":  # 0.7 hands Python's integers on as they are
            refuse(title, f"argument {name} is {value}", "integers have 32 bits", "split it")

    def _adopt(self, storage: Storage, name: str, value: Any) -> None:
        if not isinstance(value, np.ndarray) and not hasattr(value, "data_ptr"):
            refuse(
                self.kernel.title,
                f"argument {name} is a Spec",
                "a run with values needs data",
                "pass an array, or run with values=False",
            )
        array = to_numpy(value)
        _, values = dtypes.from_host(array)
        flat = np.ascontiguousarray(values).reshape(-1)
        storage.adopt(flat.copy() if np.may_share_memory(flat, array) else flat)

    def execute(self, session: Session, bound: tuple[list[Any], dict[str, Any]]) -> Any:
        """Run the function on one core."""
        copied: dict[int, Any] = {}
        args = [_as_argument(value, copied) for value in bound[0]]
        kwargs = {name: _as_argument(value, copied) for name, value in bound[1].items()}
        with activated(session):
            result = self.kernel.func(*args, **kwargs)
        session.require_ended()
        return result

    def copy_back(self) -> None:
        """Give the caller's arrays the values the kernel wrote into its arguments."""
        for argument in self.arguments:
            if argument.storage.written and self.settings.values:
                write_back(argument.value, argument.storage.host_array())

    def returned(self, result: Any) -> list[NkiTensor]:
        """The tensors a kernel returned; they are in shared HBM, or are arguments."""
        items = result if isinstance(result, (tuple, list)) else [] if result is None else [result]
        own = [argument.storage for argument in self.arguments]
        for item in items:
            tensor = isinstance(item, NkiTensor)
            if not tensor or (
                item.buffer is not MemoryRegion.shared_hbm and item.storage not in own
            ):
                where = f"in {item.buffer.value}" if tensor else f"of type {type(item).__name__}"
                raise NkiValidationError(
                    f"a returned value is {where}",
                    instruction=self.kernel.title,
                    limit="kernels return nl.shared_hbm tensors",
                    remedy="copy the result to a tensor with buffer=nl.shared_hbm",
                )
        return list(items)

    def require_one_result(self, returned: list[list[NkiTensor]]) -> None:
        """Both cores return views of the same tensors: they are one kernel."""
        parts = [[(t.storage, t.layout, t.offset) for t in result] for result in returned]
        if parts[0] != parts[-1]:
            refuse(
                self.kernel.title,
                f"core 0 returns {returned[0]}, core 1 returns {returned[1]}",
                "both cores return the same shared tensors",
                "give both cores the same control flow",
            )

    @property
    def example(self) -> Any:
        """An array of the caller's, which says what kind results have; None if there is none."""
        return self.arguments[0].value if self.arguments else None


def _as_argument(value: Any, copied: dict[int, Any]) -> Any:
    """What a core sees of an argument: tensors, and objects of its own, copied as NKI does."""
    if isinstance(value, tuple):
        return tuple([_as_argument(item, copied) for item in value])
    if isinstance(value, Storage):
        return NkiTensor(value.shape, value.dtype, value, value.allocation.region)
    return copy.deepcopy(value, copied) if isinstance(value, NKIObject) else value


def _refuse_races(races: tuple[Race, ...]) -> None:
    if races:
        listed = "\n    ".join(str(race) for race in races[:8])
        raise RaceError(
            f"{len(races)} unordered conflicting accesses of two cores:\n    {listed}",
            limit="what one core writes the other may not touch without an order: a core_barrier"
            " orders accesses to its data, a sendrecv what its tiles come from or lead to",
            remedy="put nisa.core_barrier(tensor, (0, 1)) between them, or give the cores disjoint"
            ' slices; nkisim.run(..., races="report") lists races in Run.races instead',
        )


def _outputs(result: Any, example: Any) -> Any:
    if result is None:
        return None
    if isinstance(result, (tuple, list)):
        return tuple(_outputs(item, example) for item in result)
    host = dtypes.to_host(np.array(read_held(result)), result.dtype)
    return like(host, example)
