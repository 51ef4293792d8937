"""The device rules that our kernels break today, and the allowance under which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nkisim import Allowance, Kernel

NAME: Final = "trnconv"
REASON: Final = "written before these rules were known; until the kernels are changed"

_LAUNCH: Final = frozenset({"grid-below-lnc", "loop-on-one-program"})
_ROLLED: Final = frozenset({"psum-across-loop", "psum-in-two-loops"})
_LOADS: Final = frozenset({"dma-negative-partition-step", "dma-split-partitions"})
_FORWARD: Final = _ROLLED | _LOADS | {"activation-copy-bias", "offset-in-dimension"}

BROKEN: Final = {
    "forward_of_pieces": _FORWARD | _LAUNCH,
    "forward_on_two_cores": _FORWARD | {"programs-differ"},
    "fast": _ROLLED
    | _LAUNCH
    | {"offset-in-dimension", "psum-chains-untested", "sbuf-refill-across-turns"},
    "depthwise": frozenset({"activation-copy-bias", "gpsimd-elementwise", "grid-below-lnc"}),
    "weight_gradient": _ROLLED | _LAUNCH | {"bf16-transpose-psum", "offset-in-dimension"},
}


def our_kernel(function: Callable[..., Any]) -> Kernel:
    """One of our kernels, with an allowance for the rules it is listed with."""
    allowance = Allowance(NAME, frozenset(BROKEN[function.__name__]), REASON)
    return Kernel(function, allowance=allowance)
