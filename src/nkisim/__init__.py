"""nkisim: a NeuronCore in NumPy that runs NKI kernels.

`run` and `simulate` execute a kernel; `compare` holds its result against exact values; `install`
makes `import nki` find nkisim where the real toolchain is absent; `nkisim.lint` checks that a
kernel stays inside what NKI compiles.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nkisim import errors
from nkisim.agreement import Agreement, WrongTile, compare
from nkisim.device_rules.rule_monitor import DeviceRuleWarning, TouchedRule
from nkisim.errors import (
    AliasError,
    DeviceRuleError,
    MemoryLimitError,
    NkiValidationError,
    RaceError,
    UnsupportedError,
)
from nkisim.install import install, uninstall, which
from nkisim.machine import TRN1, TRN2, TRN3, Machine, find_machine
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import Kernel, Run, jit, run, simulate
from nkisim.trace import Access, Instruction, Loop, Trace
from nkisim.version import __version__

if TYPE_CHECKING:
    from nkisim import lint

__all__ = [
    "TRN1",
    "TRN2",
    "TRN3",
    "Access",
    "Agreement",
    "AliasError",
    "DeviceRuleError",
    "DeviceRuleWarning",
    "Instruction",
    "Kernel",
    "Loop",
    "Machine",
    "MemoryLimitError",
    "NkiValidationError",
    "RaceError",
    "Run",
    "Spec",
    "TouchedRule",
    "Trace",
    "UnsupportedError",
    "WrongTile",
    "__version__",
    "compare",
    "errors",
    "find_machine",
    "install",
    "jit",
    "lint",
    "run",
    "simulate",
    "uninstall",
    "which",
]


def __getattr__(name: str) -> Any:
    """`nkisim.lint`, loaded when it is asked for: kernels run without it."""
    if name != "lint":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("nkisim.lint")
