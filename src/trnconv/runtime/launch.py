"""One launch: plans lowered, operands packed, a kernel called. The same for every algorithm.

In nkisim with data (`run`), and without for modelled times (`trace_plan`, `time_plan`); a device
gets the same kernel and operands (`Prepared`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import nkisim
from nkisim import Kernel, Run
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule_launch
from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.program import Prepared, prepared, timed, traced
from trnconv.planner.table import algorithm_of
from trnconv.problem.conv_problem import ConvProblem

MOST_PIECES = 3  # tensors that x may lie in: each is an argument of a kernel


def with_joined_pieces(problem: ConvProblem) -> ConvProblem:
    """What runs: more pieces than a kernel has arguments for are joined before."""
    return replace(problem, pieces=()) if len(problem.pieces) > MOST_PIECES else problem


@dataclass(frozen=True)
class LaunchOperands:
    """What a launch is given: arrays of NumPy, or tensors of torch."""

    inputs: tuple[Any, ...]  # x in its pieces along the frames, or x and dy
    w: Any = None  # [C_out, C_in / groups, KD, KH, KW]
    bias: Any = None
    residual: Any = None
    factors: Any = None  # of the input's start: [C_in, 2 x pieces]
    scales: Any = None  # of a norm of the outputs: [C_out, 2]


def prepare(plans: tuple[Plan, ...]) -> Prepared:
    """Lower plans that their machine can run; PlanError says why it cannot."""
    return prepared(algorithm_of(plans[0]), plans)


def run(program: Prepared, operands: LaunchOperands) -> Run:
    """The kernel in nkisim, with data, on a logical core of as many cores as there are plans."""
    plans, inputs = program.plans, operands.inputs
    program.algorithm.check_inputs(plans[0], inputs, operands.factors)
    packed = program.pack(operands.w, operands.bias)
    return nkisim.run(
        Kernel(program.kernel(len(inputs)))[len(plans)],
        *program.arguments(inputs, packed, operands.residual, operands.factors, operands.scales),
        machine=plans[0].machine_name,
        lnc=len(plans),
        summation="fixed" if all(plan.is_reproducible for plan in plans) else "fast",
    )


def trace_plans(plans: tuple[Plan, ...]) -> Run:
    """The instructions of a launch, one plan for each core, checked by nkisim, without values."""
    return traced(prepare(plans))


def trace_plan(plan: Plan) -> Run:
    """The same on one core."""
    return trace_plans((plan,))


def time_plan(
    plan: Plan, reading: Reading = Reading.default, machine: Machine | None = None
) -> Timeline:
    """When each of them would run; `machine` replaces the plan's, to change an assumption."""
    return timed(prepare((plan,)), reading, machine)


def time_plans(plans: tuple[Plan, ...], reading: Reading = Reading.default) -> Timeline:
    """The same of a launch on as many cores as there are plans: the core that ends last."""
    both = trace_plans(plans)
    every = schedule_launch(both.traces, both.machine, reading, memories=both.memories)
    return max(every, key=lambda timeline: timeline.makespan_ns)
