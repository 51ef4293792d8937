"""The Winograd algorithm, as a row of the planner's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nkisim.machine import V3
from trnconv.algorithms.algorithm import Algorithm, Array
from trnconv.algorithms.winograd import candidates, kernel
from trnconv.algorithms.winograd.cost import cost_of, trips_of
from trnconv.algorithms.winograd.error import largest_errors, require_range
from trnconv.algorithms.winograd.lower import lower
from trnconv.algorithms.winograd.pack import bias_channels, pack
from trnconv.algorithms.winograd.plan import DEPTH, HEIGHT, V_BYTES, WinogradPlan, family_of
from trnconv.algorithms.winograd.rules import unsupported_policy, unsupported_shape, violations
from trnconv.algorithms.winograd.transforms import OUTER, TRANSFORMS, Transform, whole_of
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem, of_one_frame
from trnconv.problem.epilogue import ITEM_BYTES, is_composed
from trnconv.problem.policy import DIRECT
from trnconv.problem.prologue import FACTORS

_LEAST_CHANNELS = 96  # with fewer, the transforms take longer than the multiplications they save
_LEAST_OUTPUTS = 17  # with fewer, outputs of a direct matmul have twice as many columns


class WinogradFamily(NamedTuple):
    """A family of Winograd plans: a transform along an axis, of frames by one or in pairs."""

    transform: Transform
    axis: int
    pairs: bool

    @property
    def name(self) -> str:
        """As plans and reports have it."""
        return family_of(self.transform.name, self.axis, pairs=self.pairs)

    @property
    def whole(self) -> Transform:
        """The transform of everything."""
        return whole_of(self.transform, pairs=self.pairs)


_PLAIN = [
    WinogradFamily(t, axis, pairs=False) for t in TRANSFORMS.values() for axis in (DEPTH, HEIGHT)
]
_PAIRED = [WinogradFamily(transform, HEIGHT, pairs=True) for transform in TRANSFORMS.values()]
FAMILIES = {family.name: family for family in (*_PLAIN, *_PAIRED)}


_NEEDED = (
    "psum_in_place",
    "strided_evictions",
    "fp16_subnormals",
    "scalar_bias",
    "gpsimd_sums",
    "loads_ahead",
)


def _families(problem: ConvProblem) -> tuple[str, ...]:
    """Transforms along frames or rows. Tiles of frames depend on where a chunk begins."""
    families = [family for family in _PLAIN if family.axis == HEIGHT or not problem.reproducible]
    if not problem.reproducible and _has_channels_for_pairs(problem):
        families += _PAIRED
    return tuple(family.name for family in families)


def _has_channels_for_pairs(problem: ConvProblem) -> bool:
    """Whether frames in pairs can be faster than frames by one.

    With less than a tile of inputs and outputs, or two of one of them, sums between stages take the
    Vector engine longer than the Tensor engine takes for the products they save.
    """
    c_in, c_out, tile = problem.shape.c_in, problem.shape.c_out, problem.machine.partitions
    return min(c_in, c_out) >= tile and c_in * c_out >= 2 * tile**2


def _unsupported(problem: ConvProblem, family: str) -> str:
    """By policy, or because tiles of outputs would not share their inputs."""
    of = FAMILIES[family]
    if not isinstance(problem.shape, ConvShape):
        return f"{family}: it computes plain convolutions only"
    if problem.machine.generation < V3:
        return (
            f"{family}: on {problem.machine.name} the Scalar engine adds no bias to a copy, and a"
            " transform takes two cycles an element, which is more than it saves"
        )
    off = [name for name in _NEEDED if not getattr(problem.machine.accepts, name)]
    if off:
        return f"{family}: {problem.machine.name} has {' and '.join(off)} switched off"
    if problem.exact:
        return f"{family}: transforms spread Inf and NaN"
    broken = unsupported_policy(of.whole, problem.dtype, problem.policy)
    if broken:
        return broken
    reasons = [*unsupported_shape(problem.shape, of.axis), *_refuses_share(problem, of)]
    if of.pairs:
        reasons += _refuses_pairs(problem.shape, problem.dtype)
    if is_composed(problem.epilogue.activation):
        reasons.append(
            f"{problem.epilogue.activation} in the epilogue: it has functions of one instruction"
        )
    return f"{family}: {'; '.join(reasons)}" if reasons else ""


def _refuses_pairs(shape: ConvShape, dtype: str) -> list[str]:
    """Why frames cannot be computed two by two."""
    reasons = unsupported_shape(shape, DEPTH)
    if shape.out_size(DEPTH) < OUTER.outputs:
        reasons.append("a single output frame")
    if ITEM_BYTES[dtype] != V_BYTES:
        reasons.append(f"{dtype}: pairs are of types of 16 bits")
    return reasons


def _refuses_share(problem: ConvProblem, family: WinogradFamily) -> list[str]:
    """Why one of two cores cannot compute its share."""
    share, (transform, axis, _) = problem.core_split, family
    if share is None:
        return []
    if share.channels != (0, problem.shape.c_out):
        return ["a core computes all output channels of its rows"]
    if axis == HEIGHT and share.rows[0] % transform.outputs:
        return [f"the rows of a core begin with a tile of {transform.outputs}"]
    return []


def _is_worth_asking(problem: ConvProblem) -> bool:
    """Whether it is large enough; the same for any number of frames, if reproducible."""
    shape = problem.shape
    if problem.machine.generation < V3:
        return False
    few = shape.c_in < _LEAST_CHANNELS or shape.c_out < _LEAST_OUTPUTS
    if problem.policy.accuracy == DIRECT or few:
        return False
    counted = of_one_frame(problem).shape if problem.reproducible else shape
    return counted.macs() >= problem.policy.least_macs


def _violations_for(plan: WinogradPlan, problem: ConvProblem) -> list[str]:
    """Of accuracy, and of how the input lies."""
    if plan.pieces != problem.pieces:
        return ["its input lies in other pieces"]
    refused = _unsupported(problem, plan.family)
    return [refused] if refused else []


def _candidates(
    problem: ConvProblem, family: str, followed: int = candidates.FOLLOWED
) -> Iterator[WinogradPlan]:
    of = FAMILIES[family]
    return candidates.candidates(
        problem, of.transform.name, of.axis, pairs=of.pairs, followed=followed
    )


def _check_inputs(plan: WinogradPlan, inputs: tuple[Array, ...], factors: Array | None) -> None:
    """Transformed values must fit fp16."""
    largest = max(float(np.abs(part.astype(np.float32)).max()) for part in inputs)
    if factors is not None:
        scales, shifts = (float(np.abs(factors[:, n::FACTORS]).max()) for n in range(FACTORS))
        largest = scales * largest + shifts
    require_range(plan.whole, largest)


def _problem_fields(problem: ConvProblem) -> dict[str, Any]:
    share = problem.core_split
    return {"shape": problem.shape, "rows_of": share.rows if share else None}


def _moved(plan: WinogradPlan, problem: ConvProblem) -> WinogradPlan:
    """The same decisions; of two ways to cut rows into blocks, the one that has the same loops."""
    moved = plan.but(**_problem_fields(problem))
    if plan.looped and trips_of(moved) != trips_of(plan):
        other = moved.but(cut_from_end=not plan.cut_from_end)
        return other if trips_of(other) == trips_of(plan) else moved
    return moved


def _rounding_errors(plan: WinogradPlan, x_max: float, w_sums: Array) -> tuple[Array, Array]:
    return largest_errors(plan.whole, x_max, w_sums)


WINOGRAD: Algorithm[Any] = Algorithm(
    name=WinogradPlan.algorithm,
    plan_type=WinogradPlan,
    families=_families,
    unsupported=_unsupported,
    is_worth_asking=_is_worth_asking,
    least_gain=0.02,
    candidates=_candidates,
    thorough=lambda problem, family: _candidates(problem, family, candidates.THOROUGH),
    cost=cost_of,
    violations=violations,
    violations_for=_violations_for,
    keeps_budget=True,
    moved=_moved,
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    check_inputs=_check_inputs,
    rounding_errors=_rounding_errors,
    kernels=(kernel.winograd_of_one, kernel.winograd_of_two, kernel.winograd_of_three),
    pair_kernels=(
        kernel.winograd_on_two_cores,
        kernel.winograd_of_two_on_two_cores,
        kernel.winograd_of_three_on_two_cores,
    ),
    refined=lambda plan, _: candidates.refined(plan),
    core_splits=candidates.halves,
    loops=trips_of,
    problem_fields=_problem_fields,
    takes_residual=True,
    takes_factors=True,
    takes_scales=True,
)
