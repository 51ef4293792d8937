"""The cost model against the timeline, and the choice against all candidates timed."""

from dataclasses import replace

import pytest

from direct_plans import direct_plans
from trnconv.cases import find
from trnconv.geometry import conv_shape
from trnconv.runtime import time_plan

# Channel pairs, kernels, strides and sizes of the models of the catalogue. Rows are cropped, so
# that a candidate takes a second or two.
SHAPES = [
    ((1, 96, 6, 16, 1280), (96, 96, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 96, 3, 16, 1280), (96, 96, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 192, 6, 16, 640), (192, 192, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 192, 3, 24, 640), (192, 192, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 384, 3, 24, 160), (384, 384, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 384, 4, 24, 104), (384, 384, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 96, 6, 20, 1280), (3, 96, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 16, 3, 90, 160), (384, 16, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 384, 3, 90, 160), (768, 384, 3, 1, 1), {}),
    ((1, 384, 60, 320), (192, 384, 3, 3), {"padding": 1}),
    ((1, 192, 40, 1280), (96, 192, 3, 3), {"padding": 1}),
    ((1, 128, 6, 24, 640), (128, 128, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 256, 5, 16, 360), (256, 256, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 512, 5, 16, 90), (512, 512, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 384, 4, 90, 160), (384, 384, 1, 1, 1), {}),
    ((1, 3, 3, 48, 832), (96, 3, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 12, 3, 60, 416), (160, 12, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 160, 3, 24, 416), (160, 160, 3, 3, 3), {"padding": (0, 1, 1)}),
    ((1, 96, 97, 833), (96, 96, 3, 3), {"stride": 2}),
    ((1, 128, 5, 33, 129), (256, 128, 3, 3, 3), {"stride": (1, 2, 2)}),
]
UNROLLED = 10**9
KEYS = "a b c1 c2 c3 d e f g h1 h2 h3 i1 i2 i3 j k1 k2".split()


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_the_cost_model_is_within_15_percent_of_the_timeline(key):
    shape = find(key).shape
    taken = direct_plans(shape, budget=UNROLLED)[0]
    timeline = time_plan(taken.plan)
    assert taken.cost.total_ns == pytest.approx(timeline.makespan_ns, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("x", "w", "options"), SHAPES)
def test_the_choice_is_within_5_percent_of_the_best_candidate_timed(x, w, options):
    shape = conv_shape(x, w, **options)
    first, *others = direct_plans(shape, budget=UNROLLED)
    distinct = {replace(priced.plan, lead=(), ahead=False) for priced in others}
    timed = [time_plan(plan).makespan_ns for plan in distinct]
    taken = time_plan(first.plan).makespan_ns
    assert taken <= 1.05 * min([taken, *timed])


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [(1, 1, 4), (2, 4), (3, 3)])
def test_a_program_for_several_tensors_is_as_long_as_was_said(pieces):
    """A loop for every way in which the frames of a block lie in them; two bodies is twice as much.

    The count leaves out a few instructions of a program's ends.
    """
    shape = conv_shape((1, 96, 6, 720, 1280), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    taken = direct_plans(shape, pieces=pieces)[0]
    assert taken.plan.looped
    counted = time_plan(taken.plan).compiler_instructions
    assert taken.cost.instructions == pytest.approx(counted, rel=0.05)
