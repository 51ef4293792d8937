"""The device rules that our kernels break today, and the allowance under which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nkisim import Allowance, Kernel

NAME: Final = "trnconv"
REASON: Final = "launches of one core, and loads that split the partition axis: not yet changed"

_LAUNCH: Final = frozenset({"grid-below-lnc", "loop-on-one-program"})
_LOADS: Final = frozenset({"dma-split-partitions"})
_DIRECT: Final = _LOADS | _LAUNCH
_MINIMAL: Final = _LAUNCH

BROKEN: Final[dict[str, frozenset[str]]] = {
    "forward": _DIRECT,
    "forward_of_two": _DIRECT,
    "forward_of_three": _DIRECT,
    "forward_on_two_cores": _LOADS,
    "forward_of_two_on_two_cores": _LOADS,
    "forward_of_three_on_two_cores": _LOADS,
    "minimal_of_one": _MINIMAL,
    "minimal_of_two": _MINIMAL,
    "minimal_of_three": _MINIMAL,
    "depthwise": frozenset({"grid-below-lnc"}),
    "weight_gradient": _LAUNCH,
}


def allowed(function: Callable[..., Any]) -> Kernel:
    """A kernel; if it is listed here, with an allowance for the rules it is listed with."""
    if function.__name__ not in BROKEN:
        return Kernel(function)
    return Kernel(function, allowance=Allowance(NAME, BROKEN[function.__name__], REASON))
