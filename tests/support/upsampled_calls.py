"""Convolutions that read an upsampled input: arrays that sum exactly, and random members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conv_arrays import numpy_dtype
from trnconv.errors import ShapeError
from trnconv.geometry import ConvShape, conv_shape
from trnconv.problem.epilogue import AFTER, BEFORE, NO_RESIDUAL, RELU, Epilogue

MACHINES = (("trn1", 1), ("trn2", 1), ("trn2", 2), ("trn3", 1), ("trn3", 2))
DTYPES = ("bfloat16", "bfloat16", "float16", "float32")
ENDS = (Epilogue(), Epilogue(), Epilogue(RELU), Epilogue(residual=BEFORE), Epilogue(RELU, AFTER))
AFFORDABLE_MACS = 20_000_000
LARGEST_W = 2  # 5 x 5 x 5 of them merged are 250: exact in every type


@dataclass(frozen=True)
class Member:
    """One call: what it computes, of which type, from which pieces, and where."""

    shape: ConvShape
    dtype: str
    pieces: tuple[int, ...]
    machine: str
    cores: int
    exact: bool
    epilogue: Epilogue


def whole_arrays(shape, dtype, seed=0):
    """x, w, bias and a residual in small integers; sums of filters are exact too."""
    rng = np.random.default_rng([seed, *shape.size, shape.c_in, shape.c_out])
    sizes = (
        (3, (shape.batch, shape.c_in, *shape.size)),
        (LARGEST_W, (shape.c_out, shape.c_in // shape.groups, *shape.kernel)),
        (3, (shape.c_out,)),
        (3, (shape.batch, shape.c_out, *shape.out_sizes())),
    )
    kind = numpy_dtype(dtype)
    return tuple(rng.integers(-most, most + 1, size).astype(kind) for most, size in sizes)


def cut(x, frames):
    """x in pieces of so many frames."""
    ends = np.cumsum(frames)
    return [np.ascontiguousarray(x[:, :, e - n : e]) for n, e in zip(frames, ends, strict=True)]


def random_upsampled(number):
    """The member of this number, the same on every machine."""
    rng = np.random.default_rng([2028, number])
    shape = _affordable(rng)
    machine, cores = _one_of(rng, MACHINES)
    whole_phases = all(
        shape.out_size(axis) % min(shape.upsample[axis], shape.out_size(axis)) == 0
        for axis in (1, 2)
    )
    epilogue = _one_of(rng, ENDS)
    return Member(
        shape=shape,
        dtype=_one_of(rng, DTYPES),
        pieces=_pieces(rng, shape.size[0]),
        machine=machine,
        cores=cores,
        exact=bool(rng.random() < 0.2),
        epilogue=epilogue if whole_phases or epilogue.residual == NO_RESIDUAL else Epilogue(),
    )


def _affordable(rng):
    for _ in range(1000):
        axes = [_axis(rng, most) for most in (5, 8, 10)]
        size, kernel, dilation, padding, modes, upsample, skip = zip(*axes, strict=True)
        groups = _one_of(rng, (1, 1, 1, 2, 3))
        c_in = groups * _one_of(rng, (1, 3, 8, 20, 66, 140, 200))
        c_out = groups * _one_of(rng, (1, 3, 8, 33, 66, 130))
        try:
            shape = conv_shape(
                (_one_of(rng, (1, 1, 2)), c_in, *size),
                (c_out, c_in // groups, *kernel),
                dilation=dilation,
                padding=padding,
                groups=groups,
                padding_mode=modes,
                upsample=upsample,
                skip=skip,
            )
        except ShapeError:
            continue  # a kernel that does not fit
        if shape.macs() <= AFFORDABLE_MACS and max(upsample) > 1:
            return shape
    raise AssertionError("no affordable member in 1000 tries")


def _axis(rng, most):
    """Size, kernel, dilation, padding, mode, upsampling and skip of an axis."""
    kernel = _one_of(rng, (1, 2, 3, 3, 3, 4, 5))
    dilation = _one_of(rng, (1, 1, 1, 2))
    upsample = _one_of(rng, (1, 2, 2, 3))
    mode = _one_of(rng, ("zeros", "replicate"))
    same = dilation * (kernel // 2)
    any_pad = [int(rng.integers(0, dilation * kernel)) for _ in "ba"]
    before, after = (same, same) if rng.random() < 0.5 else any_pad
    skips = (mode == "replicate" or before == 0) and rng.random() < 0.5
    skip = int(rng.integers(0, upsample)) if skips else 0
    size = int(rng.integers(1, most))
    return size, kernel, dilation, (before, after), mode, upsample, skip


def _pieces(rng, frames):
    if frames == 1 or rng.random() < 0.6:
        return (frames,)
    first = int(rng.integers(1, frames))
    return (first, frames - first)


def _one_of(rng, choices):
    return choices[int(rng.integers(len(choices)))]
