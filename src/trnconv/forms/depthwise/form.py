"""The depthwise form, as a row of the planner's table."""

from __future__ import annotations

from dataclasses import replace

from trnconv.ask.ends import PLAIN_END
from trnconv.ask.question import Question
from trnconv.forms.depthwise.candidates import MOST_INSTRUCTIONS, candidates, shortest
from trnconv.forms.depthwise.cost import cost_of
from trnconv.forms.depthwise.kernel import depthwise, depthwise_on_two_cores
from trnconv.forms.depthwise.lower import lower
from trnconv.forms.depthwise.pack import bias_channels, pack
from trnconv.forms.depthwise.plan import DepthwisePlan
from trnconv.forms.depthwise.rules import broken_rules, why_not
from trnconv.forms.depthwise.shares import halves, part_of
from trnconv.forms.form import Form, problem_and_plan
from trnconv.geometry import ConvShape


def _refuses(question: Question, family: str) -> str:
    """Everything but plain depthwise convolutions."""
    if not isinstance(question.shape, ConvShape):
        return f"{family}: it computes plain convolutions only"
    reasons = why_not(question.shape, question.dtype)
    accepts = question.machine.accepts
    if not (accepts.psum_in_place and accepts.loads_ahead):
        reasons.append(f"sums in place, loads ahead: {question.machine.name} has one switched off")
    if question.end != PLAIN_END:
        reasons.append("an activation, a residual or an output type: these engines add a bias")
    if question.pieces:
        reasons.append("an input in pieces: these engines read one tensor")
    if question.reproducible:
        reasons.append("a fixed order of sums: which tap is first depends on the borders")
    most = min(MOST_INSTRUCTIONS, question.budget)
    if not reasons and shortest(question) > most:
        reasons.append(
            f"some {shortest(question)} static instructions unrolled: programs of more than {most}"
            " are not looked at; split the problem"
        )
    return f"{family}: {'; '.join(reasons)}" if reasons else ""


def _moved(plan: DepthwisePlan, question: Question) -> DepthwisePlan:
    assert isinstance(question.shape, ConvShape)
    share = question.share
    lines, outputs = (share.lines, part_of(question.shape, share)) if share else (None, None)
    return replace(plan, shape=question.shape, lines_of=lines, outputs_of=outputs)


def _decisions(plan: DepthwisePlan) -> list[str]:
    room = f"  SBUF      {plan.windows} windows, {plan.outs} output tiles"
    return [*problem_and_plan(plan), room]


DEPTHWISE = Form(
    name=DepthwisePlan.form,
    plan_type=DepthwisePlan,
    families=lambda _: (DepthwisePlan.form,),
    refuses=_refuses,
    is_worth_asking=lambda question: question.shape.groups == question.shape.c_in > 1,
    candidates=lambda question, _: candidates(question),
    cost=cost_of,
    rank=lambda cost: (cost.weighed_ns, cost.instructions),
    broken_rules=broken_rules,
    moved=_moved,
    decisions=_decisions,
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    kernels=(depthwise,),
    pair_kernels=(depthwise_on_two_cores,),
    halves=halves,
)
