"""The filter gradient, as a row of the planner's table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trnconv.ask.ends import PLAIN_END
from trnconv.ask.question import FILTER_GRADIENT, Question
from trnconv.forms.filter_gradient.candidates import candidates, folded, given_share, halves
from trnconv.forms.filter_gradient.cost import cost_of
from trnconv.forms.filter_gradient.kernel import weight_gradient, weight_gradient_on_two_cores
from trnconv.forms.filter_gradient.lower import FilterGradientLowered, lower
from trnconv.forms.filter_gradient.pack import filters_of, pack
from trnconv.forms.filter_gradient.plan import WIDE_END, FilterGradientPlan
from trnconv.forms.filter_gradient.rules import broken_rules
from trnconv.forms.form import Form, problem_and_plan
from trnconv.geometry import ONCE, ConvShape


def _refuses(question: Question, family: str) -> str:
    shape = question.shape
    if not isinstance(shape, ConvShape) or shape.upsample != ONCE:
        return f"{family}: the input is transposed or upsampled; do that before"
    if question.end not in (PLAIN_END, WIDE_END):
        return f"{family}: {question.end}; gradients are as x or float32, and nothing is added"
    if question.pieces:
        return f"{family}: an input in pieces; it reads one tensor"
    return ""


def _folded(question: Question) -> ConvShape:
    assert isinstance(question.shape, ConvShape)
    return folded(question.shape)


def _given(question: Question) -> dict[str, Any]:
    return {"shape": _folded(question), **given_share(question)}


def _decisions(plan: FilterGradientPlan) -> list[str]:
    return [
        *problem_and_plan(plan),
        f"  passes    {plan.pass_strips} strips of {plan.outs} output channels",
        f"  SBUF      {plan.slots} tiles of x, {plan.windows} windows",
    ]


def _results(lowered: FilterGradientLowered, outputs: tuple[Any, Any]) -> tuple[Any, Any]:
    """dw by filter and tap, and db."""
    dw, db = outputs
    return filters_of(dw, lowered.plan), db.reshape(-1)


def _loops(plan: FilterGradientPlan) -> tuple[int, ...]:
    """Those of a pass, as often as there are passes."""
    recipe = lower(plan).recipe
    rolled = tuple(len(sweep.places) for sweep in recipe.sweeps if sweep.rolled)
    return rolled * len(recipe.passes)


GRADIENT = Form(
    name=FilterGradientPlan.form,
    plan_type=FilterGradientPlan,
    asks=FILTER_GRADIENT,
    families=lambda _: (FilterGradientPlan.form,),
    refuses=_refuses,
    candidates=lambda question, _: candidates(question),
    cost=cost_of,
    rank=lambda cost: (cost.weighed_ns, cost.sbuf_bytes),
    broken_rules=broken_rules,
    moved=lambda plan, question: replace(plan, **_given(question)),
    given=_given,
    fits=lambda plan, question: plan.shape == _folded(question),
    decisions=_decisions,
    lower=lower,
    pack=lambda lowered, *_: pack(lowered),
    kernels=(weight_gradient,),
    pair_kernels=(weight_gradient_on_two_cores,),
    halves=halves,
    loops=_loops,
    results=_results,
)
