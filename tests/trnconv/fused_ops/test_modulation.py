"""Modulation by repeated views: values against NumPy in float64, strict rules, prices."""

from dataclasses import replace

import numpy as np
import pytest

from fused_op_bounds import EVERY_RULE, SINGLE, SLOPE, UNIT, normal, rounded, silu, worst
from nkisim import TRN1, TRN2, TRN3, Spec
from repetition import few
from trnconv.errors import PlanError
from trnconv.fused_ops.modulation.problem import Modulation, launch_of, recipes_of, simulate

MACHINES = [TRN2, pytest.param(TRN3, marks=pytest.mark.slow)]
CASES = [
    Modulation(64, 16, 24, 2, (0, 1, 1)),
    Modulation(1, 1, 1, 1, (0,), activation="identity", has_scale_shift=False),
    Modulation(160, 8, 720, 8, (0,)),
    Modulation(130, 12, 40, 4, (0, 0, 1, 1), dtype="float32"),
    Modulation(5, 7, 11, 1, (2, 0, 1), dtype="float16"),
    Modulation(300, 6, 1026, 2, (0,), has_scale_shift=False),
]
LOOPED = [Modulation(2, 80, 640, 1, (1, 0, 0)), Modulation(3, 48, 720, 8, (0, 0))]


def arrays(problem, seed=0):
    high = (problem.channels, len(problem.frame_map), problem.rows, problem.columns)
    low = (
        problem.channels,
        problem.low_frames,
        problem.rows // problem.factor,
        problem.columns // problem.factor,
    )
    x, scale, shift = (
        normal(seed + n, *size, dtype=problem.dtype) for n, size in enumerate((high, low, low))
    )
    scale_shift = normal(seed + 3, problem.channels, 2) if problem.has_scale_shift else None
    return x, (scale, shift), scale_shift


def upsampled(problem, low):
    repeated = low.astype(np.float64)[:, list(problem.frame_map)]
    for axis in (2, 3):
        repeated = np.repeat(repeated, problem.factor, axis=axis)
    return repeated


def exact_and_bound(problem, x, low, scale_shift):
    """The definition; and how far the kernel may be.

    a * scale, b * scale + shift and x times the first are rounded to the type of x; the sum is
    float32.
    """
    x = x.astype(np.float64)
    scale, shift = (upsampled(problem, array) for array in low)
    unit = UNIT[problem.dtype] + SINGLE
    if scale_shift is None:
        product, added, off = x * scale, shift, unit * np.abs(x * scale)
    else:
        a, b = scale_shift.astype(np.float64).T[:, :, None, None, None]
        product, added = x * a * scale, b * scale + shift
        off = 2.1 * unit * np.abs(product) + unit * np.abs(added)
        off += SINGLE * (np.abs(b * scale) + np.abs(shift))
    z = product + added
    bound = off + SINGLE * (np.abs(product) + np.abs(added))
    if problem.activation == "silu":
        z, bound = silu(z), SLOPE * bound + SINGLE * np.abs(z)
    return z, rounded(bound, z, problem.dtype)


@few(4)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_values_are_within_the_derived_bound(problem, cores):
    x, low, scale_shift = arrays(problem)
    y = simulate(problem, x, low, scale_shift, TRN2, cores)
    assert y.dtype == x.dtype
    assert worst(y, *exact_and_bound(problem, x, low, scale_shift)) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", LOOPED, ids=str)
def test_values_of_loops_are_within_the_derived_bound(problem, cores):
    test_values_are_within_the_derived_bound(problem, cores)
    test_no_device_rule_is_broken(problem, TRN2, cores)
    assert problem.price(TRN2, cores).regions > 0


@few(2)
@pytest.mark.parametrize("seed", range(8))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    factor = int(rng.choice([1, 2, 3, 4, 8]))
    problem = Modulation(
        int(rng.integers(1, 200)),
        factor * int(rng.integers(1, 9)),
        factor * int(rng.integers(1, 30)),
        factor,
        tuple(int(n) for n in rng.integers(0, 3, rng.integers(1, 4))),
        dtype=str(rng.choice(["bfloat16", "float16", "float32"])),
        has_scale_shift=bool(rng.integers(2)),
    )
    x, low, scale_shift = arrays(problem, seed)
    y = simulate(problem, x, low, scale_shift, (TRN2, TRN3)[seed % 2], 1 + seed % 2)
    assert worst(y, *exact_and_bound(problem, x, low, scale_shift)) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("problem", [CASES[0], CASES[2], *LOOPED], ids=str)
def test_two_cores_give_the_bits_of_one(problem):
    x, low, scale_shift = arrays(problem)
    one, two = (simulate(problem, x, low, scale_shift, TRN2, cores) for cores in (1, 2))
    assert one.tobytes() == two.tobytes()


def specs(problem):
    high = (problem.channels, len(problem.frame_map), problem.rows, problem.columns)
    low = (
        problem.channels,
        problem.low_frames,
        problem.rows // problem.factor,
        problem.columns // problem.factor,
    )
    dtype = problem.dtype
    return (
        Spec(high, dtype),
        Spec(low, dtype),
        Spec(low, dtype),
        Spec((problem.channels, 2), "float32"),
    )


@few(8)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_no_device_rule_is_broken(problem, machine, cores):
    run = launch_of(problem, machine, cores).run(*specs(problem), values=False, rules=EVERY_RULE)
    assert run.rules == ()
    price = problem.price(machine, cores)
    assert price.instructions == max(trace.compiler_count for trace in run.traces)
    assert price.regions == sum(hasattr(item, "trips") for item in run.traces[0].items)


@few(2)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize(
    "problem",
    [
        Modulation(128, 96, 720, 8, (0,)),
        Modulation(256, 120, 360, 4, (0, 0)),
        Modulation(16, 8, 8, 2, (0,)),
        Modulation(256, 120, 180, 2, (0, 0)),
    ],
    ids=str,
)
def test_the_price_is_within_5_percent_of_the_schedule(problem, machine, cores):
    timeline = launch_of(problem, machine, cores).time(*specs(problem))
    price = problem.price(machine, cores)
    assert price.ns == pytest.approx(timeline.makespan_ns, rel=0.05)
    assert price.hbm_bytes < timeline.hbm_bytes * cores * 1.1


def test_no_upsampled_tensor_is_moved():
    """128 channels of CogVideoX's last level: x and y, and a 64th of each for the modulation."""
    problem = Modulation(128, 480, 720, 8, (0,))
    elems = 128 * 480 * 720
    price = problem.price(TRN2)
    loaded_again = recipes_of(problem, TRN2, 1)[0].parts  # low rows, by every part of a block
    assert price.hbm_bytes == 2 * (2 * elems + loaded_again * 2 * elems // 64)
    assert price.share("dma") > 0.9


def test_what_is_refused_says_why():
    assert "at least 1" in Modulation(0, 4, 4, 2, (0,)).refuses(TRN2)
    assert "divides" in Modulation(4, 5, 4, 2, (0,)).refuses(TRN2)
    assert "from 0 on" in Modulation(4, 4, 4, 2, (0, -1)).refuses(TRN2)
    assert "split the columns" in Modulation(2048, 4, 4096, 2, (0,)).refuses(TRN2)
    assert "trn1" in Modulation(4, 4, 4, 2, (0,)).refuses(TRN1)
    with pytest.raises(PlanError, match="divides"):
        Modulation(4, 5, 4, 2, (0,)).price(TRN2)
    problem = Modulation(4, 4, 4, 2, (0,))
    x, low, _ = arrays(problem)
    with pytest.raises(PlanError, match="scale_shift"):
        simulate(problem, x, low, None, TRN2)


@pytest.mark.parametrize("wrong", [(0, 0, 1), (1, 1, 0)])
def test_modulation_by_the_wrong_frame_is_noticed(wrong):
    problem = Modulation(64, 16, 24, 2, (0, 1, 1))
    x, low, scale_shift = arrays(problem)
    y = simulate(replace(problem, frame_map=wrong), x, low, scale_shift, TRN2)
    assert worst(y, *exact_and_bound(problem, x, low, scale_shift)) > 1
