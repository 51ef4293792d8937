"""The one search: price what a form proposes, keep what is legal, take the fastest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import inf

from trnconv.ask.question import FILTER_GRADIENT, Question
from trnconv.forms.form import Form, P, Priced
from trnconv.forms.program import prepared, timed

# Numbers that were tried on the 194 forward problems of tests/support/pinned_problems.py have their
# effect beside them: how many plans are others, and what that does to the closed form's times.
_REFINED = 2
_ANY_LENGTH = 10**9  # static instructions
_REMEMBERED = 256  # questions; graphs ask for each of theirs with several budgets
_HOPELESS = 1.15  # without a bound: the same plans; 1.05: too; 1.0: two others, 0.4 % slower
_SHORT = 350  # instructions, as a compiler counts them, of a program that is scheduled: 20 ms
_SCHEDULED = 3  # of those, the first. By schedule: geomean 0.970 of before; 6 of 400: 0.967


@lru_cache(maxsize=_REMEMBERED)
def search(form: Form[P], question: Question, family: str) -> tuple[Priced, ...]:
    """Legal plans of an algorithm within the question's budget, the fastest first."""
    legal = _proposed(form, question if form.keeps_budget else _of_any_length(question), family)
    found = _within(form, question, family, legal)
    if not found:
        more = tuple(_legal(form, form.more_candidates(question, family)))
        found = _within(form, question, family, more)
    if question.reproducible:
        found = [priced for priced in found if priced.plan.is_reproducible]
    return tuple(found if _leaves_outputs(question) else _scheduled(form, found))


def thorough_search(form: Form[P], question: Question) -> list[Priced]:
    """Plans of all algorithms of a form that it proposes if time does not matter, best first."""
    families = [name for name in form.families(question) if not form.refuses(question, name)]
    plans = (plan for family in families for plan in form.thorough(question, family))
    legal = _legal(form, plans)
    return [priced for priced in legal if priced.cost.instructions <= question.budget]


def _leaves_outputs(question: Question) -> bool:
    """Whether a core alone may leave an output, the bias gradient, unwritten: it is never run."""
    return question.share is not None and question.asks == FILTER_GRADIENT


def _of_any_length(question: Question) -> Question:
    """The same for every budget."""
    return replace(question, budget=_ANY_LENGTH)


@lru_cache(maxsize=_REMEMBERED)
def _proposed(form: Form[P], question: Question, family: str) -> tuple[Priced, ...]:
    """Legal plans, the fastest first."""
    legal = _legal(form, form.candidates(question, family))
    variants = [
        plan
        for priced in legal[:_REFINED]
        for plan in form.refined(of_form(form, priced), priced.cost)
    ]
    if not variants:
        return tuple(legal)
    return tuple(_ranked(form, [*legal[_REFINED:], *_legal(form, variants)]))


def _within(
    form: Form[P], question: Question, family: str, legal: tuple[Priced, ...]
) -> list[Priced]:
    """Plans short enough, some of them by hardware loops; the fastest first."""
    within = [priced for priced in legal if priced.cost.instructions <= question.budget]
    if within[:1] == list(legal[:1]):
        return within
    return _ranked(form, [*within, *form.rolled(form, question, family, legal)])


def _legal(form: Form[P], plans: Iterable[P]) -> list[Priced]:
    """What is legal, priced. Plans that take far longer than the best at least need no price."""
    found: list[Priced] = []
    best = inf
    for plan in plans:
        if form.least_ns(plan) > _HOPELESS * best or form.broken_rules(plan):
            continue
        cost = form.cost(plan)
        found.append(Priced(plan, cost))
        best = min(best, cost.total_ns)
    return _ranked(form, found)


def _ranked(form: Form[P], plans: Iterable[Priced]) -> list[Priced]:
    """The fastest first; where times are close, the one that moves less."""
    return sorted(plans, key=lambda priced: form.rank(priced.cost))


def _scheduled(form: Form[P], ranked: list[Priced]) -> list[Priced]:
    """The most promising of short programs by their schedule: latencies decide, not busy times."""
    few = [priced for priced in ranked[:_SCHEDULED] if priced.cost.instructions <= _SHORT]
    if ranked[:1] != few[:1]:
        return ranked
    rest = [priced for priced in ranked if priced not in few]
    return [*_ranked(form, (by_schedule(form, priced) for priced in few)), *rest]


def by_schedule(form: Form[P], priced: Priced) -> Priced:
    """The same plan with the time of its schedule."""
    cost = priced.cost
    ns = timed(prepared(form, (priced.plan,))).makespan_ns
    weighed_ns = cost.weighed_ns + ns - cost.total_ns
    return replace(priced, cost=replace(cost, total_ns=ns, weighed_ns=weighed_ns, scheduled=True))


def best_body(form: Form[P], bodies: Iterable[P], budget: int) -> Priced | None:
    """Of hardware loops with longer and longer turns, the fastest that the budget allows.

    A turn that is long enough makes little of what turns cost; longer ones are not tried.
    """
    best: Priced | None = None
    for plan in bodies:
        cost = form.cost(plan)
        if cost.instructions > budget:
            break
        if best is None or cost.total_ns < best.cost.total_ns:
            if form.broken_rules(plan):
                break
            best = Priced(plan, cost)
        if not cost.waits_for_turns:
            break
    return best


def of_form(form: Form[P], priced: Priced) -> P:
    """The plan, known to be of this form."""
    assert isinstance(priced.plan, form.plan_type)
    return priced.plan


def why_none(form: Form[P], question: Question, family: str) -> str:
    """Why a search found nothing, in words."""
    plans = form.candidates(_of_any_length(question), family)
    if any(not form.broken_rules(plan) for plan in plans):
        limit = f"at most {question.budget} static instructions"
        return f"no plan with {limit}: raise the budget, or split the problem"
    broken = [form.broken_rules(plan) for plan in form.candidates(question, family)]
    rules = dict.fromkeys(rule for rules in broken for rule in rules)
    return "; ".join(rules) or "no block is small enough for SBUF"
