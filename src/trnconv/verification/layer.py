"""A layer's kernel in nkisim against the definition in float64, on random data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from trnconv.algorithms.algorithm import Priced
from trnconv.crop import crop, describe, effort, under_its_plan
from trnconv.geometry import ConvShape
from trnconv.planner.best import best_plan, plans_like
from trnconv.planner.shares import plans_of_two
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.launches import planned_parts
from trnconv.problem.policy import ALWAYS_DIRECT, LIMITS
from trnconv.reference import forward
from trnconv.runtime.convolve import LaunchOptions, convolve_shape
from trnconv.verification.bounds import half_steps, largest_errors

Array = np.ndarray[Any, Any]
MOST_EFFORT = 6_000_000_000  # simulated and checked in some seconds


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far outputs are from the exact ones."""

    outputs: int
    rms: float  # relative to that of the exact outputs
    largest: float  # relative to the largest exact output
    floor_rms: float  # of the exact outputs rounded to their type: no kernel is nearer
    over_floor: float | None  # rms over that; None where the type holds the sums
    worst_of_bound: float  # error over its derived bound, where that is most
    outside: int  # outputs beyond their bound, NaN included


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a kernel is as near as it has to be."""

    plan: Priced  # of the first core
    cores: int
    shape: ConvShape  # of what was run
    cut: str  # how much of the layer that is; empty: all of it
    errors: Errors
    most_over_floor: float | None  # that the accuracy allows; None: the bound alone decides

    @property
    def passed(self) -> bool:
        """Every output within its bound, and a fast one as accurate as was promised."""
        ratio, most = self.errors.over_floor, self.most_over_floor
        accurate = ratio is None or most is None or ratio <= most
        return accurate and not self.errors.outside


def verify_layer(problem: ConvProblem, seed: int = 0, cores: int | None = None) -> Verdict:
    """Run the plan of a layer, or of a piece of it if it is large, on seeded normal data.

    `cores` of the launch: None is what the machine's has.
    """
    whole = problem.shape
    assert isinstance(whole, ConvShape)
    checked, planned = _small_enough(problem)
    shape = checked.shape
    assert isinstance(shape, ConvShape)
    x, w, bias = random_data(shape, problem.dtype, seed)
    alone = cores_of(problem.machine, cores) == 1
    plans = (planned,) if alone else plans_of_two(planned, checked)
    launch = LaunchOptions(problem.machine.name, plans=tuple(plan.plan for plan in plans))
    y = convolve_shape((x,), w, bias, shape, launch).y
    exact = forward(x, w, bias, shape)
    off = largest_errors(x, w, bias, shape, planned.plan)
    return Verdict(
        plan=plans[0],
        cores=len(plans),
        shape=shape,
        cut=describe(whole, shape),
        errors=errors_of(y, exact, off + half_steps(np.abs(exact) + off, y.dtype)),
        most_over_floor=_promised(problem, planned),
    )


def _promised(problem: ConvProblem, planned: Priced) -> float | None:
    rounds = planned.plan.expected_ratio > 1
    return LIMITS[problem.policy.accuracy] if rounds else None


def errors_of(y: Array, exact: Array, bound: Array) -> Errors:
    """Statistics of outputs against exact ones and the bound of each."""
    error = np.abs(y.astype(np.float64) - exact)
    beyond = ~(error <= bound)  # NaN is never within
    floor = np.abs(exact.astype(y.dtype).astype(np.float64) - exact)
    size, least = _rms(exact), _rms(floor)
    narrow = y.dtype != np.float32
    return Errors(
        outputs=y.size,
        rms=_rms(error) / size,
        largest=float(error.max() / np.abs(exact).max()),
        floor_rms=least / size,
        over_floor=_rms(error) / least if narrow and least else None,
        worst_of_bound=float((error / np.maximum(bound, np.finfo(np.float64).tiny)).max()),
        outside=int(beyond.sum()),
    )


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))


def _small_enough(problem: ConvProblem) -> tuple[ConvProblem, Priced]:
    """The layer, or a piece of it, with a plan: the layer's own, or one of the same algorithm."""
    shape = problem.shape
    assert isinstance(shape, ConvShape)
    parts = planned_parts(problem, best_plan)
    launch, planned = next(iter(parts))
    first = replace(problem, shape=launch.shape)
    if launch.shape == shape and effort(shape) <= MOST_EFFORT:
        return first, planned
    piece = under_its_plan(first, planned, 1)
    if piece is not None and _effort(piece[0]) <= MOST_EFFORT:
        return piece
    smaller = replace(problem, shape=crop(shape, MOST_EFFORT))
    return smaller, _alike(smaller, planned)


def _effort(problem: ConvProblem) -> int:
    assert isinstance(problem.shape, ConvShape)
    return effort(problem.shape)


def _alike(problem: ConvProblem, planned: Priced) -> Priced:
    """The best plan of the same algorithm for a smaller layer, if there is one."""
    candidates = plans_like(planned, problem)
    return candidates[0] if candidates else best_plan(replace(problem, policy=ALWAYS_DIRECT))


def random_data(shape: ConvShape, dtype: str, seed: int) -> tuple[Array, Array, Array]:
    """x and w in the type, bias in float32; outputs have about the size of inputs."""
    rng = np.random.default_rng(seed)
    ins = shape.c_in // shape.groups
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    x = rng.standard_normal((shape.batch, shape.c_in, *shape.size), np.float32)
    w = rng.standard_normal((shape.c_out, ins, *shape.kernel), np.float32)
    w *= np.float32((ins * prod(shape.kernel)) ** -0.5)
    return x.astype(kind), w.astype(kind), rng.standard_normal(shape.c_out, np.float32)
