"""Plans that differ in a decision: `Plan.but` is `dataclasses.replace`, only sooner."""

from dataclasses import fields, replace

import pytest

from direct_plans import direct_plan
from trnconv.geometry import conv_shape

PLAN = direct_plan(conv_shape((1, 16, 9, 11), (24, 16, 3, 3), padding=1))


def test_the_same_as_replace():
    other = PLAN.but(rows=1, looped=True)
    assert other == replace(PLAN, rows=1, looped=True) != PLAN
    assert vars(other).keys() == {field.name for field in fields(PLAN)}


def test_a_decision_that_no_plan_has_is_refused():
    with pytest.raises(TypeError, match="DirectPlan has no colour"):
        PLAN.but(colour=1)
