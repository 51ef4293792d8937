"""Whole models, planned: what all that an encode or decode does would take, without torch."""

from trnconv.model_plan.observations import observation, planned_sizes
from trnconv.model_plan.operations import KindPlan, OperationPlan, by_kind, operation_plans
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
    "KindPlan",
    "LayerPlan",
    "ModelPlan",
    "OperationPlan",
    "PlanOptions",
    "Prices",
    "by_kind",
    "is_tuned",
    "model_plan",
    "observation",
    "operation_plans",
    "plan_observed",
    "planned_sizes",
]
