"""The gradient of a group norm: both launches against NumPy in float64, rules, cores, prices.

Numbers of channels are given here, any numbers: what they are for a norm is the op's, and tested
there. What an engine hands to the next is rounded to x's type.
"""

import numpy as np
import pytest

from fused_op_bounds import (
    EVERY_RULE,
    SINGLE,
    UNIT,
    normal,
    rounded,
    slope_and_curvature,
    worst,
)
from nkisim import TRN1, TRN2, TRN3, Spec
from repetition import few
from trnconv.fused_ops.group_norm_gradient import kernel
from trnconv.fused_ops.group_norm_gradient.problem import (
    GroupNormGradient,
    input_launch,
    pack,
    simulate,
    sums_launch,
)

CASES = [
    GroupNormGradient(128, 5000),
    GroupNormGradient(1, 1),
    GroupNormGradient(2, 1, dtype="float32"),
    GroupNormGradient(160, 513, dtype="float16", activation="gelu"),
    GroupNormGradient(384, 1025, activation="identity"),
    GroupNormGradient(512, 600, dtype="float32"),
    GroupNormGradient(1024, 300),
]
LOOPED = [GroupNormGradient(3, 145_001), GroupNormGradient(130, 45_001, activation="identity")]


def arrays(problem, seed=0):
    """x, dy, and the numbers of both launches."""
    dtype = normal(0, 1, dtype=problem.dtype).dtype
    shape = (1, problem.channels, problem.positions)
    x, dy = (3 * normal(seed, *shape)).astype(dtype), normal(seed + 3, *shape).astype(dtype)
    numbers = normal(seed + 1, problem.channels, 7)
    return (x, dy), (numbers[:, :4], numbers[:, [0, 1, 4, 5, 6]])


def exact_and_bounds(problem, tensors, numbers):
    """Sums and dx by the definition; and how far the kernels' may be."""
    x, dy = (tensor.astype(np.float64) for tensor in tensors)
    a, b, r, s = numbers[0].astype(np.float64).T[:, None, :, None]
    scale, along, shift = numbers[1].astype(np.float64).T[2:, None, :, None]
    single = UNIT["float32"]

    def to(exact, bound):
        return rounded(bound, exact, problem.dtype)

    n = r * x + s
    off_n = to(n, SINGLE * (np.abs(r * x) + np.abs(s)))
    g, bend = slope_and_curvature(problem.activation, a * x + b)
    plain = problem.activation == "identity"
    off_u = SINGLE * (np.abs(a * x) + np.abs(b))
    off_g = 0 if plain else to(g, bend * off_u + SINGLE)
    du = dy * g
    off_du = 0 * du if plain else to(du, np.abs(dy) * off_g)
    p = du * n
    off_p = to(p, np.abs(du) * off_n + np.abs(n) * off_du + off_n * off_du)
    line = along * x + shift
    off_line = to(line, SINGLE * (np.abs(along * x) + np.abs(shift)))
    dx = scale * du + line
    off_dx = np.abs(scale) * off_du + off_line + SINGLE * (np.abs(scale * du) + np.abs(line))
    off_dx = to(dx, off_dx)
    count = problem.positions * single
    sums, off_sums = (
        np.stack([part.sum(axis=(0, 2)) for part in parts], axis=1)
        for parts in ((p, du), (off_p + count * np.abs(p), off_du + count * np.abs(du)))
    )
    return (sums, off_sums + 2.0**-140), (dx, off_dx)


def worst_of(problem, found, tensors, numbers):
    """Of sums and of dx, the largest error in bounds."""
    whole = exact_and_bounds(problem, tensors, numbers)
    return tuple(worst(own, *exact) for own, exact in zip(found, whole, strict=True))


@few(5)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_values_are_within_the_derived_bound(problem, cores):
    tensors, numbers = arrays(problem)
    found = simulate(problem, tensors, numbers, TRN2, cores)
    assert found[1].dtype == tensors[0].dtype
    assert max(worst_of(problem, found, tensors, numbers)) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", LOOPED, ids=str)
def test_values_of_loops_are_within_the_derived_bound(problem, cores):
    test_values_are_within_the_derived_bound(problem, cores)
    test_no_device_rule_is_broken(problem, TRN2, cores)
    assert problem.price(TRN2, cores).regions > 0


@few(2)
@pytest.mark.parametrize("seed", range(10))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    problem = GroupNormGradient(
        int(rng.integers(1, 400)),
        int(rng.integers(1, 3000)),
        str(rng.choice(["bfloat16", "float16", "float32"])),
        str(rng.choice(["silu", "gelu", "identity"])),
    )
    tensors, numbers = arrays(problem, seed)
    found = simulate(problem, tensors, numbers, (TRN2, TRN3)[seed % 2], 1 + seed % 2)
    assert max(worst_of(problem, found, tensors, numbers)) <= 1


def launches(problem, machine, cores):
    """Both, and their prices."""
    numbers = (np.ones((problem.channels, count)) for count in (4, 5))
    first, second = (pack(own, machine) for own in numbers)
    return (
        (sums_launch(problem, first, machine, cores), problem.sums_price(machine, cores)),
        (input_launch(problem, second, machine, cores), problem.input_price(machine, cores)),
    )


def specs(problem):
    return (Spec((1, problem.channels, problem.positions), problem.dtype),) * 2


@few(5)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_no_device_rule_is_broken(problem, machine, cores):
    for launch, price in launches(problem, machine, cores):
        run = launch.run(*specs(problem), values=False, rules=EVERY_RULE)
        assert run.rules == ()
        assert price.instructions == max(trace.compiler_count for trace in run.traces)
        assert price.regions == sum(hasattr(item, "trips") for item in run.traces[0].items)


PRICED = [
    GroupNormGradient(128, 1),
    GroupNormGradient(128, 3000),
    GroupNormGradient(128, 60_000),
    pytest.param(GroupNormGradient(128, 400_000), marks=pytest.mark.slow),
    GroupNormGradient(256, 30_000),
    GroupNormGradient(512, 10_000, dtype="float32"),
    GroupNormGradient(512, 20_000),
    GroupNormGradient(64, 60_000, activation="identity"),
]


@few(3)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", PRICED, ids=str)
def test_the_price_is_within_10_percent_of_the_schedule(problem, cores):
    for launch, price in launches(problem, TRN2, cores):
        makespan = launch.time(*specs(problem)).makespan_ns
        assert price.ns == pytest.approx(makespan, rel=0.10)


def test_what_is_refused_says_why():
    assert "at least 1" in GroupNormGradient(0, 5).refuses(TRN2)
    assert "mish" in GroupNormGradient(4, 5, activation="mish").refuses(TRN2)
    assert "trn1" in GroupNormGradient(4, 5).refuses(TRN1)
    assert "cores" in GroupNormGradient(4, 5).refuses(TRN2, 3)
    assert "SBUF" in GroupNormGradient(20_000, 5).refuses(TRN2)
    assert "32 bits" in GroupNormGradient(1024, 2**22).refuses(TRN2)
    assert GroupNormGradient(4, 5).refuses(TRN2, 2) == ""


def test_a_step_that_no_sum_has_is_noticed(monkeypatch):
    def without_first(self, step, n):
        if n > 0:
            summed(self, step, n)

    summed = kernel.SumsCore.sum_up
    monkeypatch.setattr(kernel.SumsCore, "sum_up", without_first)
    problem = GroupNormGradient(96, 5000)
    tensors, numbers = arrays(problem)
    found = simulate(problem, tensors, numbers, TRN2)
    assert worst_of(problem, found, tensors, numbers)[0] > 1


def test_a_wrong_number_is_noticed():
    problem = GroupNormGradient(96, 600)
    tensors, numbers = arrays(problem)
    other = numbers[1].copy()
    other[:, 4] *= 1.05
    found = simulate(problem, tensors, (numbers[0], other), TRN2)
    assert worst_of(problem, found, tensors, numbers)[1] > 1
