"""The Winograd algorithm of upsampled inputs, as a row of the planner's table."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.machine import V3
from trnconv.algorithms.algorithm import Algorithm, Array
from trnconv.algorithms.winograd_upsample.candidates import candidates, halves
from trnconv.algorithms.winograd_upsample.cost import cost_of, least_ns, trips_of
from trnconv.algorithms.winograd_upsample.error import largest_errors, require_range
from trnconv.algorithms.winograd_upsample.kernel import (
    winograd_upsample,
    winograd_upsample_on_two_cores,
)
from trnconv.algorithms.winograd_upsample.lower import lower
from trnconv.algorithms.winograd_upsample.pack import bias_channels, pack
from trnconv.algorithms.winograd_upsample.plan import DEPTH, HEIGHT, WIDTH, UpsamplePlan
from trnconv.algorithms.winograd_upsample.rules import (
    unsupported_epilogue,
    unsupported_policy,
    unsupported_shape,
    violations,
)
from trnconv.algorithms.winograd_upsample.terms import TIMES
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import DIRECT

_LEAST_CHANNELS = 64  # with fewer, differences take longer than the multiplications they save
_NEEDED = (
    "growing_banks",
    "strided_evictions",
    "fp16_subnormals",
    "scalar_bias",
    "gpsimd_sums",
    "loads_ahead",
)


def _unsupported(problem: ConvProblem, family: str) -> str:
    """By policy, or because outputs do not share products."""
    shape, machine = problem.shape, problem.machine
    if not isinstance(shape, ConvShape):
        return f"{family}: it computes plain convolutions only"
    if machine.generation < V3:
        return f"{family}: on {machine.name} the Scalar engine adds no bias to a copy"
    off = [name for name in _NEEDED if not getattr(machine.accepts, name)]
    if off:
        return f"{family}: {machine.name} has {' and '.join(off)} switched off"
    if problem.exact:
        return f"{family}: a difference of Inf is NaN"
    broken = unsupported_policy(problem.dtype, problem.policy)
    if broken:
        return broken
    reasons = [*unsupported_shape(shape), *unsupported_epilogue(problem.epilogue, shape)]
    if problem.pieces:
        reasons.append("an input in pieces: the kernel reads one tensor")
    if problem.reproducible and shape.kernel[DEPTH] > 1:
        reasons.append("a fixed order of sums: which taps along frames meet depends on the border")
    if problem.core_split is not None and problem.core_split.channels != (0, shape.c_out):
        reasons.append("a core computes all output channels of its rows")
    return f"{family}: {'; '.join(reasons)}" if reasons else ""


def _is_worth_asking(problem: ConvProblem) -> bool:
    """Whether both axes of images are read twice, and channels are many enough."""
    shape = problem.shape
    if not isinstance(shape, ConvShape) or problem.machine.generation < V3:
        return False
    twice = shape.upsample[HEIGHT] == shape.upsample[WIDTH] == TIMES
    many = min(shape.c_in, shape.c_out) >= _LEAST_CHANNELS
    return twice and many and problem.policy.accuracy != DIRECT


def _problem_fields(problem: ConvProblem) -> dict[str, Any]:
    share = problem.core_split
    return {"shape": problem.shape, "rows_of": share.rows if share else None}


def _violations_for(plan: UpsamplePlan, problem: ConvProblem) -> list[str]:
    refused = _unsupported(problem, plan.family)
    return [refused] if refused else []


def _check_inputs(_: UpsamplePlan, inputs: tuple[Array, ...], __: Array | None) -> None:
    """Differences must fit fp16."""
    require_range(max(float(np.abs(part.astype(np.float32)).max()) for part in inputs))


WINOGRAD_UPSAMPLE: Algorithm[Any] = Algorithm(
    name=UpsamplePlan.algorithm,
    plan_type=UpsamplePlan,
    families=lambda _: ("differences",),
    unsupported=_unsupported,
    is_worth_asking=_is_worth_asking,
    least_gain=0.02,
    candidates=lambda problem, _: candidates(problem),
    cost=cost_of,
    least_ns=least_ns,
    violations=violations,
    violations_for=_violations_for,
    keeps_budget=True,
    moved=lambda plan, problem: plan.but(**_problem_fields(problem)),
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    check_inputs=_check_inputs,
    rounding_errors=lambda _, x_max, w_sums: largest_errors(x_max, w_sums),
    kernels=(winograd_upsample,),
    pair_kernels=(winograd_upsample_on_two_cores,),
    core_splits=halves,
    loops=trips_of,
    problem_fields=_problem_fields,
    takes_residual=True,
    takes_coarse_residual=True,
)
