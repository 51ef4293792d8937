"""Example kernels, each in a file that is written for NKI alone: it imports `nki`, not nkisim.

Here they are bound to nkisim, whatever `nki` the process has; that one is back in its place when
this package has been imported. For a device, take the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from nkisim import nki
from nkisim.install import install, uninstall
from nkisim.machine import TRN2
from nkisim.running.host_arrays import Spec


class Example(NamedTuple):
    """A kernel, and arguments of a size worth looking at."""

    kernel: Callable[..., Any]
    arguments: tuple[Spec, ...]


def _kernels(*names: str) -> list[Callable[..., Any]]:
    """The kernel of each module here, which bears its name, imported while `nki` is nkisim."""
    was_installed = sys.modules.get("nki") is nki
    install(replace_real=True)
    try:
        return [getattr(import_module(f"{__name__}.{name}"), name) for name in names]
    finally:
        if not was_installed:
            uninstall()


_matmul, _looped_copy, _vector_add = _kernels("matmul", "looped_copy", "vector_add")

_SIDE: Final = 16 * TRN2.partitions
_LOOPED_ROWS: Final = 1000 * 4 * TRN2.partitions  # an iteration copies four tiles

EXAMPLES: Final = {
    "matmul": Example(_matmul, (Spec((_SIDE, _SIDE), "bfloat16"),) * 2),
    "looped_copy": Example(_looped_copy, (Spec((_LOOPED_ROWS, _SIDE), "bfloat16"),)),
    "vector_add": Example(_vector_add, (Spec((_SIDE, _SIDE), "float32"),) * 2),
}
