"""The table of algorithms. An algorithm is a folder of `algorithms` and a line here."""

from __future__ import annotations

from typing import Any

from trnconv.algorithms.algorithm import Algorithm, Plan, Priced
from trnconv.algorithms.depthwise.algorithm import DEPTHWISE
from trnconv.algorithms.direct.algorithm import DIRECT
from trnconv.algorithms.weight_gradient.algorithm import WEIGHT_GRADIENT_ALGORITHM
from trnconv.algorithms.winograd.algorithm import WINOGRAD
from trnconv.algorithms.winograd_upsample.algorithm import WINOGRAD_UPSAMPLE

# In this order they are asked; where prices are equal, the earlier is taken.
ALGORITHMS: list[Algorithm[Any]] = [
    DIRECT,
    WINOGRAD,
    WINOGRAD_UPSAMPLE,
    DEPTHWISE,
    WEIGHT_GRADIENT_ALGORITHM,
]


def algorithm_named(name: str) -> Algorithm[Any]:
    """The algorithm of this name."""
    return next(algorithm for algorithm in ALGORITHMS if algorithm.name == name)


def algorithm_of(plan: Plan) -> Algorithm[Any]:
    """The algorithm that made a plan."""
    return algorithm_named(plan.algorithm)


def priced(plan: Plan) -> Priced:
    """A plan with its cost by the cost model."""
    return Priced(plan, algorithm_of(plan).cost(plan))
