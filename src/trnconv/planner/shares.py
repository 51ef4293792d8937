"""Two cores of a launch: each gets a plan for its half."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from trnconv.ask.question import Question
from trnconv.ask.words import call_in_words
from trnconv.errors import PlanError
from trnconv.forms.form import Plan, Priced
from trnconv.planner.best import choose, plans_like
from trnconv.planner.table import form_named, form_of

Pair = tuple[Priced, Priced]
_TRIED = 16  # plans of each half that are looked through for loops that agree


def shared_plans(question: Question) -> Pair:
    """The plans of two cores: of all ways to halve it, the one whose slower core ends soonest.

    Both have the algorithm that wins on one core, or the first form's; with `reproducible`, the
    former. Both have the same hardware loops: a device takes no others. What cannot be halved is
    computed by both cores, which write the same.
    """
    choice = choose(question)
    answers = [choice.taken]
    if not question.reproducible:
        answers += [offer.best for offer in choice.offers[:1] if offer.plans]
    pairs = [pair for answer in answers for pair in _halved(answer, question)]
    pairs = pairs or [
        (answer, answer) for answer in answers if form_named(answer.plan.form).pair_kernels
    ]
    if not pairs:
        raise PlanError(
            f"{call_in_words(question)}, two cores: no form computes it. Ask for one core."
        )
    return min(pairs, key=_slower_ns)


def _slower_ns(pair: Pair) -> float:
    return max(priced.cost.total_ns for priced in pair)


def _slower_rank(pair: Pair) -> tuple[float, ...]:
    """What plans are ranked by: where times are close, traffic counts."""
    return max(form_of(priced.plan).rank(priced.cost) for priced in pair)


def _halved(answer: Priced, question: Question) -> list[Pair]:
    """The best pair of plans like this one, for every way to halve the question."""
    form = form_named(answer.plan.form)
    if not form.pair_kernels:
        return []
    found = (
        in_step(*(plans_like(answer, half) for half in halves)) for halves in form.halves(question)
    )
    return [pair for pair in found if pair is not None]


def in_step(first: tuple[Priced, ...], second: tuple[Priced, ...]) -> Pair | None:
    """Of the fastest plans of both halves, two with the same loops."""
    pairs = sorted(product(first[:_TRIED], second[:_TRIED]), key=_slower_rank)
    return next((pair for pair in pairs if loops(pair[0].plan) == loops(pair[1].plan)), None)


@lru_cache(maxsize=1024)
def loops(plan: Plan) -> tuple[int, ...]:
    """Trips of the hardware loops of a plan's program, in their order."""
    form = form_of(plan)
    return form.loops(form.lower(plan).recipe) if plan.is_rolled else ()
