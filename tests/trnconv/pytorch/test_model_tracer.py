"""The traces that come with the package are what the models do today."""

from dataclasses import replace

import pytest

from trnconv.model_plan import PlanOptions, model_trace, plan_trace, planned_sizes
from trnconv.models import Size, find
from trnconv.traces import shipped

pytestmark = pytest.mark.diffusers
DIRECT = PlanOptions(accuracy="direct")


@pytest.mark.parametrize("name", ["wan2.1", "cogvideox", "sdxl"])
@pytest.mark.parametrize("phase", ["encode", "decode"])
def test_what_is_stored_is_traced_again(name, phase):
    from trnconv.pytorch.model_tracer import trace_entry

    entry = find(name)
    size = planned_sizes(entry)[-1]
    stored = shipped(entry, size, phase)
    again = trace_entry(entry, size, phase)
    assert replace(again, source=stored.source) == stored, "run `python -m benchmarks trace-models`"


def test_a_plan_is_the_estimate_of_the_same_run():
    from nkisim.machine import TRN2
    from trnconv.pytorch.estimate import estimate, run_entry_on_meta

    entry = find("sdxl")
    expected = estimate(
        run_entry_on_meta(entry, entry.production, "decode", accuracy="direct"), TRN2
    )
    plan = plan_trace(shipped(entry, entry.production, "decode"), entry.production, DIRECT)
    assert plan.seconds == pytest.approx(expected.seconds, rel=1e-12)
    assert plan.instructions == expected.instructions
    assert plan.copied_bytes == expected.copied_bytes


def test_sizes_that_are_not_stored_are_traced():
    size = Size("small", 1, 64, 96)
    seen = model_trace(find("sdxl"), size, "decode")
    assert (seen.height, seen.width, seen.frames) == (64, 96, 1)
    assert {work.shape.size[1:] for work, _ in seen.works} >= {(8, 12), (64, 96)}
