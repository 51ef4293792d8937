"""Probe: a tiny kernel, what it is given, what has to come out, the workaround if it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]


@dataclass(frozen=True)
class Probe:
    """One problem to a device.

    `given` makes the arrays of a seed, `expected` what the kernel has to return for them, worked
    out without the kernel. A probe that `notes` answers a problem that no kernel of ours depends
    on: whatever comes out, the ladder goes on.
    """

    name: str
    asks: str
    kernel: Callable[..., Any]
    given: Callable[[int], Arrays]
    expected: Callable[..., Arrays]
    workaround: str = ""  # to apply if the answer is no; empty: there is none
    constants: tuple[Any, ...] = ()  # arguments after the arrays
    notes: bool = False
    on_two_cores: bool = False  # asks about two cores: needs a logical core of two
    void_with: tuple[str, ...] = ()  # workarounds under which nothing depends on the answer
    legalised: bool = True  # built with the pass for tensors that are written again


def integers(seed: int, *shape: int, dtype: Any = np.float32, most: int = 3) -> Array:
    """Small integers that every float type holds, other ones for every seed."""
    drawn = np.random.default_rng(seed).integers(-most, most + 1, shape)
    return drawn.astype(dtype)
