"""Products with frames of zeros are left out: an input gradient has as many as its forward."""

import pytest

from trnconv.algorithms.winograd.blocks import frames_met
from trnconv.algorithms.winograd.plan import HEIGHT
from trnconv.geometry import conv_shape
from trnconv.runtime.launch import trace_plan
from winograd_plans import winograd_plans

CHANNELS = 96


def shape_of(frames, pad):
    x, w = (1, CHANNELS, frames, 4, 8), (CHANNELS, CHANNELS, 3, 3, 3)
    return conv_shape(x, w, padding=(pad, 1, 1))


def matmuls(shape):
    plan = winograd_plans(shape, "F(2,3)", HEIGHT)[0].plan
    trace = trace_plan(plan).trace
    return sum(instruction.op == "nc_matmul" for instruction in trace.instructions())


def test_padded_frames_take_no_products():
    """Outputs of 2 frames with 2 of zeros around meet 1, 2, 2 and 1 of them; 3 taps each make 6."""
    without = matmuls(shape_of(4, 0))  # 2 outputs of 3 frames each
    assert matmuls(shape_of(2, 2)) == without


@pytest.mark.parametrize(("frames", "pad", "met"), [(4, 0, 1), (2, 2, 0.5), (4, 1, 10 / 12)])
def test_the_price_counts_frames_that_are_met(frames, pad, met):
    assert frames_met(shape_of(frames, pad)) == pytest.approx(met)
