"""Plans for what is about to run: asked once, and kept for the shapes of a process."""

from __future__ import annotations

from functools import lru_cache

from trnconv.ask.cores import cores_of
from trnconv.ask.ends import ITEM_BYTES
from trnconv.ask.question import Question
from trnconv.errors import UnsupportedError
from trnconv.forms.form import Plan
from trnconv.planner.best import best_plan
from trnconv.planner.shares import shared_plans
from trnconv.planner.shipped_plans import shipped_digest
from trnconv.planner.tuned_plans import active

_PLANS = 4096  # questions of a process; a large model has some hundreds


def plans_for(question: Question, cores: int | None = None) -> tuple[Plan, ...]:
    """The planner's choice, one plan for each core; None: as many as a launch has."""
    if question.dtype not in ITEM_BYTES:
        raise UnsupportedError(
            f"a convolution of {question.dtype}: the kernels take {', '.join(ITEM_BYTES)}. Cast the"
            " input."
        )
    tuned, launched = active(question.machine.name), cores_of(question.machine, cores)
    stored = (tuned.digest if tuned else "", shipped_digest(question.machine.name, launched))
    return _plans(question, launched, stored)


@lru_cache(maxsize=_PLANS)
def _plans(question: Question, cores: int, stored: tuple[str, str]) -> tuple[Plan, ...]:
    del stored  # plans of other files are other plans
    if cores == 1:
        return (best_plan(question).plan,)
    return tuple(priced.plan for priced in shared_plans(question))
