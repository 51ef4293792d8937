"""Random legal convolutions, the same for the same number on every machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trnconv.geometry import ConvShape

MACHINES = (("trn1", 1), ("trn2", 1), ("trn2", 2), ("trn3", 1), ("trn3", 2))
# A multiply-add is cheap; this keeps the reference and the simulated run at milliseconds.
AFFORDABLE_MACS = 3_000_000
IDLE = (1, 1, 1, 1, 0, 0)  # size, kernel, stride, dilation and padding of an axis that is not there


@dataclass(frozen=True)
class RandomConvolution:
    """A problem, its types, and where it runs."""

    number: int
    shape: ConvShape
    rank: int
    dtype: str
    bias: bool
    integers: bool
    machine: str
    cores: int


def random_convolution(number: int) -> RandomConvolution:
    """The convolution of this number."""
    rng = np.random.default_rng([2026, number])
    rank = _one_of(rng, (1, 2, 3, 3))
    machine, cores = _one_of(rng, MACHINES)
    return RandomConvolution(
        number=number,
        shape=_shape(rng, rank),
        rank=rank,
        dtype=_one_of(rng, ("bfloat16", "bfloat16", "float16", "float32")),
        bias=_chance(rng, 0.7),
        integers=_chance(rng, 0.5),
        machine=machine,
        cores=cores,
    )


def _shape(rng: np.random.Generator, rank: int) -> ConvShape:
    while True:
        shape = _affordable(_any_shape(rng, rank))
        if shape.macs() <= AFFORDABLE_MACS:
            return shape


def _affordable(shape: ConvShape) -> ConvShape:
    """The same with fewer channels, as far as that goes."""
    while shape.macs() > AFFORDABLE_MACS and max(shape.c_in, shape.c_out) > 1:
        if shape.c_in > shape.c_out:
            shape = replace(shape, c_in=shape.c_in // 2)
        else:
            shape = replace(shape, c_out=shape.c_out // 2)
    return shape


def _any_shape(rng: np.random.Generator, rank: int) -> ConvShape:
    longest = 600 if _chance(rng, 0.1) else 10  # along one axis; the others are shorter
    limits = (longest, 4, 4) if _chance(rng, 0.2) else (6, 6, longest)
    axes = [_axis(rng, limits[axis]) if axis >= 3 - rank else IDLE for axis in range(3)]
    size, kernel, stride, dilation, before, after = zip(*axes, strict=True)
    batch, c_in, c_out = _one_of(rng, (1, 1, 1, 2, 3, 5)), _channels(rng), _channels(rng)
    return ConvShape(batch, c_in, c_out, size, kernel, stride, dilation, before, after)


def _axis(rng: np.random.Generator, most: int) -> tuple[int, int, int, int, int, int]:
    """Size, kernel, stride, dilation, padding before and after of one axis, with an output."""
    kernel = _one_of(rng, (1, 1, 2, 3, 3, 3, 4, 5))
    stride = _one_of(rng, (1, 1, 1, 2, 2, 3))
    dilation = _one_of(rng, (1, 1, 1, 2, 3))
    reach = dilation * (kernel - 1) + 1
    before, after = (int(rng.integers(0, reach + 2)) if _chance(rng, 0.6) else 0 for _ in "ba")
    least = max(1, reach - before - after)
    return least + int(rng.integers(0, most)), kernel, stride, dilation, before, after


def _channels(rng: np.random.Generator) -> int:
    """Mostly few, sometimes around the width of the machine, seldom several times that."""
    most = _one_of(rng, (4, 16, 40, 40, 140, 300))
    return int(rng.integers(1, most + 1))


def _one_of(rng: np.random.Generator, choices):
    return choices[int(rng.integers(len(choices)))]


def _chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)
