"""Where the arrays of a launch have biases: another bias there is what packing all gives."""

import ml_dtypes
import numpy as np
import pytest

from nkisim.machine import TRN2
from trnconv.algorithms.algorithm import with_bias
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import FAST, Policy
from trnconv.runtime.launch import prepare
from trnconv.runtime.plans import plans_for

QUICKLY = Policy(FAST, x_max=4.0, least_macs=0)
CASES = {
    "direct": ((1, 5, 3, 6, 7), (150, 5, 3, 3, 3), 1, {}),
    "depthwise": ((1, 6, 1, 6, 7), (12, 1, 1, 3, 3), 6, {}),
    "winograd": ((1, 64, 3, 8, 32), (64, 64, 3, 3, 3), 1, {"policy": QUICKLY}),
}


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("algorithm", CASES)
def test_another_bias_is_put_where_packing_would(algorithm, cores):
    x, w, groups, options = CASES[algorithm]
    shape = conv_shape(x, w, padding=(0, 1, 1), groups=groups)
    asked = ConvProblem(shape, TRN2, "bfloat16", algorithms=(algorithm,), **options)
    program = prepare(plans_for(asked, cores))
    rng = np.random.default_rng(0)
    filters = rng.standard_normal(w).astype(ml_dtypes.bfloat16)
    one, other = (rng.standard_normal(shape.c_out).astype(ml_dtypes.bfloat16) for _ in range(2))
    places = program.bias_channels()
    for before, after in ((one, other), (None, one), (one, None)):
        first, wanted = program.pack(filters, before), program.pack(filters, after)
        assert len(first) == len(places)
        for array, right, channels in zip(first, wanted, places, strict=True):
            made = array if channels is None else with_bias(array, channels, after)
            np.testing.assert_array_equal(made, right)
    assert any(channels is not None for channels in places)
