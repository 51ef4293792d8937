"""The `nki.simulator` namespace: the entry that frameworks call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nkisim.running.kernel import Kernel, simulate

__all__ = ["simulate_kernel"]


def simulate_kernel(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    _lnc: int | None = None,
) -> Any:
    """Run a kernel on `_lnc` cores (None: without a launch grid) and return its outputs."""
    kernel = func if isinstance(func, Kernel) else Kernel(func)
    return simulate(kernel if _lnc is None else kernel[_lnc])(*args, **kwargs)
