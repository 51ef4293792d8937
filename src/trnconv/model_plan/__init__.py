"""Whole models, planned: what each convolution of an encode or decode would take, without torch."""

from trnconv.model_plan.observations import observation, planned_sizes
from trnconv.model_plan.plans import (
    DEFAULT_OPTIONS,
    GraphPlan,
    LayerPlan,
    ModelPlan,
    PlanOptions,
    is_tuned,
    model_plan,
    plan_observed,
)
from trnconv.model_plan.prices import Prices

__all__ = [
    "DEFAULT_OPTIONS",
    "GraphPlan",
    "LayerPlan",
    "ModelPlan",
    "PlanOptions",
    "Prices",
    "is_tuned",
    "model_plan",
    "observation",
    "plan_observed",
    "planned_sizes",
]
