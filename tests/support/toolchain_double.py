"""A double of the vendor's compile-only flow (nki.framework.compiled, nki.compiler.ncc_driver).

It holds calls to what copies of these modules do:

- options are a frozen record with a target of trn1, trn2, trn3pre or trn3, and 1 or 2 cores;
- a kernel is lowered with the inputs of its signature, by name; specs have names;
- the folder of a compile is empty (NCC_IDRV077);
- BIRSim takes an array for each input, by the names of the specs, and leaves one for each output.

`failures` are names of `neuron_failures` (what does not compile does not compile here either, what
is wrong on a device is wrong in BIRSim), and:

    no-flow       the modules cannot be imported
    no-birsim     options know no simulation
    no-outputs    BIRSim leaves nothing
    empty-neff    a compile ends well and leaves an empty file
"""

import inspect
import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import SimpleNamespace

from neuron_failures import BY_NAME
from nki_double import Call, NkiDouble, spoiled
from trnconv.host.vendor import Vendor

MODULES = ("nki.framework.compiled", "nki.compiler.ncc_driver")
TARGETS = ("trn1", "trn2", "trn3pre", "trn3")


@dataclass(frozen=True)
class CompileKernel:
    """The frozen Kernel with what a compile needs."""

    func: object
    lnc: int = 1
    target: str = ""
    artifacts_dir: str = ""
    legalised: bool = False
    rotates: bool = True
    flow: object = field(default=None, repr=False)

    def enable_non_ssa_legalization(self):
        return CompileKernel(**{**self.__dict__, "legalised": True})

    def _compile_opts(self):
        assert self.target in TARGETS, f"a target {self.target!r}"
        assert self.lnc in (1, 2)
        return self.flow.options(self.target, self.lnc, self.artifacts_dir)


@dataclass(frozen=True)
class Lowered:
    """NirResult: specs by name, and what the compiler estimates."""

    kernel: CompileKernel
    inputs: dict
    input_specs: list
    output_specs: list
    total_time_ns: int = 1000
    mac_count: int = 0
    hbm_bytes: int = 0
    frontend_time: float = 0.1
    mlir_time: float = 0.2


class Flow:
    """Both modules, with failures."""

    def __init__(self, failures=()):
        self.failures = frozenset(failures)
        self.compiles = []
        named = [("target", str), ("lnc", int), ("artifacts_dir", str)]
        if "no-birsim" not in self.failures:
            begin, end = field(default=False), field(default=True)
            named += [("enable_simulation", bool, field(default=False))]
            named += [("run_at_begin", bool, begin), ("run_at_end", bool, end)]
        self.options = make_dataclass("CompileOptions", named, frozen=True)

    def compile_kernel(self, **options):
        return CompileKernel(**options, flow=self)

    def lower(self, kernel, *, inputs, compile_opts, enable_cache=True):
        assert not enable_cache
        assert list(inputs) == list(inspect.signature(kernel.func).parameters)
        assert compile_opts.lnc == kernel.lnc
        outputs = self.ran(kernel, tuple(inputs.values()))
        tensors = [name for name, one in inputs.items() if hasattr(one, "dtype")]
        return Lowered(
            kernel,
            inputs,
            [SimpleNamespace(name=name) for name in tensors],
            [SimpleNamespace(name=f"output_{number}") for number in range(len(outputs))],
        )

    def finish(self, options, lowered, arrays, names, output_names):
        folder = Path(options.artifacts_dir)
        assert not list(folder.iterdir()), "NCC_IDRV077: the folder is not empty"
        assert [spec.name for spec in lowered.input_specs] == names
        assert [spec.name for spec in lowered.output_specs] == output_names
        neff = folder / "file.neff"
        neff.write_bytes(b"" if "empty-neff" in self.failures else b"neff")
        outputs = None
        if getattr(options, "enable_simulation", False):
            assert options.run_at_end
            assert len(arrays) == len(names)
            if "no-outputs" not in self.failures:
                outputs = self.ran(lowered.kernel, tuple(lowered.inputs.values()), strikes=True)
        self.compiles.append(lowered.kernel.func.__name__)
        return SimpleNamespace(neff_path=str(neff), neuronx_cc_time=0.3, birsim_outputs=outputs)

    def ran(self, kernel, args, *, strikes=False):
        """What the kernel computes; while it compiles, only what refuses it counts."""
        import nkisim

        failures = [BY_NAME[name] for name in self.failures if name in BY_NAME]
        run = nkisim.run(
            nkisim.Kernel(kernel.func)[kernel.lnc], *args, machine=kernel.target, lnc=kernel.lnc
        )
        struck = [one.strikes(Call(kernel, args), run) for one in failures if one.strikes]
        done = run.outputs if isinstance(run.outputs, tuple) else (run.outputs,)
        return spoiled(done) if strikes and any(struck) else done


def installed(monkeypatch, failures=()):
    """A vendor whose nki simulates and compiles, failing so."""
    flow = Flow(failures)
    driver = SimpleNamespace(compile_bir_to_neff=flow.finish, CompileOptions=flow.options)
    compiled = SimpleNamespace(CompileKernel=flow.compile_kernel, compile_kernel_to_nir=flow.lower)
    for name, module in zip(MODULES, (compiled, driver), strict=True):
        missing = "no-flow" in flow.failures
        monkeypatch.setitem(sys.modules, name, None if missing else module)
    nki = SimulatingNki(failures, lnc=2)
    return Vendor(nki=nki, nki_source="nki 0.7.0 (a double)"), flow


class SimulatingNki(NkiDouble):
    """nki with a simulator: nkisim, or one that is wrong in one value ("wrong-simulator")."""

    def __init__(self, failures=(), **options):
        super().__init__(failures, **options)
        self.is_wrong = "wrong-simulator" in failures

    def simulate(self, kernel):
        import nkisim

        def call(*args):
            run = nkisim.run(
                nkisim.Kernel(kernel.func)[kernel.grid], *args, machine=self.target, lnc=self.lnc
            )
            return spoiled(run.outputs) if self.is_wrong else run.outputs

        return call
