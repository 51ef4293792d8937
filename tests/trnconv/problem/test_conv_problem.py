"""Transposed convolutions of stride 1 as plain ones: the same sums, by turned filters."""

import numpy as np
import pytest

from nkisim.machine import TRN2
from trnconv.geometry import ConvShape, TransposedShape, conv_shape, input_gradient_shape
from trnconv.problem.conv_problem import ConvProblem, flipped_filters, with_plain_shape
from trnconv.problem.policy import DIRECT, Policy
from trnconv.reference import forward, transposed
from trnconv.runtime.convolve import forward_filters

ALWAYS = Policy(least_macs=0)


def turned(x, w, policy=ALWAYS, **options):
    shape = input_gradient_shape(conv_shape(x, w, **options))
    return shape, with_plain_shape(ConvProblem(shape, TRN2, policy=policy)).shape


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": 1},
        {"padding": [(2, 0), (1, 1), (0, 2)]},
        {"dilation": (1, 2, 1), "padding": (0, 2, 1)},
        {"groups": 2, "padding": 1},
    ],
    ids=str,
)
def test_turned_filters_give_the_same_sums(options):
    groups = options.get("groups", 1)
    shape, plain = turned((2, 4, 4, 6, 5), (6, 4 // groups, 3, 2, 3), **options)
    assert isinstance(plain, ConvShape)
    assert plain.out_sizes() == shape.out_sizes()
    rng = np.random.default_rng(3)
    dy = rng.integers(-3, 4, (2, 6, *shape.size)).astype(np.float64)
    w = rng.integers(-3, 4, (6, 4 // groups, 3, 2, 3)).astype(np.float64)
    expected = transposed(dy, w, None, shape)
    filters = forward_filters(w, groups)
    assert np.array_equal(forward(dy, flipped_filters(filters), None, plain), expected)
    assert not np.array_equal(forward(dy, filters, None, plain), expected)


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({"stride": 2}, ALWAYS),
        ({"padding": 3}, ALWAYS),  # more is cropped than the taps reach
        ({}, Policy()),  # too small to gain
        ({}, Policy(DIRECT, least_macs=0)),
    ],
    ids=["strided", "cropped", "small", "direct"],
)
def test_others_stay_transposed(options, policy):
    _, plain = turned((1, 4, 6, 6, 6), (4, 4, 3, 3, 3), policy, **options)
    assert isinstance(plain, TransposedShape)
