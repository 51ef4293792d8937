"""Two cores of a launch: each gets a plan for its half."""

from __future__ import annotations

from trnconv.ask.question import Question
from trnconv.ask.words import call_in_words
from trnconv.errors import PlanError
from trnconv.forms.form import Priced
from trnconv.planner.best import choose, plans_like
from trnconv.planner.table import form_named

Pair = tuple[Priced, Priced]


def shared_plans(question: Question) -> Pair:
    """The plans of two cores: of all ways to halve it, the one whose slower core ends soonest.

    Both have the algorithm that wins on one core, or the first form's; with `reproducible`, the
    former. What cannot be halved is computed by both cores, which write the same.
    """
    choice = choose(question)
    answers = [choice.taken]
    if not question.reproducible:
        answers += [offer.best for offer in choice.offers[:1] if offer.plans]
    pairs = [pair for answer in answers for pair in _halved(answer, question)]
    pairs = pairs or [
        (answer, answer)
        for answer in answers
        if form_named(answer.plan.form).kernel_of_two_cores is not None
    ]
    if not pairs:
        raise PlanError(
            f"{call_in_words(question)}, two cores: no form computes it. Ask for one core."
        )
    return min(pairs, key=lambda pair: max(priced.cost.total_ns for priced in pair))


def _halved(answer: Priced, question: Question) -> list[Pair]:
    """Every way in which two cores have a plan like this one."""
    form = form_named(answer.plan.form)
    if form.kernel_of_two_cores is None:
        return []
    every = [
        tuple(plans_like(answer, half)[:1] for half in halves) for halves in form.halves(question)
    ]
    return [(first[0], second[0]) for first, second in every if first and second]
