"""What a convolution is modelled to take, for choices between ways to run a model."""

from __future__ import annotations

from math import inf

from trnconv.ask.question import Question
from trnconv.errors import TrnconvError
from trnconv.runtime.pricing import price


def priced(question: Question, cores: int) -> float:
    """Modelled time of a convolution, ns; infinite if there is no plan."""
    try:
        return price(question, cores=cores).ns
    except TrnconvError:  # no plan is no price: it never wins
        return inf
