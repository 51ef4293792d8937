"""Stage 0: no device. The vendor's simulator against nkisim, and kernels compiled to NEFFs.

It needs the vendor's wheels, on any x86-64 host. What does not compile, or is wrong in BIRSim, is
known by that before there is a device, and names the same workaround as the probe would there.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, Check, Finding
from trnconv.bringup.layers import LAYERS, LadderLayer, operands_of
from trnconv.bringup.probes.probe import Arrays, Probe
from trnconv.bringup.runner import SimulatedRunner, as_arrays, traced
from trnconv.bringup.stage1 import PROBES, difference
from trnconv.bringup.stage2 import RunnerDevice
from trnconv.bringup.toolchain import Toolchain, find_toolchain
from trnconv.cases import BENCHMARK, EDGE, Case
from trnconv.crop import crop
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime import compute
from trnconv.runtime.plans import plans_for

STAGE: Final = 0
_EFFORT: Final = 20_000_000  # multiply-adds of a layer that is simulated twice
_NO_COMPILER = "nki.framework.compiled cannot be imported: compiling is not possible"
_NOTHING = "nkisim is the only nki here: there is nothing to compare it with"


def checks() -> tuple[Check, ...]:
    """Every probe and layer in both simulators, then compiled, then in BIRSim."""
    probes = [probe for probe in PROBES if not probe.notes]
    cases = [*EDGE, *BENCHMARK]
    return (
        *(
            _check("simulate", probe, partial(_probe, probe), has_workaround=False)
            for probe in probes
        ),
        *(Check(STAGE, f"simulate-{case.name}", case.note, partial(_case, case)) for case in cases),
        *(_check("compile", probe, partial(_neff, partial(_of_probe, probe))) for probe in probes),
        *(_layer_check("compile", layer, _neff) for layer in LAYERS),
        *(
            _check("birsim", probe, partial(_birsim, partial(_of_probe, probe)))
            for probe in probes
            if not probe.on_two_cores
        ),
        *(_layer_check("birsim", layer, _birsim) for layer in LAYERS),
    )


def _check(
    kind: str, probe: Probe, climb: Callable[[Bench], Finding], *, has_workaround: bool = True
) -> Check:
    """A probe's problem; a simulator that differs from another has no workaround."""
    name, workaround = f"{kind}-{probe.name}", probe.workaround if has_workaround else ""
    return Check(STAGE, name, probe.asks, climb, workaround, void_with=probe.void_with)


def _layer_check(kind: str, layer: LadderLayer, climb: Callable[..., Finding]) -> Check:
    return Check(
        STAGE, f"{kind}-{layer.name}", layer.asks, partial(climb, partial(_of_layer, layer))
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
        ours = self.ours.call(kernel, args, legalised=legalised)
        theirs = as_arrays(self.nki.simulate(self.nki.jit(kernel)[self.ours.cores])(*args))
        wrong = difference(theirs, ours)
        if wrong:
            raise ValueError(f"nki.simulate differs from nkisim: {wrong}")
        return ours

    def duration_ns(self, kernel: Callable[..., Any], args: Arrays) -> float:
        """Modelled."""
        return self.ours.duration_ns(kernel, args)


def _both(bench: Bench) -> _Simulators:
    return _Simulators(bench.vendor.nki, SimulatedRunner(bench.machine, bench.cores))


def _probe(probe: Probe, bench: Bench) -> Finding:
    if bench.vendor.nki is None:
        return Finding(OFF, _NOTHING)
    arrays = probe.given(1)
    _both(bench).call(probe.kernel, (*arrays, *probe.constants))
    return Finding(GREEN, "equal, bit for bit")


def _case(case: Case, bench: Bench) -> Finding:
    """A layer of the table, reduced, on integers."""
    if bench.vendor.nki is None:
        return Finding(OFF, _NOTHING)
    problem = ConvProblem(crop(case.shape, _EFFORT), bench.machine, case.dtype)
    plans = plans_for(problem, bench.cores)
    device = RunnerDevice(_both(bench), plans)
    compute.convolution(problem, operands_of(problem, 1, 1), device)
    return Finding(GREEN, f"equal, bit for bit: {plans[0].in_words()}")


@dataclass(frozen=True)
class _Launch:
    """A kernel and what it is called with."""

    kernel: Callable[..., Any]
    args: Any


def _of_probe(probe: Probe, bench: Bench) -> _Launch:
    del bench
    return _Launch(probe.kernel, (*probe.given(1), *probe.constants))


def _of_layer(layer: LadderLayer, bench: Bench) -> _Launch:
    problem = layer.problem(bench.machine)
    prepared = RunnerDevice(bench.runner, layer.planned(problem, bench.cores)).prepared(problem)
    operands = operands_of(problem, 1, layer.most)
    packed = prepared.pack(operands.w, operands.bias)
    args = prepared.arguments(operands.inputs, packed, operands.residual, operands.factors)
    return _Launch(prepared.kernel(len(operands.inputs)), args)


def _neff(launch_of: Callable[[Bench], _Launch], bench: Bench) -> Finding:
    """Compile a kernel without a device: seconds, memory, and instructions by our count."""
    toolchain = _toolchain(bench)
    if toolchain is None:
        return Finding(OFF, _NO_COMPILER)
    launch = launch_of(bench)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        neff = toolchain.neff(launch.kernel, launch.args, Path(folder))
    seconds = time.perf_counter() - begin
    ours = traced(launch.kernel, launch.args, bench.machine, bench.cores)
    counted = max(trace.compiler_count for trace in ours.traces)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    size = neff.size_bytes
    words = f"{seconds:.1f} s, {size} bytes, {peak:.2f} GiB, {counted} instructions counted by us"
    data = {"seconds": seconds, "neff_bytes": size, "gib": peak, "instructions": counted}
    return Finding(GREEN if size else RED, words, {**data, "compiler": neff.said})


def _birsim(launch_of: Callable[[Bench], _Launch], bench: Bench) -> Finding:
    """What was compiled, run by the compiler's own simulator, on one core."""
    one_core = replace(bench, cores=1, runner=SimulatedRunner(bench.machine, 1))
    toolchain = _toolchain(one_core)
    if toolchain is None or not toolchain.simulates:
        return Finding(OFF, _NO_COMPILER if toolchain is None else "this compiler has no BIRSim")
    launch = launch_of(one_core)
    with tempfile.TemporaryDirectory() as folder:
        neff = toolchain.neff(launch.kernel, launch.args, Path(folder), simulated=True)
    if neff.outputs is None:
        return Finding(OFF, "BIRSim left no outputs")
    wrong = difference(neff.outputs, one_core.runner.call(launch.kernel, launch.args))
    if wrong:
        return Finding(RED, f"BIRSim differs from nkisim: {wrong}")
    return Finding(GREEN, "compiled and simulated, equal bit for bit")


def _toolchain(bench: Bench) -> Toolchain | None:
    if bench.vendor.nki is None:
        return None
    target = bench.machine.base_name
    return find_toolchain(target, bench.cores, bench.workarounds)
