"""The answer to a question in words: the direct plan, and what fast forms would give."""

from __future__ import annotations

from trnconv.plan.choose import choose
from trnconv.plan.explain import explain
from trnconv.plan.fast_choose import best_of, explain_fast
from trnconv.plan.question import Question, worth_a_search

_NOT_SEARCHED = (
    "Fast forms were not looked for: the convolution is too small for them, of a kind that they do"
    " not compute, or was asked for directly."
)


def explain_question(question: Question) -> tuple[str, str]:
    """The direct plan and what lost to it; then every fast form, which is taken, or why none is."""
    direct = explain(choose(question.direct(), question.budget))
    if not worth_a_search(question):
        return direct, _NOT_SEARCHED
    found = best_of(
        question.fast(), question.policy, question.budget, reproducible=question.reproducible
    )
    return direct, explain_fast(found)
