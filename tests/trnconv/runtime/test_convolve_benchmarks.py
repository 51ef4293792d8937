"""The benchmark layers at full size: where rows come in many blocks and loops are looped."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import integer_arrays
from conv_calls import compute, lowest_rank
from tolerance import assert_convolution
from trnconv.cases import BENCHMARK

APART = 61  # a prime: channels of every tile, at changing places in it


@pytest.mark.slow
@pytest.mark.parametrize("case", BENCHMARK, ids=[case.name for case in BENCHMARK])
def test_some_channels_of_a_layer_come_out_exactly_at_every_position(case):
    """The first, the last, and some between, because the reference is slower than the machine."""
    x, w, bias = integer_arrays(case.shape, case.dtype)
    y = compute(case.shape, (x, w, bias), rank=lowest_rank(case.shape))
    some = np.unique([*range(0, case.shape.c_out, APART), case.shape.c_out - 1])
    part = replace(case.shape, c_out=len(some))
    assert_convolution(np.ascontiguousarray(y[:, some]), x, w[some], bias[some], part)
