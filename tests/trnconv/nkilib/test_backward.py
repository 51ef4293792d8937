"""nki-library's conv3d_bwd, on arrays: integers, so that every gradient is exact."""

import inspect

import numpy as np
import pytest

from conv_arrays import integer_arrays
from trnconv import nkilib
from trnconv.errors import ShapeError
from trnconv.geometry import ConvShape, input_gradient_shape
from trnconv.reference import bias_gradient, transposed, weight_gradient

pytestmark = pytest.mark.integrations
SHAPES = [
    ConvShape(2, 6, 5, (3, 4, 6), (3, 3, 3), pad_before=(2, 1, 1), pad_after=(0, 1, 1)),
    ConvShape(1, 4, 7, (4, 6, 5), (1, 3, 2), stride=(2, 2, 1)),
]


def six(shape):
    pairs = zip(shape.pad_before, shape.pad_after, strict=True)
    return tuple(side for pair in pairs for side in pair)


def operands(shape):
    x, w, _ = integer_arrays(shape, "float32")
    rng = np.random.default_rng(7)
    dy = rng.integers(-3, 4, (shape.batch, shape.c_out, *shape.out_sizes())).astype(np.float32)
    return dy, x, w, np.ascontiguousarray(w.transpose(2, 3, 4, 1, 0))


def test_the_signature_is_the_library_s():
    names = "dy x_in filters stride padding dilation compute_dx compute_dw compute_db"
    parameters = inspect.signature(nkilib.conv3d_bwd).parameters.values()
    own = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    assert own == names.split()


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_exact_and_in_the_library_s_order(shape):
    dy, x, w, filters = operands(shape)
    dx, dw, db = nkilib.conv3d_bwd(dy, x, filters, shape.stride, six(shape), shape.dilation)
    assert (dx == transposed(dy, w, None, input_gradient_shape(shape))).all()
    assert (dw == weight_gradient(x, dy, shape).transpose(2, 3, 4, 1, 0)).all()
    assert (db == bias_gradient(dy)).all()
    assert {dx.dtype, dw.dtype, db.dtype} == {np.dtype(np.float32)}
    assert (dx.shape, dw.shape, db.shape) == (x.shape, filters.shape, (shape.c_out,))


@pytest.mark.parametrize("asked", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1)])
def test_only_what_is_asked_for_is_returned(asked):
    dy, x, _, filters = operands(SHAPES[0])
    every = nkilib.conv3d_bwd(dy, x, filters, padding=six(SHAPES[0]))
    wanted = [gradient for gradient, is_asked in zip(every, asked, strict=True) if is_asked]
    flags = [bool(flag) for flag in asked]
    got = nkilib.conv3d_bwd(dy, x, filters, (1, 1, 1), six(SHAPES[0]), (1, 1, 1), *flags)
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(wanted)
    assert all((one == other).all() for one, other in zip(got, wanted, strict=True))


def test_what_does_not_fit_is_refused():
    dy, x, _, filters = operands(SHAPES[0])
    with pytest.raises(ShapeError, match=r"dy .*: the output of this convolution is"):
        nkilib.conv3d_bwd(dy, x, filters)
    with pytest.raises(ShapeError, match="all False"):
        nkilib.conv3d_bwd(dy, x, filters, (1, 1, 1), six(SHAPES[0]), (1, 1, 1), *[False] * 3)
    with pytest.raises(ShapeError, match="dy is float16 and x_in float32"):
        nkilib.conv3d_bwd(dy.astype(np.float16), x, filters, padding=six(SHAPES[0]))
