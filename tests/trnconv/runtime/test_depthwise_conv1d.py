"""nki-library's depthwise_conv1d call: its layouts and arguments, and what it refuses."""

import inspect

import numpy as np
import pytest

from repetition import few
from tolerance import assert_within
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.runtime.depthwise_conv1d import depthwise_conv1d_implicit_gemm as conv1d

HALF_STEP = 2.0**-24


def arrays(n, c, w, s, multiplier=1):
    rng = np.random.default_rng([n, c, w, s])
    img = rng.standard_normal((n, c, 1, w), np.float32)
    return img, rng.standard_normal((c * multiplier, 1, 1, s), np.float32)


def by_definition(img, filters, pads, stride, rhs, lhs):
    """Every output of every channel, one at a time, in float64; and the sum of magnitudes."""
    n, c, _, width = img.shape
    spread = np.zeros((n, c, lhs * (width - 1) + 1))
    spread[:, :, ::lhs] = img[:, :, 0]
    padded = np.pad(spread, ((0, 0), (0, 0), pads))
    multiplier, s = filters.shape[0] // c, filters.shape[3]
    count = (padded.shape[2] - rhs * (s - 1) - 1) // stride + 1
    y, size = (np.zeros((n, filters.shape[0], 1, count)) for _ in range(2))
    for o in range(filters.shape[0]):
        for q in range(count):
            met = padded[:, o // multiplier, q * stride : q * stride + rhs * (s - 1) + 1 : rhs]
            terms = met * filters[o, 0, 0].astype(np.float64)
            y[:, o, 0, q], size[:, o, 0, q] = terms.sum(axis=1), np.abs(terms).sum(axis=1)
    return y, (s + 1) * HALF_STEP / (1 - (s + 1) * HALF_STEP) * size + s * 2.0**-150


def test_signature_is_the_library_s():
    parameters = inspect.signature(conv1d).parameters
    names = "img_ref filter_ref padding stride rhs_dilation lhs_dilation feature_group_count"
    assert list(parameters) == [
        *names.split(),
        *"batch_group_count in_perm kern_perm out_perm machine".split(),
    ]
    defaults = [parameters[name].default for name in list(parameters)[2:-1]]
    assert defaults == [((0, 0), (0, 0)), (1, 1), (1, 1), (1, 1), 1, 1, None, None, None]
    kinds = {parameters[name].kind for name in list(parameters)[:-1]}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@few(6)
@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize(
    ("size", "pads", "stride", "rhs", "lhs"),
    [
        ((2, 8, 20, 4), (0, 0), 1, 1, 1),
        ((1, 7, 20, 4), (3, 0), 1, 1, 1),
        ((1, 5, 33, 3), (1, 2), 2, 1, 1),
        ((1, 5, 33, 3), (2, 2), 1, 3, 1),
        ((1, 130, 9, 2), (0, 1), 1, 1, 1),
        ((2, 6, 9, 4), (1, 2), 1, 1, 2),
        ((1, 6, 9, 3), (4, 3), 1, 2, 3),
        ((1, 6, 9, 3), (0, 0), 1, 1, 2),
    ],
)
def test_values(machine, size, pads, stride, rhs, lhs):
    img, filters = arrays(*size)
    y = conv1d(
        img,
        filters,
        ((0, 0), pads),
        (1, stride),
        (1, rhs),
        (1, lhs),
        feature_group_count=size[1],
        machine=machine,
    )
    assert_within(y, *by_definition(img, filters, pads, stride, rhs, lhs))


@pytest.mark.parametrize("lhs", [1, 2])
def test_several_filters_a_channel(lhs):
    img, filters = arrays(2, 5, 12, 3, multiplier=2)
    y = conv1d(img, filters, lhs_dilation=(1, lhs), feature_group_count=5)
    assert_within(y, *by_definition(img, filters, (0, 0), 1, 1, lhs))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"feature_group_count": 1}, "feature_group_count=1 with 4 channels"),
        ({"batch_group_count": 2}, "batch_group_count=2"),
        ({"in_perm": (0, 2, 1, 3)}, "in_perm"),
        ({"out_perm": (3, 2, 1, 0)}, "out_perm"),
        ({"stride": (2, 1)}, "along the height"),
        ({"padding": ((1, 1), (0, 0))}, "along the height"),
        ({"lhs_dilation": (1, 2), "stride": (1, 2)}, "one of them must be 1"),
        ({"lhs_dilation": (1, 2), "padding": ((0, 0), (3, 0))}, "at most 2"),
    ],
)
def test_refusals(options, said):
    img, filters = arrays(1, 4, 10, 3)
    with pytest.raises(UnsupportedError, match=said):
        conv1d(img, filters, **{"feature_group_count": 4, **options})


def test_layouts_are_checked():
    img, filters = arrays(1, 4, 10, 3)
    with pytest.raises(ShapeError, match="img_ref"):
        conv1d(img[:, :, 0], filters, feature_group_count=4)
    with pytest.raises(ShapeError, match="reaches over 3"):
        conv1d(img[..., :1], filters, feature_group_count=4)
    with pytest.raises(ShapeError, match="reaches over 3"):
        conv1d(img[..., :1], filters, lhs_dilation=(1, 2), feature_group_count=4)


def test_an_identity_permutation_is_none():
    img, filters = arrays(1, 4, 10, 3)
    plain = conv1d(img, filters, feature_group_count=4)
    same = conv1d(img, filters, feature_group_count=4, in_perm=(0, 1, 2, 3))
    assert np.array_equal(plain, same)
