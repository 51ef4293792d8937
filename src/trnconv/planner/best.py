"""Which plan is taken: every form is asked, and the fastest answer wins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from trnconv.ask.question import Question, of_one_frame
from trnconv.ask.words import call_in_words
from trnconv.errors import PlanError
from trnconv.forms.form import Form, Priced
from trnconv.forms.search import search, why_none
from trnconv.planner.shipped_plans import narrower_answer, shipped_answer
from trnconv.planner.table import FORMS, form_named
from trnconv.planner.tuned_plans import tuned_plan


@dataclass(frozen=True)
class Offer:
    """What one algorithm of a form gives: legal plans, the fastest first, or why there is none."""

    form: str
    family: str
    plans: tuple[Priced, ...]
    refused: str  # in words; empty if there are plans

    @property
    def best(self) -> Priced:
        """Its fastest plan."""
        return self.plans[0]


@dataclass(frozen=True)
class Choice:
    """The plan taken, and what every form offered."""

    question: Question
    taken: Priced
    offers: tuple[Offer, ...]


def best_plan(question: Question) -> Priced:
    """The plan that was tuned for this very question, a shipped one, else what a search finds."""
    tuned = tuned_plan(question)
    if tuned is not None:
        return tuned
    shipped = shipped_answer(question, 1)
    if shipped is not None:
        return shipped[0]
    candidates = (searched_plan(question), *(narrower_answer(question, 1) or ()))
    return min(candidates, key=lambda priced: priced.cost.total_ns)


def searched_plan(question: Question) -> Priced:
    """The fastest plan within the budget that the policy allows, by the closed form."""
    return _beyond_the_first(question) or choose(question).taken


def _beyond_the_first(question: Question) -> Priced | None:
    """A plan that wins whatever the first form offers; None if that one has to be asked.

    Half of a search's time is the direct form's, which often cannot be as fast as F(2,3) is.
    """
    floor_ns = first_floor_ns(question)
    if question.reproducible or not floor_ns:
        return None
    winner = _fastest(tuple(_offers(question, FORMS[1:])))
    if winner is None:
        return None
    enough = 1 - form_named(winner.plan.form).least_gain
    return winner if winner.cost.total_ns < enough * floor_ns else None


def first_floor_ns(question: Question) -> float:
    """What any plan of the first form takes at least; 0 if it is not asked, or does not say."""
    is_asked = not question.forms and FORMS[0].asks == question.asks
    return FORMS[0].floor_ns(question) if is_asked else 0.0


def first_offer(question: Question) -> Priced | None:
    """The best plan of the first algorithm that is asked; None if it has none."""
    offer = next(offers_of(question), None)
    return offer.best if offer and offer.plans else None


def choose(question: Question) -> Choice:
    """Ask every form; PlanError if none has a plan.

    A form is taken if it is faster than those before it in the table, by as much as it has to be.
    With `reproducible`, what is taken does not depend on frames, pieces or images: it is the
    algorithm that wins for a single frame.
    """
    offers = tuple(offers_of(question))
    several = len({offer.form for offer in offers if not offer.refused}) > 1
    if question.reproducible and several and question != of_one_frame(question):
        winner: Priced | None = _like(choose(of_one_frame(question)).taken, question, offers)
    else:
        winner = _fastest(offers)
    if winner is None:
        reasons = _reasons(question, offers)
        raise PlanError(f"{call_in_words(question)}: {reasons}.")
    return Choice(question, winner, offers)


def offers_of(question: Question) -> Iterator[Offer]:
    """What each form gives that a search may gain from."""
    return _offers(question, FORMS)


def is_searched(question: Question) -> bool:
    """Whether any form takes a question before plans are looked for; there may be none."""
    return any(not _refusal(form, question, family) for form, family in _asked(question, FORMS))


def _offers(question: Question, forms: Iterable[Form[Any]]) -> Iterator[Offer]:
    return (_offer(form, question, family) for form, family in _asked(question, forms))


def _asked(question: Question, forms: Iterable[Form[Any]]) -> Iterator[tuple[Form[Any], str]]:
    for form in forms:
        named = form.name in question.forms
        worth = named if question.forms else form.is_worth_asking(question)
        if worth and form.asks == question.asks:
            yield from ((form, family) for family in form.families(question))


def _offer(form: Form[Any], question: Question, family: str) -> Offer:
    refused = _refusal(form, question, family)
    plans = () if refused else search(form, question, family)
    if not plans and not refused:
        refused = f"{family}: {why_none(form, question, family)}"
    return Offer(form.name, family, plans, refused)


def _refusal(form: Form[Any], question: Question, family: str) -> str:
    """Why a family has no plan at all, in words; empty if it is searched."""
    lacks = form.lacks(question)
    return f"{family}: {lacks}" if lacks else form.refuses(question, family)


def _fastest(offers: tuple[Offer, ...]) -> Priced | None:
    winner: Priced | None = None
    for form in FORMS:
        candidates = [offer.best for offer in offers if offer.form == form.name and offer.plans]
        if not candidates:
            continue
        enough = 1 - form.least_gain
        best = _most_exact(candidates, enough)
        if winner is None or best.cost.total_ns < enough * winner.cost.total_ns:
            winner = best
    return winner


def _most_exact(candidates: list[Priced], enough: float) -> Priced:
    """Of the best plans of a form's algorithms, that of the least error among the fastest.

    A more exact one is taken unless another gains what a form has to gain.
    """
    least = min(priced.cost.weighed_ns for priced in candidates)
    close = [priced for priced in candidates if enough * priced.cost.weighed_ns <= least]
    return min(close, key=lambda priced: (priced.plan.expected_ratio, priced.cost.weighed_ns))


def _like(alone: Priced, question: Question, offers: tuple[Offer, ...]) -> Priced:
    """The best plan of the algorithm that a single frame gets."""
    for offer in offers:
        if offer.family == alone.plan.family and offer.plans:
            return offer.best
    raise PlanError(
        f"{call_in_words(question)}: one frame is computed by {alone.plan.family}, and so many"
        ' frames cannot be. Ask for accuracy="direct", or for fewer frames at once.'
    )


def _reasons(question: Question, offers: tuple[Offer, ...]) -> str:
    named = question.forms or tuple(form.name for form in FORMS)
    nobody = f"none of {', '.join(named)} computes the {question.asks}"
    return "; ".join(dict.fromkeys(offer.refused for offer in offers)) or nobody


def others_for_halves(
    winner: Priced, question: Question, *, every: bool
) -> list[tuple[Form[Any], str]]:
    """Algorithms beyond the first form's that may win for halves of a question, by their names.

    Those without a plan within the budget, which halves may have; or every one.
    """
    others = []
    for form, family in _asked(question, FORMS[1:]):
        is_other = family != winner.plan.family and not _refusal(form, question, family)
        if is_other and form.pair_kernels:
            wanted = every or not search(form, question, family)
            others += [(form, family)] if wanted else []
    return others


def plans_like(priced: Priced, question: Question) -> tuple[Priced, ...]:
    """Plans of the same algorithm for another question, the fastest first."""
    form, family = form_named(priced.plan.form), priced.plan.family
    return () if form.refuses(question, family) else search(form, question, family)


def only(question: Question, *names: str) -> Question:
    """The same, to be computed by these forms."""
    return replace(question, forms=names)
