"""Stage 0: no device. The vendor's simulator against nkisim, and kernels compiled to NEFFs.

It needs the vendor's wheels, on any x86-64 host. Names of the compile-only flow are those of copies
of `nki/framework/compiled.py` that call themselves internal; none of it has run here.
"""

from __future__ import annotations

import importlib
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from trnconv.ask.question import Question
from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, Finding, Rung
from trnconv.bringup.layers import LAYERS, Layer, operands_of
from trnconv.bringup.probe import Arrays
from trnconv.bringup.runner import SimulatedRunner, as_arrays, traced
from trnconv.bringup.stage1 import PROBES, difference
from trnconv.bringup.stage2 import RunnerDevice
from trnconv.cases import BENCHMARK, EDGE, Case
from trnconv.cutting import cut
from trnconv.runtime import compute
from trnconv.runtime.plans import plans_for

STAGE: Final = 0
_EFFORT: Final = 20_000_000  # multiply-adds of a layer that is simulated twice
_NOTHING = "nkisim is the only nki here: there is nothing to compare it with"


def rungs() -> tuple[Rung, ...]:
    """Every probe and layer in both simulators, then every layer compiled."""
    probes = [probe for probe in PROBES if not probe.notes]
    cases = [*EDGE, *BENCHMARK]
    return (
        *(
            Rung(STAGE, f"simulate-{probe.name}", probe.asks, partial(_probe, probe))
            for probe in probes
        ),
        *(Rung(STAGE, f"simulate-{case.name}", case.note, partial(_case, case)) for case in cases),
        *(
            Rung(STAGE, f"compile-{layer.name}", f"to a NEFF: {layer.asks}", partial(_neff, layer))
            for layer in LAYERS
        ),
    )


@dataclass(frozen=True)
class _Simulators:
    """A runner that runs a kernel in both simulators and compares, bit for bit."""

    nki: Any
    ours: SimulatedRunner
    is_device: bool = False
    where: str = "both simulators"

    def call(self, kernel: Callable[..., Any], args: Arrays, *, legalised: bool = True) -> Arrays:
        """What nkisim returns, if the other returns the same."""
        own = self.ours.call(kernel, args, legalised=legalised)
        theirs = as_arrays(self.nki.simulate(self.nki.jit(kernel)[self.ours.cores])(*args))
        wrong = difference(theirs, own)
        if wrong:
            raise ValueError(f"nki.simulate differs from nkisim: {wrong}")
        return own

    def duration_ns(self, kernel: Callable[..., Any], args: Arrays) -> float:
        """Modelled."""
        return self.ours.duration_ns(kernel, args)


def _both(bench: Bench) -> _Simulators:
    return _Simulators(bench.vendor.nki, SimulatedRunner(bench.machine, bench.cores))


def _probe(probe: Any, bench: Bench) -> Finding:
    if bench.vendor.nki is None:
        return Finding(OFF, _NOTHING)
    arrays = probe.given(1)
    _both(bench).call(probe.kernel, (*arrays, *probe.constants))
    return Finding(GREEN, "equal, bit for bit")


def _case(case: Case, bench: Bench) -> Finding:
    """A layer of the table, reduced, on integers."""
    if bench.vendor.nki is None:
        return Finding(OFF, _NOTHING)
    question = Question(cut(case.shape, _EFFORT), bench.machine, case.dtype)
    plans = plans_for(question, bench.cores)
    device = RunnerDevice(_both(bench), plans)
    compute.convolution(question, operands_of(question, 1, 1), device)
    return Finding(GREEN, f"equal, bit for bit: {plans[0].in_words()}")


def _neff(layer: Layer, bench: Bench) -> Finding:
    """Compile a layer's kernel without a device: seconds, memory, and instructions beside ours."""
    framework = _compiler(bench)
    if framework is None:
        return Finding(OFF, "nki.framework.compiled cannot be imported: compiling is not possible")
    question = layer.question(bench.machine)
    prepared = RunnerDevice(bench.runner, layer.planned(question, bench.cores)).prepared(question)
    operands = operands_of(question, 1, layer.most)
    packed = prepared.pack(operands.w, operands.bias)
    args = prepared.arguments(operands.inputs, packed, operands.residual)
    kernel = prepared.kernel(len(operands.inputs))
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        size = framework.neff_bytes(kernel, args, Path(folder))
    seconds = time.perf_counter() - begin
    own = traced(kernel, args, bench.machine, bench.cores)
    counted = max(trace.compiler_count for trace in own.traces)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    words = f"{seconds:.1f} s, {size} bytes, {peak:.2f} GiB, {counted} instructions counted by us"
    data = {"seconds": seconds, "neff_bytes": size, "gib": peak, "instructions": counted}
    return Finding(GREEN if size else RED, words, data)


@dataclass(frozen=True)
class _Framework:
    """The compile-only flow of the vendor's nki."""

    compiled: Any  # nki.framework.compiled
    driver: Any  # nki.compiler.ncc_driver
    target: str
    cores: int

    def neff_bytes(self, kernel: Callable[..., Any], args: Any, folder: Path) -> int:
        """A kernel to a NEFF in an empty folder; how large it is."""
        names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
        inputs = dict(zip(names, args, strict=True))
        making = self.compiled.CompileKernel(
            func=kernel, lnc=self.cores, target=self.target, artifacts_dir=str(folder)
        )
        options = making._compile_opts()  # noqa: SLF001 (the flow has no public name for it)
        nir = self.compiled.compile_kernel_to_nir(making, inputs=inputs, compile_opts=options)
        tensors = [name for name, value in inputs.items() if isinstance(value, np.ndarray)]
        done = self.driver.compile_bir_to_neff(options, nir, [], tensors, list(nir.output_names))
        return Path(done.neff_path).stat().st_size


def _compiler(bench: Bench) -> _Framework | None:
    if bench.vendor.nki is None:
        return None
    try:
        compiled = importlib.import_module("nki.framework.compiled")
        driver = importlib.import_module("nki.compiler.ncc_driver")
    except ImportError:
        return None
    return _Framework(compiled, driver, bench.machine.name.partition("+")[0], bench.cores)
