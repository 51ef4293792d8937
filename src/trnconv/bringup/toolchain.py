"""The vendor's compile-only flow: a kernel to a NEFF without a device, and BIRSim on the way.

Names are those of public copies of `nki/framework/compiled.py` and `nki/compiler/ncc_driver.py` of
the time of NKI 0.6, which call themselves internal. None of it has run here but on a double.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from trnconv.bringup.probes.probe import Arrays
from trnconv.host.builder import legalised

_SAID: Final = ("total_time_ns", "mac_count", "hbm_bytes", "frontend_time", "mlir_time")
_SIMULATE: Final = "enable_simulation"


@dataclass(frozen=True)
class Neff:
    """What came of a compile: how large it is, what the compiler says, what BIRSim computed."""

    size_bytes: int
    said: dict[str, Any]
    outputs: Arrays | None


@dataclass(frozen=True)
class Toolchain:
    """The flow for a target and a number of cores."""

    compiled: Any  # nki.framework.compiled
    driver: Any  # nki.compiler.ncc_driver
    target: str
    cores: int
    workarounds: frozenset[str] = frozenset()

    def neff(
        self, kernel: Callable[..., Any], args: Any, folder: Path, *, simulated: bool = False
    ) -> Neff:
        """A kernel to a NEFF in an empty folder; `simulated`: BIRSim runs what was compiled."""
        names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
        inputs = dict(zip(names, args, strict=True))
        made = legalised(
            self.compiled.CompileKernel(
                func=kernel, lnc=self.cores, target=self.target, artifacts_dir=str(folder)
            ),
            self.workarounds,
        )
        options = made._compile_opts()  # noqa: SLF001 (the flow has no public name for it)
        if simulated:
            options = replace(options, enable_simulation=True, run_at_begin=False, run_at_end=True)
        lowered = self.compiled.compile_kernel_to_nir(
            made, inputs=inputs, compile_opts=options, enable_cache=False
        )
        input_names = [input_spec.name for input_spec in lowered.input_specs]
        arrays = [inputs[name] for name in input_names] if simulated else []
        done = self.driver.compile_bir_to_neff(
            options,
            lowered,
            arrays,
            input_names,
            [output_spec.name for output_spec in lowered.output_specs],
        )
        said = {name: getattr(lowered, name, None) for name in _SAID}
        outputs = getattr(done, "birsim_outputs", None)
        return Neff(
            Path(done.neff_path).stat().st_size,
            {**said, "neuronx_cc_time": getattr(done, "neuronx_cc_time", None)},
            None if outputs is None else tuple(np.asarray(output) for output in outputs),
        )

    @property
    def simulates(self) -> bool:
        """Whether this compiler's options know BIRSim."""
        options = getattr(self.driver, "CompileOptions", None)
        return is_dataclass(options) and any(field.name == _SIMULATE for field in fields(options))


def find_toolchain(target: str, cores: int, workarounds: frozenset[str]) -> Toolchain | None:
    """The flow of the wheel that is installed; None if it has none of these modules."""
    try:
        compiled = importlib.import_module("nki.framework.compiled")
        driver = importlib.import_module("nki.compiler.ncc_driver")
    except ImportError:
        return None
    return Toolchain(compiled, driver, target, cores, workarounds)
