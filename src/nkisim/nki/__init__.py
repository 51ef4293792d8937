"""The `nki` namespace: what `import nki` finds after nkisim.install()."""

from __future__ import annotations

import sys
from typing import Any

import nkisim.running.kernel
from nkisim import collectives, isa, language, typing
from nkisim.nki import simulator
from nkisim.numerics.dtypes import DType
from nkisim.public_calls import open_namespace
from nkisim.running.kernel import Simulated, jit

dtype = DType  # not in NKI's stubs; kernels of nki-library annotate parameters with it

__all__ = ["collectives", "dtype", "isa", "jit", "language", "simulate", "simulator", "typing"]


def simulate(kernel: Any) -> Simulated:
    """The kernel as a function on arrays; the machine is the environment's."""
    return nkisim.running.kernel.simulate(kernel)


open_namespace(sys.modules[__name__], "nki", {})
