"""The minimal form, as a row of the planner's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nkisim.machine import V3
from trnconv.ask.ends import ITEM_BYTES, is_composed
from trnconv.ask.policy import DIRECT
from trnconv.ask.question import Question, of_one_frame
from trnconv.ask.starts import FACTORS
from trnconv.forms.form import Array, Form
from trnconv.forms.minimal import candidates, kernel
from trnconv.forms.minimal.cost import cost_of, trips_of
from trnconv.forms.minimal.error import largest_errors, require_range
from trnconv.forms.minimal.lower import lower
from trnconv.forms.minimal.pack import bias_channels, pack
from trnconv.forms.minimal.plan import DEPTH, HEIGHT, V_BYTES, MinimalPlan, family_of
from trnconv.forms.minimal.rules import broken_promise, broken_rules, why_not
from trnconv.forms.minimal.transforms import OUTER, TRANSFORMS, Transform, whole_of
from trnconv.geometry import ConvShape

_LEAST_CHANNELS = 96  # with fewer, the transforms take longer than the multiplications they save
_LEAST_OUTPUTS = 17  # with fewer, outputs of a direct matmul have twice as many columns


class MinimalFamily(NamedTuple):
    """An algorithm of the form: a transform along an axis, of frames by one or in pairs."""

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
    MinimalFamily(t, axis, pairs=False) for t in TRANSFORMS.values() for axis in (DEPTH, HEIGHT)
]
_PAIRED = [MinimalFamily(transform, HEIGHT, pairs=True) for transform in TRANSFORMS.values()]
FAMILIES = {family.name: family for family in (*_PLAIN, *_PAIRED)}


_NEEDED = (
    "psum_in_place",
    "strided_evictions",
    "fp16_subnormals",
    "scalar_bias",
    "gpsimd_sums",
    "loads_ahead",
)


def _families(question: Question) -> tuple[str, ...]:
    """Transforms along frames or rows. Tiles of frames depend on where a chunk begins."""
    found = [family for family in _PLAIN if family.axis == HEIGHT or not question.reproducible]
    if not question.reproducible and _has_channels_for_pairs(question):
        found += _PAIRED
    return tuple(family.name for family in found)


def _has_channels_for_pairs(question: Question) -> bool:
    """Whether frames in pairs can be faster than frames by one.

    With less than a tile of inputs and outputs, or two of one of them, sums between stages take the
    Vector engine longer than the Tensor engine takes for the products they save.
    """
    c_in, c_out, tile = question.shape.c_in, question.shape.c_out, question.machine.partitions
    return min(c_in, c_out) >= tile and c_in * c_out >= 2 * tile**2


def _refuses(question: Question, family: str) -> str:
    """By policy, or because tiles of outputs would not share their inputs."""
    of = FAMILIES[family]
    if not isinstance(question.shape, ConvShape):
        return f"{family}: it computes plain convolutions only"
    if question.machine.generation < V3:
        return (
            f"{family}: on {question.machine.name} the Scalar engine adds no bias to a copy, and a"
            " transform takes two cycles an element, which is more than it saves"
        )
    off = [name for name in _NEEDED if not getattr(question.machine.accepts, name)]
    if off:
        return f"{family}: {question.machine.name} has {' and '.join(off)} switched off"
    if question.exact:
        return f"{family}: transforms spread Inf and NaN"
    broken = broken_promise(of.whole, question.dtype, question.policy)
    if broken:
        return broken
    reasons = [*why_not(question.shape, of.axis), *_refuses_share(question, of)]
    if of.pairs:
        reasons += _refuses_pairs(question.shape, question.dtype)
    if is_composed(question.end.activation):
        reasons.append(f"{question.end.activation} at the end: it has functions of one instruction")
    return f"{family}: {'; '.join(reasons)}" if reasons else ""


def _refuses_pairs(shape: ConvShape, dtype: str) -> list[str]:
    """Why frames cannot be computed two by two."""
    reasons = why_not(shape, DEPTH)
    if shape.out_size(DEPTH) < OUTER.outputs:
        reasons.append("a single output frame")
    if ITEM_BYTES[dtype] != V_BYTES:
        reasons.append(f"{dtype}: pairs are of types of 16 bits")
    return reasons


def _refuses_share(question: Question, family: MinimalFamily) -> list[str]:
    """Why one of two cores cannot compute its share."""
    share, (transform, axis, _) = question.share, family
    if share is None:
        return []
    if share.channels != (0, question.shape.c_out):
        return ["a core computes all output channels of its rows"]
    if axis == HEIGHT and share.rows[0] % transform.outputs:
        return [f"the rows of a core begin with a tile of {transform.outputs}"]
    return []


def _is_worth_asking(question: Question) -> bool:
    """Whether it is large enough; the same for any number of frames, if reproducible."""
    shape = question.shape
    if question.machine.generation < V3:
        return False
    few = shape.c_in < _LEAST_CHANNELS or shape.c_out < _LEAST_OUTPUTS
    if question.policy.accuracy == DIRECT or few:
        return False
    counted = of_one_frame(question).shape if question.reproducible else shape
    return counted.macs() >= question.policy.least_macs


def _broken_promises(plan: MinimalPlan, question: Question) -> list[str]:
    """Of accuracy, and of how the input lies."""
    if plan.pieces != question.pieces:
        return ["its input lies in other pieces"]
    refused = _refuses(question, plan.family)
    return [refused] if refused else []


def _candidates(
    question: Question, family: str, followed: int = candidates.FOLLOWED
) -> Iterator[MinimalPlan]:
    of = FAMILIES[family]
    return candidates.candidates(
        question, of.transform.name, of.axis, pairs=of.pairs, followed=followed
    )


def _check_inputs(plan: MinimalPlan, inputs: tuple[Array, ...], factors: Array | None) -> None:
    """Transformed values must fit fp16."""
    largest = max(float(np.abs(part.astype(np.float32)).max()) for part in inputs)
    if factors is not None:
        scales, shifts = (float(np.abs(factors[:, n::FACTORS]).max()) for n in range(FACTORS))
        largest = scales * largest + shifts
    require_range(plan.whole, largest)


def _given(question: Question) -> dict[str, Any]:
    share = question.share
    return {"shape": question.shape, "rows_of": share.rows if share else None}


def _moved(plan: MinimalPlan, question: Question) -> MinimalPlan:
    """The same decisions; of two ways to cut rows into blocks, the one that has the same loops."""
    moved = plan.but(**_given(question))
    if plan.rolled and trips_of(moved) != trips_of(plan):
        other = moved.but(cut_from_end=not plan.cut_from_end)
        return other if trips_of(other) == trips_of(plan) else moved
    return moved


def _rounding_errors(plan: MinimalPlan, x_max: float, w_sums: Array) -> tuple[Array, Array]:
    return largest_errors(plan.whole, x_max, w_sums)


MINIMAL: Form[Any] = Form(
    name=MinimalPlan.form,
    plan_type=MinimalPlan,
    families=_families,
    refuses=_refuses,
    is_worth_asking=_is_worth_asking,
    least_gain=0.02,
    candidates=_candidates,
    thorough=lambda question, family: _candidates(question, family, candidates.THOROUGH),
    cost=cost_of,
    broken_rules=broken_rules,
    broken_promises=_broken_promises,
    keeps_budget=True,
    moved=_moved,
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    check_inputs=_check_inputs,
    rounding_errors=_rounding_errors,
    kernels=(kernel.minimal_of_one, kernel.minimal_of_two, kernel.minimal_of_three),
    pair_kernels=(
        kernel.minimal_on_two_cores,
        kernel.minimal_of_two_on_two_cores,
        kernel.minimal_of_three_on_two_cores,
    ),
    refined=lambda plan, _: candidates.refined(plan),
    halves=candidates.halves,
    loops=trips_of,
    given=_given,
    takes_residual=True,
    takes_factors=True,
    takes_scales=True,
)
