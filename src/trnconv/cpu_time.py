"""How long this computer takes for a convolution: measured, here, with torch or else with NumPy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from trnconv.geometry import NO_MODES, ONCE, ConvShape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Measured:
    """Seconds of this CPU."""

    seconds: float
    by: str  # library, version, type and threads


def measurable(shape: ConvShape) -> bool:
    """Whether it is a plain convolution, with zeros for padding."""
    return shape.modes == NO_MODES and shape.upsample == ONCE


def measure(shape: ConvShape, seed: int = 0) -> Measured:
    """One run in float32, after a small one that warms up."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((shape.batch, shape.c_in, *shape.size), np.float32)
    w = rng.standard_normal((shape.c_out, shape.c_in // shape.groups, *shape.kernel), np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), *zip(shape.pad_before, shape.pad_after, strict=True)))
    return _with_torch(padded, w, shape) if find_spec("torch") else _with_numpy(padded, w, shape)


def _with_torch(x: Array, w: Array, shape: ConvShape) -> Measured:
    import torch  # noqa: PLC0415 (only if it is there)

    options: dict[str, Any] = {
        "stride": shape.stride,
        "dilation": shape.dilation,
        "groups": shape.groups,
    }
    inputs, filters = torch.from_numpy(x), torch.from_numpy(w)
    reach = [d * (k - 1) + 1 for d, k in zip(shape.dilation, shape.kernel, strict=True)]
    small = inputs[:, :, : reach[0], : reach[1], : reach[2]]
    with torch.no_grad():
        torch.nn.functional.conv3d(small, filters, **options)
        start = perf_counter()
        torch.nn.functional.conv3d(inputs, filters, **options)
        seconds = perf_counter() - start
    threads = torch.get_num_threads()
    return Measured(seconds, f"torch {torch.__version__}, float32, {threads} threads")


def _with_numpy(x: Array, w: Array, shape: ConvShape) -> Measured:
    """A matrix product for each tap."""
    start = perf_counter()
    y = np.zeros((shape.batch, shape.c_out, *shape.out_sizes()), np.float32)
    outs, ins = shape.c_out // shape.groups, shape.c_in // shape.groups
    for tap in np.ndindex(*shape.kernel):
        spans = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, shape.dilation, shape.out_sizes(), shape.stride, strict=True)
        )
        for group in range(shape.groups):
            read = x[(slice(None), slice(group * ins, (group + 1) * ins), *spans)]
            taps = w[group * outs : (group + 1) * outs, :, tap[0], tap[1], tap[2]]
            y[:, group * outs : (group + 1) * outs] += np.einsum(
                "oc,ncdhw->nodhw", taps, read, optimize=True
            )
    seconds = perf_counter() - start
    return Measured(seconds, f"NumPy {np.__version__}, float32, {os.cpu_count()} CPUs")
