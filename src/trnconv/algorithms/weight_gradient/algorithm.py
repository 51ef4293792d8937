"""The weight gradient, as a row of the planner's table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trnconv.algorithms.algorithm import Algorithm, problem_and_plan
from trnconv.algorithms.weight_gradient.candidates import candidates, folded, given_share, halves
from trnconv.algorithms.weight_gradient.cost import cost_of
from trnconv.algorithms.weight_gradient.kernel import weight_gradient, weight_gradient_on_two_cores
from trnconv.algorithms.weight_gradient.lower import WeightGradientLowered, lower
from trnconv.algorithms.weight_gradient.pack import filters_of, pack
from trnconv.algorithms.weight_gradient.plan import WIDE_EPILOGUE, WeightGradientPlan
from trnconv.algorithms.weight_gradient.rules import violations
from trnconv.geometry import ONCE, ConvShape
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import PLAIN_EPILOGUE


def _unsupported(problem: ConvProblem, family: str) -> str:
    shape = problem.shape
    if not isinstance(shape, ConvShape) or shape.upsample != ONCE:
        return f"{family}: the input is transposed or upsampled; do that before"
    if problem.epilogue not in (PLAIN_EPILOGUE, WIDE_EPILOGUE):
        return f"{family}: {problem.epilogue}; gradients are as x or float32, and nothing is added"
    if problem.pieces:
        return f"{family}: an input in pieces; it reads one tensor"
    return ""


def _folded(problem: ConvProblem) -> ConvShape:
    assert isinstance(problem.shape, ConvShape)
    return folded(problem.shape)


def _problem_fields(problem: ConvProblem) -> dict[str, Any]:
    return {"shape": _folded(problem), **given_share(problem)}


def _decisions(plan: WeightGradientPlan) -> list[str]:
    return [
        *problem_and_plan(plan),
        f"  passes    {plan.pass_strips} strips of {plan.outs} output channels",
        f"  SBUF      {plan.slots} tiles of x, {plan.windows} windows",
    ]


def _results(lowered: WeightGradientLowered, outputs: tuple[Any, Any]) -> tuple[Any, Any]:
    """dw by filter and tap, and db."""
    dw, db = outputs
    return filters_of(dw, lowered.plan), db.reshape(-1)


def _loops(plan: WeightGradientPlan) -> tuple[int, ...]:
    """Those of a pass, as often as there are passes."""
    recipe = lower(plan).recipe
    looped = tuple(len(sweep.places) for sweep in recipe.sweeps if sweep.looped)
    return looped * len(recipe.passes)


WEIGHT_GRADIENT_ALGORITHM = Algorithm(
    name=WeightGradientPlan.algorithm,
    plan_type=WeightGradientPlan,
    direction=WEIGHT_GRADIENT,
    families=lambda _: (WeightGradientPlan.algorithm,),
    unsupported=_unsupported,
    candidates=lambda problem, _: candidates(problem),
    cost=cost_of,
    rank=lambda cost: (cost.weighed_ns, cost.sbuf_bytes),
    violations=violations,
    moved=lambda plan, problem: replace(plan, **_problem_fields(problem)),
    problem_fields=_problem_fields,
    fits=lambda plan, problem: plan.shape == _folded(problem),
    decisions=_decisions,
    lower=lower,
    pack=lambda lowered, *_: pack(lowered),
    kernels=(weight_gradient,),
    pair_kernels=(weight_gradient_on_two_cores,),
    core_splits=halves,
    loops=_loops,
    results=_results,
)
