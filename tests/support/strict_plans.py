"""Random plans of every algorithm, the same for the same number on every machine.

Shapes are small and loops are forced, so that a run with values takes a fraction of a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

import nkisim
from conv_arrays import numpy_dtype
from nkisim.device_rules.rule import Strength
from nkisim.device_rules.rulebook import RULES
from nkisim.errors import DeviceRuleError
from nkisim.machine import find_machine
from random_convolutions import random_convolution
from random_family import FORWARD, TRANSPOSED, random_member
from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.search import search
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape, conv_shape
from trnconv.planner.shares import loops, shared_plans
from trnconv.planner.table import algorithm_named, algorithm_of
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import (
    AFTER,
    BEFORE,
    IDENTITY,
    NO_RESIDUAL,
    PLAIN_EPILOGUE,
    epilogue_of,
)
from trnconv.problem.policy import FAST, Policy
from trnconv.runtime.launch import prepare

TARGETS = ("trn2", "trn3", "trn2", "trn2")
DTYPES = ("bfloat16", "bfloat16", "float16", "float32")
ENDS = (
    PLAIN_EPILOGUE,
    PLAIN_EPILOGUE,
    epilogue_of("silu", BEFORE, ""),
    epilogue_of("relu", AFTER, ""),
)
POLICY = Policy(FAST, least_macs=0)
WINOGRAD_FAMILIES = ("F(2,3), rows", "F(2,3), frames", "F(4,3), rows", "F(4,3), frames")
KINDS = (
    "direct",
    "direct",
    "upsampled",
    "transposed",
    "winograd",
    "winograd",
    "depthwise",
    "filter",
)
# Of weight gradients: small shapes have few blocks, and iterations of more of them are no loop.
SHORT_ITERATIONS = {"images": 1, "iteration_frames": 1, "iteration_areas": 1}
# Every rule there is is refused: those that one report supports by "strict", the others by name.
SWITCHES = (
    "strict",
    *sorted(rule.name for rule in RULES.values() if rule.strength in (Strength.W, Strength.X)),
)


@dataclass(frozen=True)
class StrictCase:
    """A plan, and the words that name it."""

    number: int
    kind: str
    plan: Plan


@cache  # plans are searched for; suites ask for the same ones
def strict_case(number: int) -> StrictCase:
    """The case of this number."""
    rng = np.random.default_rng([2020, number])
    kind = KINDS[number % len(KINDS)]
    while True:
        plan = _PLANS[kind](rng)
        if plan is not None:
            return StrictCase(number, kind, plan)


@cache
def pair_like(plan: Plan) -> tuple[Plan, ...] | None:
    """Plans of two cores for what a plan computes, in loops if it is and both can be in the same.

    None if there are none.
    """
    algorithm = algorithm_of(plan)
    pieces = plan.piece_frames if len(plan.piece_frames) > 1 else ()
    problem = ConvProblem(
        plan.shape,
        plan.machine,
        plan.dtype,
        pieces,
        epilogue=plan.epilogue,
        policy=POLICY,
        direction=algorithm.direction,
        algorithms=(plan.algorithm,),
    )
    try:
        pair = tuple(priced.plan for priced in shared_plans(problem))
    except PlanError:
        return None
    return _pair_in_loops(pair) if plan.is_looped else pair


def _pair_in_loops(pair: tuple[Plan, ...]) -> tuple[Plan, ...]:
    changes = {
        "direct": lambda plan: {"lead": (), "ahead": False, "rows": plan.row_multiple},
        "winograd": lambda plan: {"units": plan.stages, "rows": 2 * plan.m},
        "weight_gradient": lambda _: SHORT_ITERATIONS,
    }
    algorithm = algorithm_of(pair[0])
    looped = tuple(replace(plan, looped=True, **changes[plan.algorithm](plan)) for plan in pair)
    if any(algorithm.violations(plan) for plan in looped):
        return pair
    one, two = map(loops, looped)
    return looped if one == two else pair


def strict_run(*plans: Plan) -> nkisim.Run:
    """A run of the kernel of a plan, or of two, on zeros; DeviceRuleError if it breaks any rule."""
    plan = plans[0]
    prepared = prepare(plans)
    lowered = prepared.lowered[0]
    inputs = tuple(_zeros(one.shape, one.dtype) for one in lowered.inputs)
    shape = plan.shape
    w = np.zeros((shape.c_out, shape.c_in // shape.groups, *shape.kernel), np.float32)
    packed = prepared.pack(w, np.zeros(shape.c_out, np.float32))
    asked = plan.epilogue.residual != NO_RESIDUAL
    residual = _zeros(lowered.outputs[0], plan.dtype) if asked else None
    return nkisim.run(
        nkisim.Kernel(prepared.kernel(len(inputs)))[len(plans)],
        *prepared.arguments(inputs, packed, residual),
        machine=plan.machine_name,
        lnc=len(plans),
        rules=SWITCHES,
    )


def broken_rule(*plans: Plan) -> str:
    """The first rule that they break; empty if they break none."""
    try:
        strict_run(*plans)
    except DeviceRuleError as error:
        return str(error.rule)
    return ""


def _zeros(shape, dtype):
    return np.zeros(shape, numpy_dtype(dtype))


def _searched(rng, problem: ConvProblem, algorithm: str, family: str) -> Plan | None:
    """One of the first plans of a ranking."""
    if algorithm_named(algorithm).unsupported(problem, family):
        return None
    try:
        found = search(algorithm_named(algorithm), problem, family)
    except PlanError:
        return None
    return found[int(rng.integers(min(6, len(found))))].plan if found else None


def _direct(rng) -> Plan | None:
    shape = random_convolution(int(rng.integers(10_000))).shape
    member = random_member(int(rng.integers(10_000)))
    if member.kind == FORWARD:  # groups and padding modes
        shape = member.shape
    pieces = _pieces(rng, shape)
    problem = _asked(rng, shape, epilogue=_one_of(rng, ENDS), pieces=pieces)
    return _looped(rng, _searched(rng, problem, "direct", "direct"))


def _upsampled(rng) -> Plan | None:
    return _difference(rng) if rng.random() < 0.5 else _direct_upsampled(rng)


def _direct_upsampled(rng) -> Plan | None:
    c_in, c_out = (int(rng.integers(1, 70)) for _ in "io")
    times = _one_of(rng, ((1, 2, 2), (2, 2, 2), (1, 1, 2)))
    size = tuple(int(rng.integers(2, 9)) for _ in range(3))
    shape = (
        conv_shape((1, c_in, *size), (c_out, c_in, 3, 3, 3), padding=(0, 1, 1), upsample=times)
        if size[0] * times[0] >= 3
        else None
    )
    if shape is None:
        return None
    problem = _asked(rng, shape, epilogue=_one_of(rng, ENDS))
    return _looped(rng, _searched(rng, problem, "direct", "direct"))


def _difference(rng) -> Plan | None:
    c_in, c_out = (int(rng.integers(1, 140)) for _ in "io")
    size = tuple(int(rng.integers(2, most)) for most in (4, 13, 9))
    shape = conv_shape(
        (1, c_in, *size),
        (c_out, c_in, _one_of(rng, (1, 2)), 3, 3),
        padding=(0, 1, 1),
        upsample=(int(rng.integers(1, 3)), 2, 2),
    )
    epilogue = _one_of(rng, (PLAIN_EPILOGUE, epilogue_of(IDENTITY, BEFORE, "")))
    machine = find_machine(_one_of(rng, TARGETS))
    problem = ConvProblem(shape, machine, epilogue=epilogue, budget=int(rng.integers(200, 4000)))
    return _searched(rng, problem, "winograd_upsample", "differences")


def _transposed(rng) -> Plan | None:
    member = random_member(int(rng.integers(10_000)))
    if member.kind != TRANSPOSED:
        return None
    return _looped(rng, _searched(rng, _asked(rng, member.shape), "direct", "direct"))


def _winograd(rng) -> Plan | None:
    c_in, c_out = (_one_of(rng, (3, 16, 32, 64, 96, 130, 192)) for _ in "io")
    size = (int(rng.integers(3, 7)), int(rng.integers(8, 40)), int(rng.integers(4, 24)))
    padding = _one_of(rng, ((0, 1, 1), (1, 1, 1), (0, 0, 0)))
    mode = _one_of(rng, ("zeros", "zeros", "replicate"))
    shape = conv_shape((1, c_in, *size), (c_out, c_in, 3, 3, 3), padding=padding, padding_mode=mode)
    problem = _asked(
        rng, shape, epilogue=_one_of(rng, ENDS), pieces=_pieces(rng, shape), policy=POLICY
    )
    budget = _one_of(rng, (10**9, 400, 700))
    plan = _searched(
        rng, replace(problem, budget=budget), "winograd", _one_of(rng, WINOGRAD_FAMILIES)
    )
    if plan is not None and rng.random() < 0.7:
        loop = replace(plan, looped=True, units=plan.stages, rows=2 * plan.m)
        return loop if not algorithm_of(loop).violations(loop) else plan
    return plan


def _depthwise(rng) -> Plan | None:
    channels = int(rng.integers(2, 200))
    size = tuple(int(rng.integers(3, 9)) for _ in range(3))
    shape = conv_shape((1, channels, *size), (channels, 1, 3, 3, 3), padding=1, groups=channels)
    return _searched(rng, _asked(rng, shape), "depthwise", "depthwise")


def _filter(rng) -> Plan | None:
    shape = random_convolution(int(rng.integers(10_000))).shape
    problem = _asked(rng, shape, direction=WEIGHT_GRADIENT)
    budget = _one_of(rng, (10**9, 10**9, 300))
    algorithm = algorithm_named("weight_gradient")
    families = algorithm.families(problem)
    plan = _searched(rng, replace(problem, budget=budget), algorithm.name, families[0])
    if plan is None or rng.random() < 0.5:
        return plan
    loop = replace(plan, looped=True, **SHORT_ITERATIONS)
    return loop if not algorithm_of(loop).violations(loop) else plan


_PLANS = {
    "direct": _direct,
    "upsampled": _upsampled,
    "transposed": _transposed,
    "winograd": _winograd,
    "depthwise": _depthwise,
    "filter": _filter,
}


def _asked(rng, shape, **asked) -> ConvProblem:
    dtype = _one_of(rng, DTYPES)
    return ConvProblem(shape, find_machine(_one_of(rng, TARGETS)), dtype, **asked)


def _pieces(rng, shape: ConvShape) -> tuple[int, ...]:
    frames = shape.size[0]
    if frames < 3 or rng.random() < 0.6:
        return ()
    first = int(rng.integers(1, frames - 1))
    return _one_of(rng, ((first, frames - first), (1, first, frames - 1 - first)))


def _looped(rng, plan: Plan | None) -> Plan | None:
    """The same as a hardware loop, in half of the cases."""
    if plan is None or rng.random() < 0.5:
        return plan
    plain = replace(plan, lead=(), ahead=False, looped=True, rows=plan.row_multiple)
    loop = replace(plain, body_blocks=_one_of(rng, (1, 1, 2)), by_kind=_one_of(rng, (False, True)))
    return loop if not algorithm_of(loop).violations(loop) else plan


def _one_of(rng, choices):
    return choices[int(rng.integers(len(choices)))]
