"""nki-library's conv3d and conv1d, on arrays: its signature, its semantics, what is refused."""

import inspect
from enum import Enum

import ml_dtypes
import numpy as np
import pytest

from conv_arrays import integer_arrays, normal_arrays
from repetition import few
from tolerance import assert_convolution, forward_bound
from trnconv import nkilib
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import ConvShape
from trnconv.reference import forward

pytestmark = pytest.mark.integrations


def library_layout(w):
    return np.ascontiguousarray(w.transpose(2, 3, 4, 1, 0))


def six(shape):
    return tuple(
        side for pair in zip(shape.pad_before, shape.pad_after, strict=True) for side in pair
    )


# Facts of nki-library's design specification (2.33): names, order, defaults.
CONV3D = {
    "x_in": inspect.Parameter.empty,
    "filters": inspect.Parameter.empty,
    "bias": None,
    "stride": (1, 1, 1),
    "padding": (0, 0, 0, 0, 0, 0),
    "dilation": (1, 1, 1),
    "activation_fn": None,
    "lnc_shard": False,
    "batch_norm_mode": nkilib.BatchNormMode.NONE,
    "output_pre_norm": False,
    "batch_norm_eps": 1e-5,
    "gamma": None,
    "beta": None,
    "momentum": 0.1,
    "running_means": None,
    "running_variances": None,
    "residual_add_loc": nkilib.ResidualAddLoc.NONE,
    "residuals_in": None,
}


def positional(function):
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is not each.KEYWORD_ONLY}


def test_signatures_are_the_library_s():
    assert positional(nkilib.conv3d) == CONV3D
    assert list(positional(nkilib.conv3d)) == list(CONV3D)
    assert positional(nkilib.conv1d) == {
        "x_in": inspect.Parameter.empty,
        "filters": inspect.Parameter.empty,
        "bias": None,
        "stride": 1,
        "padding": (0, 0),
        "dilation": 1,
        "activation_fn": None,
        "lnc_shard": False,
    }
    assert [mode.value for mode in nkilib.BatchNormMode] == [0, 1, 2]
    assert [place.value for place in nkilib.ResidualAddLoc] == [0, 1, 2]
    assert [kind.value for kind in nkilib.ActFnType] == [0, 1, 2, 3]


SHAPES = [
    ConvShape(2, 8, 12, (3, 6, 10), (3, 3, 3), pad_before=(2, 1, 0), pad_after=(0, 1, 1)),
    ConvShape(1, 96, 40, (4, 5, 9), (3, 3, 3), pad_before=(0, 1, 1), pad_after=(0, 1, 1)),
    ConvShape(1, 16, 8, (5, 9, 9), (3, 3, 3), stride=(2, 1, 2), dilation=(1, 2, 1)),
    ConvShape(1, 130, 3, (1, 6, 7), (1, 3, 3), pad_before=(0, 0, 2), pad_after=(0, 1, 0)),
    ConvShape(3, 5, 7, (4, 3, 3), (3, 1, 1), stride=(2, 1, 1)),
]


@few(4)
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_conv3d_is_the_convolution_in_the_library_s_layouts(shape, dtype, sharded):
    x, w, bias = normal_arrays(shape, dtype)
    y = nkilib.conv3d(
        x,
        library_layout(w),
        bias,
        shape.stride,
        six(shape),
        shape.dilation,
        lnc_shard=sharded,
    )
    assert_convolution(y, x, w, bias, shape)


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, (0, 0), 1), (2, (3, 1), 2)])
def test_conv1d(stride, padding, dilation):
    shape = ConvShape(
        2,
        9,
        6,
        (1, 1, 30),
        (1, 1, 4),
        stride=(1, 1, stride),
        dilation=(1, 1, dilation),
        pad_before=(0, 0, padding[0]),
        pad_after=(0, 0, padding[1]),
    )
    x, w, bias = integer_arrays(shape, "float32")
    filters = np.ascontiguousarray(w[:, :, 0, 0].transpose(2, 1, 0))
    y = nkilib.conv1d(x[:, :, 0, 0], filters, bias, stride, padding, dilation)
    assert (y[:, :, None, None] == forward(x, w, bias, shape)).all()


def silu(z):
    return z / (1 + np.exp(-z))


@pytest.mark.parametrize("place", ["PRE_ACT", "POST_ACT"])
@pytest.mark.parametrize("activation", [None, "SiLU"])
def test_a_residual_is_added_on_its_side_of_the_activation(place, activation):
    shape = SHAPES[0]
    x, w, bias = normal_arrays(shape, "float32")
    residual = np.random.default_rng(1).standard_normal((2, 12, 3, 6, 9)).astype(np.float32)
    y = nkilib.conv3d(
        x,
        library_layout(w),
        bias,
        padding=six(shape),
        activation_fn=activation and nkilib.ActFnType[activation],
        residual_add_loc=nkilib.ResidualAddLoc[place],
        residuals_in=residual,
    )
    sums = forward(x, w, bias, shape)
    bound = forward_bound(x, w, bias, shape, sums)
    function = silu if activation else (lambda z: z)
    expected = function(sums + residual) if place == "PRE_ACT" else function(sums) + residual
    # |silu'| < 1.1; the addition and the function round once each, to float32.
    room = 1.1 * bound + 2.0**-23 * (np.abs(sums) + np.abs(residual) + np.abs(expected))
    assert (np.abs(y - expected) <= room).all()


def test_members_of_the_library_s_own_enums_are_taken_by_name():
    class ActFnType(Enum):  # the library's has the same names
        SiLU = 0

    shape = SHAPES[4]
    x, w, bias = normal_arrays(shape, "float32")
    theirs, ours = (
        nkilib.conv3d(x, library_layout(w), bias, stride=shape.stride, activation_fn=kind)
        for kind in (ActFnType.SiLU, nkilib.ActFnType.Swish)
    )
    assert (theirs == ours).all()


def test_what_is_not_done_is_refused_by_name():
    shape = SHAPES[0]
    x, w, bias = normal_arrays(shape, "float32")
    filters = library_layout(w)

    class Router(Enum):
        SOFTMAX = 1

    with pytest.raises(UnsupportedError, match=r"activation_fn=.*SOFTMAX.*SiLU, GELU"):
        nkilib.conv3d(x, filters, bias, activation_fn=Router.SOFTMAX)
    with pytest.raises(ShapeError, match=r"padding=\(1, 1, 1\): nki-library takes 6 numbers"):
        nkilib.conv3d(x, filters, bias, padding=(1, 1, 1))
    with pytest.raises(ShapeError, match="stride=2: nki-library takes 3 numbers"):
        nkilib.conv3d(x, filters, bias, stride=2)
    with pytest.raises(ShapeError, match=r"x_in has 8 channels and filters .* 12"):
        nkilib.conv3d(x, w.transpose(2, 3, 4, 0, 1), bias)
    with pytest.raises(ShapeError, match="x_in is float32 and bias bfloat16"):
        nkilib.conv3d(x, filters, bias.astype(ml_dtypes.bfloat16))
    with pytest.raises(ShapeError, match="residuals_in is given: give both, or neither"):
        nkilib.conv3d(x, filters, bias, residuals_in=x)
    with pytest.raises(ShapeError, match="residuals_in is missing"):
        nkilib.conv3d(x, filters, residual_add_loc=nkilib.ResidualAddLoc.PRE_ACT)
    with pytest.raises(UnsupportedError, match=r"x_in is a list: .*trnconv\.nkilib\.pack"):
        nkilib.conv3d(x.tolist(), filters)
    with pytest.raises(ShapeError, match=r"\[B, C_in, L\] and \[K, C_in, C_out\]"):
        nkilib.conv1d(x, filters)
