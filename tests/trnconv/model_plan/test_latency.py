"""Seconds by cores: one planned figure, and bounds that follow from it."""

import pytest

from trnconv.geometry import conv_shape
from trnconv.model_plan import PlanOptions, between, latencies, plan_trace, shares_by_bound
from trnconv.model_plan.latency import AT_LEAST, AT_MOST, MODELLED
from trnconv.models import Size
from trnconv.traces import ModelTrace, Operation, TracedConv

CONV = TracedConv("decoder.conv", conv_shape((1, 96, 3, 8, 40), (96, 96, 3, 3, 3), padding=1))
SILU = Operation("silu", (1, 96), "bfloat16", 36_000_000, 36_000_000, ("exp", "mul"), 144_000_000)


@pytest.fixture(scope="module", params=[1, 2])
def plan(request):
    seen = ModelTrace(
        model="wan2.1",
        phase="decode",
        frames=9,
        height=64,
        width=96,
        works=((CONV, 2),),
        moved=(),
        left_to_torch=(),
        patched=1,
        peak_bytes=10**9,
        largest_bytes=10**8,
        largest_shape=(1, 96, 3, 8, 40),
        weight_bytes=10**6,
        source="by hand",
        operations=((SILU, 3),),
        operations_unfused=((SILU, 3),),
        operations_as_is=((SILU, 3),),
    )
    return plan_trace(seen, Size("tiny", 9, 64, 96), PlanOptions(cores=request.param))


def test_every_figure_follows_from_the_planned_one(plan):
    planned, whole = plan.options.launch_cores, plan.whole_seconds
    found = {latency.cores: latency for latency in latencies(plan)}
    assert list(found) == [1, 2, 8, 64]
    assert (found[planned].seconds, found[planned].bound) == (whole, MODELLED)
    for cores, latency in found.items():
        assert latency.seconds == pytest.approx(whole * planned / cores)
        if cores != planned:
            assert latency.bound == (AT_MOST if cores < planned else AT_LEAST)


def test_the_range_is_of_what_is_not_ours(plan):
    reach = between(plan)
    assert reach.least == plan.seconds
    # 144 MB by torch's operators, at what 16 DMA engines of 23 bytes a nanosecond move, or HBM
    rate = min(16 * 23 * plan.options.launch_cores, 720)
    assert reach.most == pytest.approx(plan.seconds + 3 * 144e6 / rate / 1e9)
    assert reach.least < plan.whole_seconds < reach.most


def test_bounds_are_shares_of_the_convolutions(plan):
    assert sum(share for _, share in shares_by_bound(plan)) == pytest.approx(1)
    assert shares_by_bound(plan)[0][0] == plan.layers[0].price.bound
