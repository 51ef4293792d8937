"""Two cores of a launch: each gets a plan for its half."""

from __future__ import annotations

from trnconv.ask.question import Question
from trnconv.ask.words import call_in_words
from trnconv.errors import PlanError
from trnconv.forms.form import Priced
from trnconv.planner.best import only, searched_plan
from trnconv.planner.table import FORMS


def shared_plans(question: Question) -> tuple[Priced, Priced]:
    """The plans of two cores: of all ways to halve it, the one whose slower core ends soonest.

    What cannot be halved is computed by both cores, which write the same.
    """
    pairs = [
        (only(first, form.name), only(second, form.name))
        for form in FORMS
        if form.kernel_of_two_cores and not form.refuses(question, form.name)
        for first, second in form.halves(question) or ((question, question),)
    ]
    if not pairs:
        raise PlanError(
            f"{call_in_words(question)}, two cores: no form computes it. Ask for one core."
        )
    planned = [(searched_plan(first), searched_plan(second)) for first, second in pairs]
    return min(planned, key=lambda both: max(priced.cost.total_ns for priced in both))
