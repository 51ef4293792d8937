"""`exact=True`: Inf and NaN of the image reach the outputs whose taps meet them, and no others."""

import numpy as np
import pytest

from conv_arrays import integer_arrays
from conv_calls import call_options
from repetition import few
from tolerance import assert_within, forward_bound
from trnconv.cases import find
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve

NAMES = (
    "c_in_3",
    "c_in_33",
    "c_in_65",
    "c_in_192",
    "c_out_3",
    "c_out_129",
    "causal",
    "halved_in_all_axes",
    "dilated_and_strided",
    "stride_beyond_kernel",
    "patches_2x2",
    "pointwise",
    "batch_2",
    "signal",
    "one_column",
)


def readers(shape, place):
    """Which outputs have a tap on one element of the image: [N, 1, D, H, W]."""
    marked = np.zeros((shape.batch, shape.c_in, *shape.size))
    marked[place] = 1
    return forward(marked, np.ones((shape.c_out, shape.c_in, *shape.kernel)), None, shape) > 0


@few(4)
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", NAMES)
def test_only_outputs_that_read_it_see_it(name, value):
    case, shape = find(name), find(name).shape
    x, w, bias = integer_arrays(shape, case.dtype)
    w[w == 0] = 1  # 0 * Inf would be NaN where Inf is meant, and hide nothing else
    exact = forward(x, w, bias, shape)
    bound = forward_bound(x, w, bias, shape, exact)
    place = (shape.batch - 1, shape.c_in - 1, *(size // 2 for size in shape.size))
    x[place] = value
    y = convolve(x, w, bias, **call_options(shape, 3), launch=LaunchOptions(exact=True)).y
    reads = readers(shape, place)
    assert not np.isfinite(y[reads]).any()
    assert_within(np.where(reads, exact, y), exact, bound)


def test_without_it_zeros_of_packed_filters_spread_what_is_not_finite():
    """Else the test above would pass for any planner."""
    shape = find("c_out_3").shape
    x, w, bias = integer_arrays(shape, "bfloat16")
    place = (0, 0, 1, 4, 6)
    x[place] = np.inf
    y = convolve(x, w, bias, **call_options(shape, 3)).y
    assert np.isnan(y[~readers(shape, place)]).any()
