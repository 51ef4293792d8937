"""A member of the family as arrays, as the call that a user would write, and as what is exact."""

from __future__ import annotations

import zlib
from math import isqrt, prod

import numpy as np

import trnconv
from conv_arrays import numpy_dtype
from family_bounds import ended, rounding_of_summed_filters, sums_of
from random_family import FORWARD, INPUT_GRADIENT, TRANSPOSED, Member
from tolerance import assert_within
from trnconv.problem.epilogue import PLAIN_EPILOGUE
from trnconv.reference import forward, transposed
from trnconv.runtime import LaunchOptions, convolve, convolve_transposed
from trnconv.runtime.gradients import input_gradient


def arrays_of(member: Member):
    """x (or dy), w, bias and residual: integers if the member is linear, else normal numbers.

    Integers are from -m to m with m so small that sums stay near those that bfloat16 holds. Normal
    weights are scaled so that sums have a deviation of about two: there activations bend.
    """
    shape, kind = member.shape, numpy_dtype(member.dtype)
    rng = np.random.default_rng([zlib.crc32(repr(shape).encode()), member.number])
    outs = (shape.batch, shape.c_out, *shape.out_sizes())
    x_sizes = outs if member.kind == INPUT_GRADIENT else (shape.batch, shape.c_in, *shape.size)
    sizes = [x_sizes, weight_sizes(member), (shape.c_out,), outs]
    if member.is_linear:
        most = 3 if terms_of(member) < 64 else 1
        x, w, bias, residual = (rng.integers(-most, most + 1, size) for size in sizes)
    else:
        x, w, bias, residual = (rng.standard_normal(size) for size in sizes)
        w = w * 2 / (isqrt(terms_of(member)) + 1)
    bias = bias.astype(kind) if member.bias else None
    residual = residual.astype(kind) if member.epilogue.residual != "none" else None
    return x.astype(kind), w.astype(kind), bias, residual


def weight_sizes(member: Member):
    """[C_out, C_in / groups, ...], the first two the other way round if transposed."""
    shape = member.shape
    if member.kind == TRANSPOSED:
        return (shape.c_in, shape.c_out // shape.groups, *shape.kernel)
    return (shape.c_out, shape.c_in // shape.groups, *shape.kernel)


def terms_of(member: Member) -> int:
    """The most products that one output sums."""
    channels = member.shape.c_out if member.kind == INPUT_GRADIENT else member.shape.c_in
    return channels // member.shape.groups * prod(member.shape.kernel)


def check_member(member: Member) -> None:
    """Run it, and hold every output against its bound."""
    x, w, bias, residual = arrays_of(member)
    y = run_member(member, x, w, bias, residual)
    exact, bound = expected(member, x, w, bias, residual)
    dtype = numpy_dtype(member.epilogue.dtype or member.dtype)
    assert y.dtype == dtype, f"the output is {y.dtype}, not {dtype}"
    assert_within(y, exact, bound)


def expected(member: Member, x, w, bias, residual):
    """The exact output, and how far from it one may be."""
    shape = member.shape
    linear = {
        FORWARD: lambda x, w, bias: forward(x, w, bias, shape),
        TRANSPOSED: lambda x, w, bias: transposed(x, w, bias, shape),
        INPUT_GRADIENT: lambda dy, w, _: scattered(dy, w, shape),
    }[member.kind]
    forwards = member.kind == FORWARD
    summed = rounding_of_summed_filters(shape, w.dtype) if forwards else 0.0
    sums = sums_of(linear, (x, w, bias), terms_of(member), summed)
    return ended(
        sums, member.epilogue, residual, numpy_dtype(member.epilogue.dtype or member.dtype)
    )


def scattered(dy, w, shape):
    """The gradient of the input by its definition: every product goes back to where x was read."""
    padded = [
        n + before + after
        for n, before, after in zip(shape.size, shape.pad_before, shape.pad_after, strict=True)
    ]
    dx = np.zeros((shape.batch, shape.c_in, *padded))
    per_in, per_out = shape.c_in // shape.groups, shape.c_out // shape.groups
    for group, *tap in np.ndindex(shape.groups, *shape.kernel):
        outs = slice(group * per_out, (group + 1) * per_out)
        ins = slice(group * per_in, (group + 1) * per_in)
        read = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, shape.dilation, shape.out_sizes(), shape.stride, strict=True)
        )
        weights = w[(outs, slice(None), *tap)].astype(np.float64)
        back = np.einsum("nodhw,oc->ncdhw", dy[:, outs].astype(np.float64), weights)
        dx[(slice(None), ins, *read)] += back
    kept = tuple(
        slice(before, before + n) for before, n in zip(shape.pad_before, shape.size, strict=True)
    )
    return dx[(slice(None), slice(None), *kept)]


def run_member(member: Member, x, w, bias, residual):
    """The output in five dimensions, by the function a user of this rank would call."""
    shape, rank = member.shape, member.rank
    launch = LaunchOptions(
        member.machine,
        member.cores,
        exact=member.exact,
        epilogue=member.epilogue,
        residual=None if residual is None else lowered(residual, rank),
    )
    if member.kind == TRANSPOSED:
        return _run_transposed(member, (x, w, bias), launch)
    low_x, low_w = lowered(x, rank), lowered(w, rank)
    options = _options(shape, rank)
    if member.kind == INPUT_GRADIENT:
        x_shape = (shape.batch, shape.c_in, *shape.size[3 - rank :])
        done = input_gradient(low_x, low_w, x_shape, **options, launch=launch)
        assert done.y.shape == x_shape
        return done.y.reshape(shape.batch, shape.c_in, *shape.size)
    modes = shape.modes[3 - rank :]
    done = convolve(low_x, low_w, bias, **options, padding_mode=modes, launch=launch)
    assert done.y.shape == (shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :])
    return done.y.reshape(shape.batch, shape.c_out, *shape.out_sizes())


def _run_transposed(member: Member, operands, launch: LaunchOptions):
    """torch's function where it can say everything, else the one below it."""
    (x, w, bias), shape, rank = operands, member.shape, member.rank
    if member.epilogue != PLAIN_EPILOGUE or member.exact or member.cores > 1:
        return convolve_transposed(x, w, bias, shape, launch).y
    hidden = 3 - rank
    function = getattr(trnconv, f"conv_transpose{rank}d")
    y = function(
        lowered(x, rank),
        lowered(w, rank),
        bias,
        stride=shape.stride[hidden:],
        padding=shape.pad_before[hidden:],
        output_padding=_output_padding(shape)[hidden:],
        groups=shape.groups,
        dilation=shape.dilation[hidden:],
        machine=member.machine,
    )
    assert y.shape == (shape.batch, shape.c_out, *shape.out[hidden:])
    return y.reshape(shape.batch, shape.c_out, *shape.out)


def _output_padding(shape):
    """What the output has beyond the formula of a transposed convolution."""
    return tuple(
        out - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
        for out, n, s, p, d, k in zip(
            shape.out,
            shape.size,
            shape.stride,
            shape.pad_before,
            shape.dilation,
            shape.kernel,
            strict=True,
        )
    )


def _options(shape, rank):
    hidden = 3 - rank
    pads = tuple(zip(shape.pad_before, shape.pad_after, strict=True))
    return {
        "stride": shape.stride[hidden:],
        "padding": pads[hidden:],
        "dilation": shape.dilation[hidden:],
        "groups": shape.groups,
    }


def lowered(values, rank):
    """The same array without the axes that are not there."""
    return values.reshape(*values.shape[:2], *values.shape[5 - rank :])
