"""Random numbers: refused, because the device's stream is not documented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nkisim.memory.layout import MemoryRegion
from nkisim.refusal import refused
from nkisim.tensors.tensor import NkiTensor

_REASON: Final = "the device's random stream is not documented, so it cannot be reproduced"


@refused("nl.rand", _REASON, "pass random numbers as a kernel argument")
def rand(
    shape: Sequence[int], dtype: str, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = ""
) -> None:
    """A tensor of uniform numbers in [0, 1)."""


@refused("nl.random_seed", _REASON, "pass random numbers as a kernel argument")
def random_seed(seed: NkiTensor) -> None:
    """The start of the random stream."""


@refused("nl.dropout", _REASON, "pass a mask as a kernel argument and multiply by it")
def dropout(x: NkiTensor, rate: Any, dtype: str | None = None) -> None:
    """x with elements set to 0 at random."""
