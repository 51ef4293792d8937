"""The form by differences, as a row of the planner's table."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.machine import V3
from trnconv.ask.policy import DIRECT
from trnconv.ask.question import Question
from trnconv.forms.difference.candidates import candidates, halves
from trnconv.forms.difference.cost import cost_of, least_ns, trips_of
from trnconv.forms.difference.error import largest_errors, require_range
from trnconv.forms.difference.kernel import difference, difference_on_two_cores
from trnconv.forms.difference.lower import lower
from trnconv.forms.difference.pack import bias_channels, pack
from trnconv.forms.difference.plan import DEPTH, HEIGHT, WIDTH, DifferencePlan
from trnconv.forms.difference.rules import broken_promise, broken_rules, why_no_end, why_not
from trnconv.forms.difference.terms import TIMES
from trnconv.forms.form import Array, Form
from trnconv.geometry import ConvShape

_LEAST_CHANNELS = 64  # with fewer, differences take longer than the multiplications they save
_NEEDED = (
    "growing_banks",
    "strided_evictions",
    "fp16_subnormals",
    "scalar_bias",
    "gpsimd_sums",
    "loads_ahead",
)


def _refuses(question: Question, family: str) -> str:
    """By policy, or because outputs do not share products."""
    shape, machine = question.shape, question.machine
    if not isinstance(shape, ConvShape):
        return f"{family}: it computes plain convolutions only"
    if machine.generation < V3:
        return f"{family}: on {machine.name} the Scalar engine adds no bias to a copy"
    off = [name for name in _NEEDED if not getattr(machine.accepts, name)]
    if off:
        return f"{family}: {machine.name} has {' and '.join(off)} switched off"
    if question.exact:
        return f"{family}: a difference of Inf is NaN"
    broken = broken_promise(question.dtype, question.policy)
    if broken:
        return broken
    reasons = [*why_not(shape), *why_no_end(question.end, shape)]
    if question.pieces:
        reasons.append("an input in pieces: the kernel reads one tensor")
    if question.reproducible and shape.kernel[DEPTH] > 1:
        reasons.append("a fixed order of sums: which taps along frames meet depends on the border")
    if question.share is not None and question.share.channels != (0, shape.c_out):
        reasons.append("a core computes all output channels of its rows")
    return f"{family}: {'; '.join(reasons)}" if reasons else ""


def _is_worth_asking(question: Question) -> bool:
    """Whether both axes of images are read twice, and channels are many enough."""
    shape = question.shape
    if not isinstance(shape, ConvShape) or question.machine.generation < V3:
        return False
    twice = shape.upsample[HEIGHT] == shape.upsample[WIDTH] == TIMES
    many = min(shape.c_in, shape.c_out) >= _LEAST_CHANNELS
    return twice and many and question.policy.accuracy != DIRECT


def _given(question: Question) -> dict[str, Any]:
    share = question.share
    return {"shape": question.shape, "rows_of": share.rows if share else None}


def _broken_promises(plan: DifferencePlan, question: Question) -> list[str]:
    refused = _refuses(question, plan.family)
    return [refused] if refused else []


def _check_inputs(_: DifferencePlan, inputs: tuple[Array, ...], __: Array | None) -> None:
    """Differences must fit fp16."""
    require_range(max(float(np.abs(part.astype(np.float32)).max()) for part in inputs))


DIFFERENCE: Form[Any] = Form(
    name=DifferencePlan.form,
    plan_type=DifferencePlan,
    families=lambda _: ("differences",),
    refuses=_refuses,
    is_worth_asking=_is_worth_asking,
    least_gain=0.02,
    candidates=lambda question, _: candidates(question),
    cost=cost_of,
    least_ns=least_ns,
    broken_rules=broken_rules,
    broken_promises=_broken_promises,
    keeps_budget=True,
    moved=lambda plan, question: plan.but(**_given(question)),
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    check_inputs=_check_inputs,
    rounding_errors=lambda _, x_max, w_sums: largest_errors(x_max, w_sums),
    kernels=(difference,),
    pair_kernels=(difference_on_two_cores,),
    halves=halves,
    loops=trips_of,
    given=_given,
    takes_residual=True,
    takes_coarse_residual=True,
)
