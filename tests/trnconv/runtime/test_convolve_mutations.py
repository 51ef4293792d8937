"""A wrong input must show: what these tests change, a broken kernel could get wrong as well.

Each test gives `convolve` a changed input and holds the output against the reference of the
unchanged one. The bound has to break where the change reaches, and nowhere else.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from conv_arrays import integer_arrays, normal_arrays
from conv_calls import compute
from repetition import few
from tolerance import excess, forward_bound
from trnconv.geometry import ConvShape, conv_shape
from trnconv.reference import forward

SHAPES = {
    "causal": conv_shape((1, 24, 3, 4, 5), (16, 24, 3, 3, 3), padding=((2, 0), 1, 1)),
    "ragged": conv_shape((2, 70, 2, 3, 4), (130, 70, 2, 3, 2), padding=((1, 0), 1, (0, 1))),
    "strided": conv_shape((1, 40, 5, 7, 8), (20, 40, 3, 3, 3), stride=2, padding=1),
    "dilated": conv_shape((1, 16, 4, 7, 9), (12, 16, 2, 3, 3), dilation=2, padding=(1, 2, 2)),
    "padded beyond the image": conv_shape((1, 20, 2, 2, 3), (12, 20, 3, 3, 3), padding=3),
    "dilated beyond the image": conv_shape(
        (1, 12, 2, 2, 3), (8, 12, 3, 3, 3), padding=4, dilation=4
    ),
    "line": conv_shape((2, 30, 1, 1, 40), (33, 30, 1, 1, 5), padding=(0, 0, 2)),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
both_kinds = pytest.mark.parametrize("arrays", [normal_arrays, integer_arrays])


@dataclass(frozen=True)
class Expectation:
    """The inputs of a convolution, and what should come out of them."""

    shape: ConvShape
    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray
    exact: np.ndarray
    bound: np.ndarray

    def wrong(self, x=None, w=None, bias=None):
        """Where the output of changed inputs is outside the bound of the unchanged ones."""
        changed = [
            new if new is not None else old
            for new, old in ((x, self.x), (w, self.w), (bias, self.bias))
        ]
        return excess(compute(self.shape, changed), self.exact, self.bound) > 0


def expectation(shape, arrays=normal_arrays, dtype="bfloat16"):
    x, w, bias = arrays(shape, dtype)
    exact = forward(x, w, bias, shape)
    return Expectation(shape, x, w, bias, exact, forward_bound(x, w, bias, shape, exact))


def outputs_that_meet(shape, tap):
    """Of each axis, the outputs for which this tap lies inside the image."""
    return [
        [
            out
            for out in range(shape.out_size(axis))
            if 0 <= shape.in_position(axis, out, tap[axis]) < shape.size[axis]
        ]
        for axis in range(3)
    ]


@few(4)
@shapes
def test_nothing_is_wrong_to_begin_with(shape):
    assert not expectation(shape).wrong().any()


@few(3)
@both_kinds
@shapes
def test_each_tap_that_meets_the_image_matters_and_no_other(shape, arrays):
    expected = expectation(shape, arrays)
    for tap in np.ndindex(*shape.kernel):
        w = expected.w.copy()
        w[(slice(None), slice(None), *tap)] = 0
        wrong = expected.wrong(w=w)
        met = np.zeros_like(wrong)
        met[(slice(None), slice(None), *np.ix_(*outputs_that_meet(shape, tap)))] = True
        assert wrong.any() == met.any(), tap
        assert not (wrong & ~met).any(), tap


@few(2)
@shapes
def test_each_row_of_the_image_matters_where_it_is_read(shape):
    """A row at the border of two blocks is read by both; a halo that lacks it is noticed."""
    expected = expectation(shape, integer_arrays)
    for row in range(shape.size[1]):
        x = expected.x.copy()
        x[:, :, :, row] = 0
        wrong = expected.wrong(x=x)
        readers = [
            out
            for out in range(shape.out_size(1))
            if row in [shape.in_position(1, out, tap) for tap in range(shape.kernel[1])]
        ]
        assert np.flatnonzero(wrong.any((0, 1, 2, 4))).tolist() == readers


@few(4)
@pytest.mark.parametrize("axis", [0, 1, 2], ids=["frame", "row", "column"])
@shapes
def test_an_image_shifted_by_one_is_noticed(shape, axis):
    expected = expectation(shape)
    x = np.roll(expected.x, 1, axis=2 + axis)
    assert expected.wrong(x=x).any() == (shape.size[axis] > 1)


@few(2)
@shapes
def test_filters_shifted_by_one_input_channel_are_noticed_in_every_output_channel(shape):
    expected = expectation(shape, integer_arrays)
    wrong = expected.wrong(w=np.roll(expected.w, 1, axis=1))
    assert wrong.any((0, 2, 3, 4)).all()


TILED = conv_shape((1, 130, 1, 3, 4), (260, 130, 1, 3, 3), padding=(0, 1, 1))


def test_two_swapped_tiles_of_output_channels_are_noticed():
    expected = expectation(TILED, integer_arrays)
    order = np.r_[128:256, 0:128, 256:260]
    wrong = expected.wrong(w=expected.w[order], bias=expected.bias[order])
    assert wrong[:, :256].any((0, 2, 3, 4)).all()
    assert not wrong[:, 256:].any()


def test_a_dropped_last_input_channel_is_noticed():
    """The one that does not fit into the first tile."""
    expected = expectation(TILED, integer_arrays)
    x = expected.x.copy()
    x[:, 128:] = 0
    assert expected.wrong(x=x).any((0, 2, 3, 4)).all()


def test_a_swapped_pair_of_images_is_noticed():
    expected = expectation(SHAPES["ragged"])
    assert expected.wrong(x=expected.x[::-1].copy()).any((1, 2, 3, 4)).all()


def test_a_forgotten_bias_is_noticed_even_where_there_is_only_padding():
    shape = SHAPES["padded beyond the image"]
    expected = expectation(shape)
    wrong = expected.wrong(bias=np.zeros_like(expected.bias))
    assert wrong[0, :, 0, 0, 0].all()


@few(1)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_one_wrong_weight_is_noticed_in_its_channel_alone(dtype):
    expected = expectation(SHAPES["ragged"], integer_arrays, dtype)
    w = expected.w.copy()
    w[129, 69, 1, 1, 1] += np.ones((), w.dtype)
    wrong = expected.wrong(w=w)
    assert np.flatnonzero(wrong.any((0, 2, 3, 4))).tolist() == [129]
