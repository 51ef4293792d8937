"""Whole models, planned: what all that an encode or decode does would take, without torch."""

from trnconv.model_plan.latency import (
    Between,
    Latency,
    between,
    latencies,
    shares_by_bound,
)
from trnconv.model_plan.operations import KindPlan, OperationPlan, by_kind, operation_plans
from trnconv.model_plan.plans import (
    DEFAULT_OPTIONS,
    GraphPlan,
    LayerPlan,
    ModelPlan,
    PlanOptions,
    is_tuned,
    model_plan,
    plan_trace,
)
from trnconv.model_plan.prices import Prices
from trnconv.model_plan.traces import model_trace, planned_sizes

__all__ = [
    "DEFAULT_OPTIONS",
    "Between",
    "GraphPlan",
    "KindPlan",
    "Latency",
    "LayerPlan",
    "ModelPlan",
    "OperationPlan",
    "PlanOptions",
    "Prices",
    "between",
    "by_kind",
    "is_tuned",
    "latencies",
    "model_plan",
    "model_trace",
    "operation_plans",
    "plan_trace",
    "planned_sizes",
    "shares_by_bound",
]
