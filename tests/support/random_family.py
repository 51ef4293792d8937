"""Random members of the whole family, the same for the same number on every machine.

Forward convolutions with groups, padding modes and ends; transposed ones; input gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnconv.geometry import ConvShape, TransposedShape, Triple, transposed_shape
from trnconv.problem.epilogue import (
    ACTIVATIONS,
    IDENTITY,
    PLAIN_EPILOGUE,
    RESIDUALS,
    Epilogue,
    epilogue_of,
)

MACHINES = (("trn1", 1), ("trn2", 1), ("trn2", 2), ("trn3", 1), ("trn3", 2))
DTYPES = ("bfloat16", "bfloat16", "float16", "float32")
FORWARD, TRANSPOSED, INPUT_GRADIENT = "forward", "transposed", "input gradient"
DENSE, GROUPED, DEPTHWISE, MULTIPLIED = "dense", "grouped", "depthwise", "multiplied"
STYLES = (DENSE, GROUPED, DEPTHWISE, MULTIPLIED)
MODES = ("zeros", "replicate", "reflect", "circular")
# Keeps planning, the reference and the simulated run of a case at some tens of milliseconds.
AFFORDABLE_MACS = 800_000
AFFORDABLE_BLOCKS = 20  # of channels that have nothing to do with each other
PARTITIONS = 128
_TRIES = 1000


@dataclass(frozen=True)
class Member:
    """One call: what it computes, of which type, and where."""

    number: int
    kind: str
    shape: ConvShape | TransposedShape
    rank: int
    dtype: str
    bias: bool
    machine: str
    cores: int
    exact: bool
    epilogue: Epilogue

    @property
    def is_linear(self) -> bool:
        """Whether the output is a sum, so that integers come out exactly."""
        return self.epilogue.activation == IDENTITY


def random_member(number: int) -> Member:
    """The member of this number."""
    rng = np.random.default_rng([2027, number])
    kind = _one_of(rng, (FORWARD, FORWARD, FORWARD, TRANSPOSED, TRANSPOSED, INPUT_GRADIENT))
    rank = _one_of(rng, (1, 2, 2, 3, 3))
    machine, cores = _one_of(rng, MACHINES)
    return Member(
        number=number,
        kind=kind,
        shape=_affordable_shape(rng, kind, rank),
        rank=rank,
        dtype=_one_of(rng, DTYPES),
        bias=kind != INPUT_GRADIENT and _chance(rng, 0.6),
        machine=machine,
        cores=cores,
        exact=_chance(rng, 0.3),
        epilogue=_end(rng, kind),
    )


def _affordable_shape(
    rng: np.random.Generator, kind: str, rank: int
) -> ConvShape | TransposedShape:
    for _ in range(_TRIES):
        shape = _transposed(rng, rank) if kind == TRANSPOSED else _forward(rng, kind, rank)
        if shape is not None and _is_affordable(shape):
            return shape
    raise AssertionError(f"no affordable {kind} of rank {rank} in {_TRIES} tries")


def _is_affordable(shape: ConvShape | TransposedShape) -> bool:
    """Few multiply-adds, and few blocks: as many groups share the array as fit and divide."""
    fitting = PARTITIONS // (max(shape.c_in, shape.c_out) // shape.groups)
    together = [count for count in range(1, fitting + 1) if shape.groups % count == 0]
    blocks = shape.groups // max(together, default=1)
    return shape.macs() <= AFFORDABLE_MACS and blocks <= AFFORDABLE_BLOCKS


def _end(rng: np.random.Generator, kind: str) -> Epilogue:
    """An activation, a residual and a type of the output; gradients have no activation."""
    if kind == INPUT_GRADIENT or _chance(rng, 0.4):
        return PLAIN_EPILOGUE
    residual = _one_of(rng, RESIDUALS) if kind == FORWARD else RESIDUALS[0]
    dtype = _one_of(rng, ("", "", "bfloat16", "float16", "float32"))
    return epilogue_of(_one_of(rng, ACTIVATIONS), residual, dtype)


def _forward(rng: np.random.Generator, kind: str, rank: int) -> ConvShape:
    style = _one_of(rng, STYLES)
    c_in, c_out, groups = _channels(rng, style)
    limits = _longest(rng)
    plain = kind == INPUT_GRADIENT or _chance(rng, 0.3)  # gradients know zero padding only
    axes = [_axis(rng, limits[axis], plain) for axis in range(3)]
    for axis in range(3 - rank):
        axes[axis] = (1, 1, 1, 1, 0, 0, MODES[0])
    size, kernel, stride, dilation, before, after, modes = zip(*axes, strict=True)
    batch = _one_of(rng, (1, 1, 1, 2, 3))
    return ConvShape(
        batch, c_in, c_out, size, kernel, stride, dilation, before, after, groups, modes
    )


def _axis(
    rng: np.random.Generator, most: int, plain: bool
) -> tuple[int, int, int, int, int, int, str]:
    """Size, kernel, stride, dilation, padding before and after, and its mode, with an output."""
    kernel = _one_of(rng, (1, 1, 2, 3, 3, 3, 4, 5))
    stride = _one_of(rng, (1, 1, 1, 2, 2, 3))
    dilation = _one_of(rng, (1, 1, 1, 2, 3))
    reach = dilation * (kernel - 1) + 1
    mode = MODES[0] if plain else _one_of(rng, MODES)
    before, after = (int(rng.integers(0, reach + 1)) if _chance(rng, 0.6) else 0 for _ in "ba")
    least = max(1, reach - before - after)
    if mode in ("reflect", "circular"):
        least = max(least, before + (mode == "reflect"), after + (mode == "reflect"))
    return least + int(rng.integers(0, most)), kernel, stride, dilation, before, after, mode


def _transposed(rng: np.random.Generator, rank: int) -> TransposedShape | None:
    """None if nothing of the output is left after cropping."""
    c_in, c_out, groups = _channels(rng, _one_of(rng, STYLES))
    limits = _longest(rng)[3 - rank :]
    axes = [_transposed_axis(rng, limit) for limit in limits]
    size, kernel, stride, dilation, padding, more = zip(*axes, strict=True)
    outs = [
        (n - 1) * s + d * (k - 1) + 1 + m - 2 * p
        for n, k, s, d, p, m in zip(size, kernel, stride, dilation, padding, more, strict=True)
    ]
    if min(outs) < 1:
        return None
    return transposed_shape(
        (_one_of(rng, (1, 1, 1, 2, 3)), c_in, *size),
        (c_in, c_out // groups, *kernel),
        stride=stride,
        padding=padding,
        output_padding=more,
        groups=groups,
        dilation=dilation,
    )


def _transposed_axis(rng: np.random.Generator, most: int) -> tuple[int, int, int, int, int, int]:
    """Size, kernel, stride, dilation, cropping and output padding of an axis."""
    kernel = _one_of(rng, (1, 2, 2, 3, 3, 4, 4, 5))
    stride = _one_of(rng, (1, 2, 2, 2, 3, 4))
    dilation = _one_of(rng, (1, 1, 1, 2, 3))
    padding = int(rng.integers(0, dilation * (kernel - 1) + 2)) if _chance(rng, 0.6) else 0
    more = int(rng.integers(0, max(stride, dilation))) if _chance(rng, 0.5) else 0
    return 1 + int(rng.integers(0, most)), kernel, stride, dilation, padding, more


def _channels(rng: np.random.Generator, style: str) -> tuple[int, int, int]:
    """Input channels, output channels, groups."""
    most = _one_of(rng, (4, 16, 40, 40, 140, 300))
    if style == DENSE:
        return int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1)), 1
    if style == DEPTHWISE:
        groups = int(rng.integers(2, most + 1))
        return groups, groups, groups
    if style == MULTIPLIED:
        groups = int(rng.integers(2, max(3, most // 2)))
        return groups, groups * _one_of(rng, (2, 3)), groups
    groups = _one_of(rng, (2, 3, 4, 6, 8))
    largest = max(2, most // groups)
    c_in, c_out = (groups * int(rng.integers(1, largest + 1)) for _ in "io")
    return c_in, c_out, groups


def _longest(rng: np.random.Generator) -> Triple:
    """How much longer than it must be an axis may get: mostly a little, one of them a lot."""
    longest = 500 if _chance(rng, 0.08) else 10
    return (longest, 3, 3) if _chance(rng, 0.2) else (4, 6, longest)


def _one_of(rng: np.random.Generator, choices):
    return choices[int(rng.integers(len(choices)))]


def _chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)
