"""Who runs a kernel on NumPy arrays: nkisim, or the vendor's `nki` on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Protocol

import numpy as np

import nkisim
from nkisim import Kernel, Run, Spec
from nkisim.machine import Machine
from nkisim.timing import schedule_launch
from trnconv._nki import NKIObject
from trnconv.bringup.probes.probe import Arrays
from trnconv.host.builder import built, with_recipe
from trnconv.host.workarounds import NO_LEGALISATION

_WARM_UP: Final = 3
_CALLS: Final = 15


class Runner(Protocol):
    """Calls a kernel with arrays, and constants after them."""

    @property
    def where(self) -> str:
        """Whose nki runs kernels, in words."""

    @property
    def is_device(self) -> bool:
        """Whether a device computes, so that what it takes is measured."""

    def call(self, kernel: Callable[..., Any], args: Arrays, *, legalised: bool = True) -> Arrays:
        """What the kernel returns."""

    def duration_ns(self, kernel: Callable[..., Any], args: Arrays) -> float:
        """What a call takes, from the call to its results: modelled, or by the host's clock."""


@dataclass(frozen=True)
class SimulatedRunner:
    """Kernels in nkisim, under every device rule that has a report."""

    machine: Machine
    cores: int
    is_device: bool = False

    @property
    def where(self) -> str:
        """Whose nki runs kernels, in words."""
        return f"nkisim {nkisim.__version__}, simulated"

    def call(self, kernel: Callable[..., Any], args: Arrays, *, legalised: bool = True) -> Arrays:
        """In program order, whether legalised or not."""
        del legalised
        run = nkisim.run(
            Kernel(kernel)[self.cores],
            *args,
            machine=self.machine,
            lnc=self.cores,
            rules=("strict",),
        )
        return as_arrays(run.outputs)

    def duration_ns(self, kernel: Callable[..., Any], args: Arrays) -> float:
        """Modelled, on the runner's own machine."""
        return latency_ns(traced(kernel, args, self.machine, self.cores), self.machine)


@dataclass(frozen=True)
class VendorRunner:
    """Kernels by the vendor's `nki.jit`, called with NumPy arrays: no torch is needed."""

    nki: Any  # the module
    cores: int
    workarounds: frozenset[str]
    where: str = "the vendor's nki"
    is_device: bool = True
    _built: dict[Any, Any] = field(default_factory=dict)  # a kernel is built once

    def call(self, kernel: Callable[..., Any], args: Arrays, *, legalised: bool = True) -> Arrays:
        """Built as the workarounds say; a recipe goes in as an argument or in a closure."""
        workarounds = self.workarounds if legalised else self.workarounds | {NO_LEGALISATION}
        recipe = args[-1] if isinstance(args[-1], NKIObject) else None
        key = (kernel, workarounds, None if recipe is None else repr(recipe))
        if key not in self._built:
            self._built[key] = self._made(kernel, recipe, workarounds)
        made, passed = self._built[key]
        tensors = args if recipe is None else args[:-1]
        return as_arrays(made(*tensors, *passed))

    def duration_ns(self, kernel: Callable[..., Any], args: Arrays) -> float:
        """The median of some calls, after some that warm up."""
        durations = []
        for _ in range(_WARM_UP + _CALLS):
            begin = time.perf_counter_ns()
            self.call(kernel, args)
            durations.append(time.perf_counter_ns() - begin)
        return float(median(durations[_WARM_UP:]))

    def _made(self, kernel: Callable[..., Any], recipe: Any, workarounds: frozenset[str]) -> Any:
        function, passed = kernel, ()
        if recipe is not None:
            function, passed = with_recipe(kernel, recipe, workarounds)
        return built(self.nki.jit, function, self.cores, workarounds), passed


def traced(kernel: Callable[..., Any], args: Arrays, machine: Machine, cores: int) -> Run:
    """A call without values."""
    specs = [
        Spec(arg.shape, str(arg.dtype)) if isinstance(arg, np.ndarray) else arg for arg in args
    ]
    launched = Kernel(kernel)[cores]
    return nkisim.run(launched, *specs, machine=machine, lnc=cores, values=False)


def latency_ns(run: Run, machine: Machine) -> float:
    """Launch and run, modelled."""
    timelines = schedule_launch(run.traces, machine, memories=run.memories)
    return max(timeline.latency_ns for timeline in timelines)


def as_arrays(outputs: Any) -> Arrays:
    """One result or several as a tuple of arrays."""
    listed = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple(np.asarray(output) for output in listed)
