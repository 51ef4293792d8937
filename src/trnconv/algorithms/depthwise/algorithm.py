"""The depthwise algorithm, as a row of the planner's table."""

from __future__ import annotations

from dataclasses import replace

from trnconv.algorithms.algorithm import Algorithm, problem_and_plan
from trnconv.algorithms.depthwise.candidates import MOST_INSTRUCTIONS, candidates, shortest
from trnconv.algorithms.depthwise.cost import cost_of
from trnconv.algorithms.depthwise.kernel import depthwise, depthwise_on_two_cores
from trnconv.algorithms.depthwise.lower import lower
from trnconv.algorithms.depthwise.pack import bias_channels, pack
from trnconv.algorithms.depthwise.plan import DepthwisePlan
from trnconv.algorithms.depthwise.rules import unsupported_shape, violations
from trnconv.algorithms.depthwise.shares import halves, part_of
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import PLAIN_EPILOGUE


def _unsupported(problem: ConvProblem, family: str) -> str:
    """Everything but plain depthwise convolutions."""
    if not isinstance(problem.shape, ConvShape):
        return f"{family}: it computes plain convolutions only"
    reasons = unsupported_shape(problem.shape, problem.dtype)
    accepts = problem.machine.accepts
    if not (accepts.psum_in_place and accepts.loads_ahead):
        reasons.append(f"sums in place, loads ahead: {problem.machine.name} has one switched off")
    if problem.epilogue != PLAIN_EPILOGUE:
        reasons.append("an activation, a residual or an output type: these engines add a bias")
    if problem.pieces:
        reasons.append("an input in pieces: these engines read one tensor")
    if problem.reproducible:
        reasons.append("a fixed order of sums: which tap is first depends on the borders")
    most = min(MOST_INSTRUCTIONS, problem.budget)
    if not reasons and shortest(problem) > most:
        reasons.append(
            f"some {shortest(problem)} static instructions unrolled: programs of more than {most}"
            " are not looked at; split the problem"
        )
    return f"{family}: {'; '.join(reasons)}" if reasons else ""


def _moved(plan: DepthwisePlan, problem: ConvProblem) -> DepthwisePlan:
    assert isinstance(problem.shape, ConvShape)
    share = problem.core_split
    lines, outputs = (share.lines, part_of(problem.shape, share)) if share else (None, None)
    return replace(plan, shape=problem.shape, lines_of=lines, outputs_of=outputs)


def _decisions(plan: DepthwisePlan) -> list[str]:
    room = f"  SBUF      {plan.windows} windows, {plan.outs} output tiles"
    return [*problem_and_plan(plan), room]


DEPTHWISE = Algorithm(
    name=DepthwisePlan.algorithm,
    plan_type=DepthwisePlan,
    families=lambda _: (DepthwisePlan.algorithm,),
    unsupported=_unsupported,
    is_worth_asking=lambda problem: problem.shape.groups == problem.shape.c_in > 1,
    candidates=lambda problem, _: candidates(problem),
    cost=cost_of,
    rank=lambda cost: (cost.weighed_ns, cost.instructions),
    violations=violations,
    moved=_moved,
    decisions=_decisions,
    lower=lower,
    pack=pack,
    bias_channels=bias_channels,
    kernels=(depthwise,),
    pair_kernels=(depthwise_on_two_cores,),
    core_splits=halves,
)
