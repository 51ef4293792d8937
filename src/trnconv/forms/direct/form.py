"""The direct form, as a row of the planner's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trnconv.ask.question import OUTPUT, Question
from trnconv.forms.direct import kernel
from trnconv.forms.direct.array.summation import keeps_orders
from trnconv.forms.direct.candidates import Task, candidates, halves, refined
from trnconv.forms.direct.cost import cost_of, floor_ns, least_tensor_ns
from trnconv.forms.direct.length import bodies
from trnconv.forms.direct.loops import trips_of
from trnconv.forms.direct.lower import lower
from trnconv.forms.direct.pack import bias_channels, pack, sources
from trnconv.forms.direct.plan import DirectPlan
from trnconv.forms.direct.problem import fold, problem_of
from trnconv.forms.direct.rules import broken_rules
from trnconv.forms.direct.words import decisions
from trnconv.forms.form import Cost, Form, Priced
from trnconv.forms.search import best_body, of_form

_ROLLED_TRIES = 6


def _refined(plan: DirectPlan, cost: Cost) -> Iterator[DirectPlan]:
    """Small blocks at the ends; loads before stores, if DMA binds."""
    return refined(plan, moving=cost.bound == "dma" and plan.is_plain)


def _rolled(
    form: Form[DirectPlan], question: Question, family: str, legal: tuple[Priced, ...]
) -> list[Priced]:
    """Hardware loops in place of equal blocks, for the fastest plans they make short enough."""
    del family
    found: list[Priced] = []
    for priced in legal:
        plan = of_form(form, priced)
        if plan.lead or plan.ahead:
            continue
        best = best_body(form, bodies(plan.but(rolled=True), question.budget), question.budget)
        found += [best] if best else []
        if len(found) == _ROLLED_TRIES:
            break
    return found


def _broken_promises(plan: DirectPlan, question: Question) -> list[str]:
    if question.exact and not plan.exact_for_non_finite():
        return ["exact=True was asked for, and it spreads Inf and NaN"]
    return []


def _sums_alike(part: Question, whole: Question) -> bool:
    """Whether output channels that are computed apart keep their order of sums."""
    return keeps_orders(*(fold(asked.shape, every_tap=True) for asked in (part, whole)))


def _given(question: Question) -> dict[str, Any]:
    return {"shape": question.shape, "problem": problem_of(question)}


def _moved(plan: DirectPlan, question: Question) -> DirectPlan:
    """With the rows and columns of a share; its channels are those of the plan."""
    moved = plan.but(**_given(question))
    rows, columns = Task.of(question).rows, question.share and question.share.columns
    return moved.but(rows_of=rows, columns_of=columns or (0, 0))


DIRECT = Form(
    name=DirectPlan.form,
    plan_type=DirectPlan,
    families=lambda _: (DirectPlan.form,),
    refuses=lambda question, family: (
        "" if question.asks == OUTPUT else f"{family}: it computes no {question.asks}"
    ),
    candidates=lambda question, _: candidates(Task.of(question)),
    more_candidates=lambda question, _: candidates(Task.of(question), thorough=True),
    least_ns=least_tensor_ns,
    floor_ns=floor_ns,
    cost=cost_of,
    broken_rules=broken_rules,
    broken_promises=_broken_promises,
    refined=_refined,
    rolled=_rolled,
    halves=halves,
    loops=trips_of,
    sums_alike=_sums_alike,
    moved=_moved,
    given=_given,
    decisions=decisions,
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    sources=sources,
    kernels=(kernel.forward, kernel.forward_of_two, kernel.forward_of_three),
    pair_kernels=(
        kernel.forward_on_two_cores,
        kernel.forward_of_two_on_two_cores,
        kernel.forward_of_three_on_two_cores,
    ),
    takes_residual=True,
    takes_coarse_residual=True,
)
