"""Outputs that a Winograd kernel norms over their channels while it computes the next ones.

References are NumPy in float64, by definition, of the y that the convolution has to have.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from conv_arrays import numpy_dtype
from fast_cases import EVERY_CASE, case_of
from fused_op_bounds import EVERY_RULE, SINGLE, SLOPE, UNIT, rounded, silu, worst
from nkisim import Kernel, Spec
from nkisim import run as simulated
from nkisim.machine import TRN2
from repetition import few
from trnconv.algorithms.program import prepared
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.algorithm import FAMILIES, WINOGRAD
from trnconv.algorithms.winograd.candidates import start
from trnconv.algorithms.winograd.cost import cost_of
from trnconv.algorithms.winograd.rules import violations
from trnconv.algorithms.winograd.transforms import transform_of
from trnconv.errors import PlanError, ShapeError
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import BEFORE, Epilogue, NormEpilogue, norm_epilogue_of, norm_text
from trnconv.problem.policy import FAST, Policy
from trnconv.reference import forward
from trnconv.runtime import time_plan
from trnconv.runtime.compute import convolution
from trnconv.runtime.launch import LaunchOperands, prepare, run
from trnconv.runtime.simulator import SimulatedDevice
from winograd_plans import pieces_of

BF16 = numpy_dtype("bfloat16")
EPS = 2.0**-6
SILU = NormEpilogue(EPS, "silu")
SMALL = conv_shape((1, 96, 6, 12, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
ANY = Policy(FAST, least_macs=0)
WITHIN = 0.08  # of the schedule


def normed_case(name, norm=SILU):
    """A plan of the kernel's own cases, its outputs normed."""
    plan = case_of(name)
    return replace(plan, epilogue=replace(plan.epilogue, norm=norm))


def integers(shape, seed=0):
    """x, w and bias whose sums are integers that bf16 holds, some positions all zeros."""
    rng = np.random.default_rng([seed, shape.c_out])
    x = rng.integers(-1, 2, (shape.batch, shape.c_in, *shape.size)).astype(BF16)
    w = (24 * rng.integers(-1, 2, (shape.c_out, shape.c_in, *shape.kernel))).astype(BF16)
    bias = rng.integers(-9, 10, shape.c_out).astype(BF16)
    scales = rng.uniform(-2, 2, (shape.c_out, 2)).astype(np.float32)
    return x, w, bias, scales


def exact_and_bound(y, scales, norm):
    """The definition of z, and how far the kernel may be: see test_rms_norm.py."""
    y = y.astype(np.float64)
    sums = np.square(y).sum(axis=1, keepdims=True) + norm.under_root
    scale, shift = (scales[:, n].astype(np.float64)[None, :, None, None, None] for n in range(2))
    scaled = scale * y / np.sqrt(sums)
    z = scaled + (shift if norm.has_beta else 0)
    relative = 0.5 * (UNIT["bfloat16"] + (y.shape[1] + 4) * UNIT["float32"]) + SINGLE
    bound = relative * np.abs(scaled) + SINGLE * np.abs(shift if norm.has_beta else 0)
    if norm.activation == "silu":
        z, bound = silu(z), SLOPE * bound + SINGLE * np.abs(z)
    return z, rounded(bound, z, "bfloat16")


def outputs_of(plans, operands):
    """y or None, and z in one piece."""
    done = run(prepare(plans), operands).outputs
    arrays = [np.asarray(one) for one in (done if isinstance(done, tuple) else (done,))]
    norm = plans[0].epilogue.norm
    y = arrays.pop(0) if norm.keeps else None
    assert [one.shape[2] for one in arrays] == list(norm.frames(plans[0].shape.out_size(0)))
    return y, np.concatenate(arrays, axis=2)


@few(5)
@pytest.mark.parametrize("name", EVERY_CASE)
def test_y_is_exact_and_z_within_the_derived_bound(name):
    plan = normed_case(name)
    broken = violations(plan)
    if plan.dtype == "float32" or plan.out_bytes > 2:
        assert any("types of 16 bits" in rule for rule in broken)
        return
    words = ("bytes a partition", "sweeps", "tile is cut")
    if any(word in rule for rule in broken for word in words):
        return
    assert not broken
    x, w, bias, scales = integers(plan.shape)
    operands = LaunchOperands(tuple(pieces_of(x, plan)), w, bias, None, None, scales)
    y, z = outputs_of((plan,), operands)
    expected = forward(x, w, bias, plan.shape).astype(BF16)
    assert np.array_equal(y, expected)
    assert worst(z, *exact_and_bound(expected, scales, SILU)) <= 1


@pytest.mark.parametrize(
    "norm",
    [
        NormEpilogue(EPS, "silu", keeps=False, first=2),
        pytest.param(NormEpilogue(EPS, "identity", has_beta=True, first=1), marks=pytest.mark.slow),
        pytest.param(NormEpilogue(0.0, "silu", keeps=False), marks=pytest.mark.slow),
    ],
    ids=norm_text,
)
def test_two_cores_with_a_residual_norm_what_each_of_them_computes(norm):
    epilogue = Epilogue(residual=BEFORE, norm=norm)
    problem = ConvProblem(
        SMALL, TRN2, pieces=(2, 4), epilogue=epilogue, policy=ANY, algorithms=("winograd",)
    )
    plans = tuple(priced.plan for priced in shared_plans(problem))
    assert plans[0].row_span != plans[1].row_span
    x, w, bias, scales = integers(SMALL)
    added = np.random.default_rng(5).integers(-9, 10, (1, 96, 4, 12, 20)).astype(BF16)
    pieces = (x[:, :, :2].copy(), x[:, :, 2:].copy())
    y, z = outputs_of(plans, LaunchOperands(pieces, w, bias, added, None, scales))
    expected = (forward(x, w, bias, SMALL) + added.astype(np.float64)).astype(BF16)
    assert (y is None) == (not norm.keeps)
    assert y is None or np.array_equal(y, expected)
    assert worst(z, *exact_and_bound(expected, scales, norm)) <= 1


@few(3)
@pytest.mark.parametrize("rows", [4, 8, 12, 16])
@pytest.mark.parametrize(("transform", "axis"), [("F(4,3)", 0), ("F(2,3)", 0), ("F(4,3)", 1)])
@pytest.mark.parametrize("channels", [32, 192])
def test_steps_of_a_norm_never_overtake_those_that_read_them(channels, transform, axis, rows):
    """Pauses of small blocks have many steps each: more than there are tiles and banks for."""
    frames = transform_of(transform).outputs if axis == 0 else 1
    columns = 128 if channels == 32 else 96  # SBUF has room for
    shape = conv_shape(
        (1, 32, 2 * frames + 2, 2 * rows, columns), (channels, 32, 3, 3, 3), padding=(0, 1, 1)
    )
    problem = ConvProblem(shape, TRN2, epilogue=Epilogue(norm=SILU), policy=ANY, budget=10**9)
    sized = start(problem, transform, axis).but(rows=rows, columns=columns, group=2)
    legal = [
        plan
        for x, v, body in product((12, 8, 6, 4, 3), (6, 4, 3, 2), (1, 2, 3))
        if not violations(plan := sized.but(x_slots=x, v_slots=v, body_blocks=body))
    ]
    x, w, bias, scales = integers(shape)
    _, z = outputs_of((legal[0],), LaunchOperands((x,), w, bias, None, None, scales))
    expected = forward(x, w, bias, shape).astype(BF16)
    assert worst(z, *exact_and_bound(expected, scales, SILU)) <= 1


@few(2)
@pytest.mark.parametrize("channels", [96, 128, 160, 192, 384])
def test_channels_with_and_without_lines_for_what_is_under_the_root(channels):
    shape = conv_shape((1, 96, 3, 6, 12), (channels, 96, 3, 3, 3), padding=(0, 1, 1))
    epilogue = Epilogue(norm=replace(SILU, under_root=2.0**22))  # as large as the sums of squares
    plan = best_plan(
        ConvProblem(shape, TRN2, epilogue=epilogue, policy=ANY, algorithms=("winograd",))
    ).plan
    x, w, bias, scales = integers(shape)
    _, z = outputs_of((plan,), LaunchOperands((x,), w, bias, None, None, scales))
    expected = forward(x, w, bias, shape).astype(BF16)
    assert worst(z, *exact_and_bound(expected, scales, epilogue.norm)) <= 1


@pytest.mark.parametrize("mutation", ["a channel", "under the root", "frames", "activation"])
def test_a_wrong_norm_is_outside_the_bound(mutation):
    plan = normed_case("rows")
    x, w, bias, scales = integers(plan.shape)
    _, z = outputs_of((plan,), LaunchOperands((x,), w, bias, None, None, scales))
    y = forward(x, w, bias, plan.shape).astype(BF16)
    wrong, norm = y.copy(), SILU
    if mutation == "a channel":
        wrong[:, 7] = 0
    elif mutation == "frames":
        wrong = np.roll(wrong, 1, axis=2 if y.shape[2] > 1 else 3)
    elif mutation == "under the root":
        norm = replace(SILU, under_root=2.0**22)
    else:
        norm = replace(SILU, activation="identity")
    exact, bound = exact_and_bound(wrong, scales, norm)
    assert worst(z, exact, bound) > 1


@few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_norm_costs_what_the_schedule_says(family):
    shape = conv_shape((1, 128, 6, 24, 160), (128, 128, 3, 3, 3), padding=(0, 1, 1))
    epilogue = Epilogue(norm=SILU)
    found = search(
        WINOGRAD, ConvProblem(shape, TRN2, policy=ANY, epilogue=epilogue, budget=10**9), family
    )[0]
    scheduled = time_plan(found.plan).makespan_ns
    assert abs(cost_of(found.plan).total_ns / scheduled - 1) < WITHIN


@pytest.mark.parametrize("name", ["causal", "frames_in_a_loop"])
def test_no_device_rule_is_broken(name):
    plan = normed_case(name)
    assert not violations(plan)
    program = prepared(WINOGRAD, (plan,))
    specs = [
        Spec(one.shape, one.dtype) for one in (*plan.input_specs(), *program.lowered[0].arrays)
    ]
    count = len(plan.input_specs())
    scales = Spec(plan.scales_spec().shape, "float32")
    arguments = program.arguments(tuple(specs[:count]), tuple(specs[count:]), None, None, scales)
    kernel = Kernel(program.kernel(count))[1]
    done = simulated(kernel, *arguments, machine="trn2", lnc=1, values=False, rules=EVERY_RULE)
    assert done.rules == ()
    assert abs(cost_of(plan).instructions / done.trace.compiler_count - 1) < 0.1


def test_a_text_says_all_of_a_norm():
    norm = NormEpilogue(1e-6 * 96, "silu", has_beta=True, keeps=False, first=3)
    assert norm_epilogue_of(norm_text(norm)) == norm
    assert norm_epilogue_of("") is None


def test_what_cannot_be_normed_is_refused_in_words():
    sweeps = replace(normed_case("rows"), group=1)
    wide = replace(sweeps, shape=replace(sweeps.shape, c_out=256))
    assert any("several sweeps" in rule for rule in violations(wide))
    with pytest.raises(PlanError, match="norm them afterwards"):
        best_plan(ConvProblem(SMALL, TRN2, epilogue=Epilogue(norm=SILU), policy=Policy("direct")))
    problem = ConvProblem(SMALL, TRN2, epilogue=Epilogue(norm=SILU), policy=ANY)
    x, w, bias, scales = integers(SMALL)
    operands = LaunchOperands((x,), w, bias, None, None, scales[:5])
    with pytest.raises(ShapeError, match="scales of the norm"):
        convolution(problem, operands, SimulatedDevice(1))
