"""Every grouped and every transposed call of the catalogue, on a small image."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import numpy_dtype
from repetition import few, slow_beyond
from trnconv.catalogue import calls
from trnconv.geometry import TransposedShape
from trnconv.reference import forward, transposed
from trnconv.runtime import convolve, convolve_transposed

MOST = (3, 5, 6)  # frames, rows and columns that are kept
MOST_GROUPS = 1024  # by default


def small(shape):
    """The same problem on a small image."""
    size = tuple(max(k, min(n, m)) for n, m, k in zip(shape.size, MOST, shape.kernel, strict=True))
    if isinstance(shape, TransposedShape):
        steps = zip(size, shape.size, shape.out, shape.stride, strict=True)
        out = tuple(n - (whole - kept) * s for kept, whole, n, s in steps)
        return replace(shape, size=size, out=out)
    return replace(shape, size=size)


def problems():
    found = {}
    for call in calls():
        if call.groups > 1 or call.transposed:
            shape = call.transposed_shape() if call.transposed else call.shape()
            found[small(replace(shape, batch=min(shape.batch, 2)))] = None
    return list(found)


def integers(rng, size):
    return rng.integers(-2, 3, size).astype(numpy_dtype("bfloat16"))


def by_length():
    """The shortest first: depthwise calls of thousands of channels repeat what hundreds do."""
    found = sorted(problems(), key=lambda shape: shape.groups)
    return slow_beyond(sum(shape.groups <= MOST_GROUPS for shape in found), found)


@few(6)
@pytest.mark.parametrize("shape", by_length(), ids=str)
def test_a_grouped_or_transposed_call_is_exact(shape):
    rng = np.random.default_rng(0)
    x = integers(rng, (shape.batch, shape.c_in, *shape.size))
    bias = integers(rng, shape.c_out)
    if isinstance(shape, TransposedShape):
        w = integers(rng, (shape.c_in, shape.c_out // shape.groups, *shape.kernel))
        y, exact = convolve_transposed(x, w, bias, shape).y, transposed(x, w, bias, shape)
    else:
        w = integers(rng, (shape.c_out, shape.c_in // shape.groups, *shape.kernel))
        pads = tuple(zip(shape.pad_before, shape.pad_after, strict=True))
        done = convolve(x, w, bias, stride=shape.stride, padding=pads, groups=shape.groups)
        y, exact = done.y, forward(x, w, bias, shape)
    assert np.array_equal(y, exact.astype(x.dtype))


def test_there_are_such_calls():
    kinds = {type(shape).__name__ for shape in problems()}
    assert kinds == {"ConvShape", "TransposedShape"}
    assert len(problems()) > 5
