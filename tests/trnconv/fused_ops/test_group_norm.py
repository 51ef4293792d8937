"""Group norm and SiLU: values against NumPy in float64, strict rules, two cores, prices."""

from dataclasses import replace

import numpy as np
import pytest

from fused_op_bounds import EVERY_RULE, SINGLE, SLOPE, normal, rounded, silu, worst
from nkisim import TRN1, TRN2, TRN3, Spec
from repetition import few
from trnconv._nki import nisa
from trnconv.errors import PlanError
from trnconv.fused_ops.group_norm.problem import (
    GroupNorm,
    apply_launch,
    scale_shift_launch,
    simulate,
    statistics_launch,
)
from trnconv.fused_ops.group_norm.statistics_core import SQUARES, TRIPLE, StatisticsCore

MACHINES = [TRN2, pytest.param(TRN3, marks=pytest.mark.slow)]
CASES = [
    GroupNorm(1, 128, 32, 5000),
    GroupNorm(1, 1, 1, 1),
    GroupNorm(2, 64, 32, 1),
    GroupNorm(3, 160, 32, 777, dtype="float16"),
    GroupNorm(1, 96, 32, 2049, activation="identity"),
    GroupNorm(1, 192, 32, 513, eps=0.1),
    GroupNorm(1, 384, 32, 1025),
    GroupNorm(1, 512, 32, 1500, dtype="float32"),
    GroupNorm(1, 1024, 32, 300),
    GroupNorm(1, 128, 1, 700),
    GroupNorm(1, 64, 32, 600, frames=5),
]
LOOPED = [
    GroupNorm(1, 4, 2, 130_001),  # a loop over positions, and what is left
    GroupNorm(1, 8, 4, 900, frames=63),  # a loop over frames, and what is left
    GroupNorm(3, 8, 4, 110_000),  # images one after the other, each dealt to all cores
]


def arrays(problem, seed=0):
    shape = (problem.images, problem.channels, problem.frames * problem.positions)
    kind = normal(0, 1, dtype=problem.dtype).dtype
    x = 2 * normal(seed, *shape) + normal(seed + 3, problem.images, problem.channels, 1)
    return x.astype(kind), normal(seed + 1, problem.channels), normal(seed + 2, problem.channels)


def exact_and_bound(problem, x, gamma, beta):
    """The definition; and how far the kernel may be.

    Statistics, coefficients and a x + b are float32. A mean of n values is summed in pieces of 256,
    which are averaged in pieces of 64, and so on: well below 1,000 roundings on any way, of values
    up to the largest. The mean is then off by that part of it, and the normed value by as much in
    standard deviations; the variance as much relative to itself, plus the mean's error squared.
    """
    grouped = x.astype(np.float64).reshape(
        problem.images, problem.groups, -1, problem.frames, problem.positions
    )
    mean = grouped.mean(axis=(2, 4), keepdims=True)
    variance = grouped.var(axis=(2, 4), keepdims=True)
    normed = (grouped - mean) / np.sqrt(variance + problem.eps)
    largest = np.abs(grouped).max(axis=(2, 4), keepdims=True) / np.sqrt(variance + problem.eps)
    off = SINGLE * (np.abs(normed) + np.broadcast_to(largest, normed.shape))
    whole = (problem.images, problem.channels, -1)
    scale, shift = (part.astype(np.float64)[None, :, None] for part in (gamma, beta))
    z = normed.reshape(whole) * scale + shift
    bound = 1000 * 2.0**-24 / SINGLE * off.reshape(whole) * np.abs(scale) + SINGLE * np.abs(shift)
    if problem.activation == "silu":
        z, bound = silu(z), SLOPE * bound + SINGLE * np.abs(z)
    return z, rounded(bound, z, problem.dtype)


@few(6)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_values_are_within_the_derived_bound(problem, cores):
    x, gamma, beta = arrays(problem)
    y = simulate(problem, x, gamma, beta, TRN2, cores)
    assert y.dtype == x.dtype
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", LOOPED, ids=str)
def test_values_of_loops_are_within_the_derived_bound(problem, cores):
    test_values_are_within_the_derived_bound(problem, cores)
    test_no_device_rule_is_broken(problem, TRN2, cores)
    assert problem.price(TRN2, cores).regions > 0


@few(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    group, groups = int(rng.integers(1, 12)), int(rng.integers(1, 40))
    frames = int(rng.integers(1, 4))
    problem = GroupNorm(
        1 if frames > 1 else int(rng.integers(1, 4)),
        group * groups,
        groups,
        int(rng.integers(2, 3000)),
        dtype=str(rng.choice(["bfloat16", "float16", "float32"])),
        activation=str(rng.choice(["silu", "identity"])),
        frames=frames,
    )
    x, gamma, beta = arrays(problem, seed)
    y = simulate(problem, x, gamma, beta, (TRN2, TRN3)[seed % 2], 1 + seed % 2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) <= 1


def test_a_large_mean_does_not_cancel():
    """Sums of squares in float32 would lose a variance that is 1e-8 of them."""
    problem = GroupNorm(1, 4, 1, 4000, dtype="float32", activation="identity")
    x, gamma, beta = arrays(problem)
    x = (1000 + 0.1 * x).astype(np.float32)
    exact, bound = exact_and_bound(problem, x, gamma, beta)
    y = simulate(problem, x, gamma, beta, TRN2)
    assert worst(y, exact, bound) <= 1
    wide = x.astype(np.float32)
    naive = np.mean(wide * wide, dtype=np.float32) - np.mean(wide, dtype=np.float32) ** 2
    assert abs(naive / np.var(x.astype(np.float64)) - 1) > 0.01


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("problem", [CASES[0], CASES[3], CASES[8], CASES[10], LOOPED[1]], ids=str)
def test_two_cores_apply_the_bits_of_one(problem):
    """Statistics in two parts have other roundings; what is made of given ones is the same."""
    x, gamma, beta = arrays(problem)
    given = np.asarray(statistics_launch(problem, TRN2, 1).run(x).outputs)
    none = np.zeros_like(given)
    one = apply_launch(problem, gamma, beta, TRN2, 1).run(x, given).outputs
    both = np.concatenate([given, none], axis=1)
    two = apply_launch(problem, gamma, beta, TRN2, 2).run(x, both).outputs
    assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def test_images_that_cores_do_not_share_have_the_bits_of_one():
    problem = GroupNorm(4, 64, 32, 600)
    x, gamma, beta = arrays(problem)
    one, two = (simulate(problem, x, gamma, beta, TRN2, cores) for cores in (1, 2))
    assert one.tobytes() == two.tobytes()


def specs(problem, cores):
    whole = (problem.images, problem.channels, problem.frames * problem.positions)
    statistics = Spec((problem.units, cores, problem.channels, 3), "float32")
    return Spec(whole, problem.dtype), statistics


@few(9)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_no_device_rule_is_broken(problem, machine, cores):
    x, statistics = specs(problem, cores)
    ones = np.ones(problem.channels)
    first = statistics_launch(problem, machine, cores)
    second = apply_launch(problem, ones, ones, machine, cores)
    runs = (
        first.run(x, values=False, rules=EVERY_RULE),
        second.run(x, statistics, values=False, rules=EVERY_RULE),
    )
    for run, price in zip(
        runs,
        (problem.statistics_price(machine, cores), problem.apply_price(machine, cores)),
        strict=True,
    ):
        assert run.rules == ()
        assert price.instructions == max(trace.compiler_count for trace in run.traces)
        assert price.regions == sum(hasattr(item, "trips") for item in run.traces[0].items)


PRICED = [
    GroupNorm(1, 128, 32, 1),
    GroupNorm(1, 128, 32, 3000),
    GroupNorm(1, 128, 32, 20_000),
    pytest.param(GroupNorm(1, 128, 32, 2_000_000), marks=pytest.mark.slow),
    GroupNorm(1, 256, 32, 50_000),
    GroupNorm(1, 512, 32, 30_000),
    GroupNorm(1, 512, 32, 3600, frames=17),
    pytest.param(GroupNorm(1, 128, 32, 3600, frames=200), marks=pytest.mark.slow),
]


@few(3)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", PRICED, ids=str)
def test_prices_are_within_5_percent_of_schedules(problem, machine, cores):
    x, statistics = specs(problem, cores)
    ones = np.ones(problem.channels)
    first = statistics_launch(problem, machine, cores).time(x)
    second = apply_launch(problem, ones, ones, machine, cores).time(x, statistics)
    counted = problem.statistics_price(machine, cores)
    applied = problem.apply_price(machine, cores)
    assert counted.ns == pytest.approx(first.makespan_ns, rel=0.05)
    assert applied.ns == pytest.approx(second.makespan_ns, rel=0.05)
    both = problem.price(machine, cores)
    assert both.ns == counted.ns + applied.ns
    elems = problem.units * problem.channels * problem.positions
    assert both.hbm_bytes == 2 * (3 * elems + cores * problem.units * problem.channels * 12)


def test_the_second_launch_moves_at_nine_tenths_of_what_dma_can():
    problem = GroupNorm(1, 128, 32, 10**6)
    assert problem.apply_price(TRN2).share("dma") > 0.9


def test_statistics_of_bf16_take_little_more_than_their_loads():
    """Sums that engines share: records of all positions took the Vector engine 1.7 times that."""
    problem = GroupNorm(1, 128, 32, 10**6)
    for cores in (1, 2):
        assert problem.statistics_price(TRN2, cores).share("dma") > 0.95
    assert replace(problem, dtype="float16").statistics_price(TRN2).bound == "vector"


def test_what_is_refused_says_why():
    assert "at least 1" in GroupNorm(1, 0, 1, 5).refuses(TRN2)
    assert "divide" in GroupNorm(1, 10, 3, 5).refuses(TRN2)
    assert "more groups" in GroupNorm(1, 512, 2, 5).refuses(TRN2)
    assert "one image" in GroupNorm(2, 64, 32, 5, frames=3).refuses(TRN2)
    assert "trn1" in GroupNorm(1, 64, 32, 5).refuses(TRN1)
    assert "SBUF" in GroupNorm(1, 8192, 128, 5, dtype="float32").refuses(TRN2)
    with pytest.raises(PlanError, match="divide"):
        GroupNorm(1, 10, 3, 5).price(TRN2)


def test_a_wrong_eps_is_noticed():
    problem = GroupNorm(1, 64, 32, 600, eps=0.1)
    x, gamma, beta = arrays(problem)
    y = simulate(replace(problem, eps=0.05), x, gamma, beta, TRN2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) > 1


def test_statistics_of_the_wrong_frame_are_noticed():
    problem = GroupNorm(1, 64, 32, 600, frames=4)
    x, gamma, beta = arrays(problem)
    x[:, :, 600:1200] *= 3
    statistics = np.asarray(statistics_launch(problem, TRN2, 1).run(x).outputs)
    wrong = np.roll(statistics, 1, axis=0)
    exact, bound = exact_and_bound(problem, x, gamma, beta)
    launch = apply_launch(problem, gamma, beta, TRN2, 1)
    assert worst(np.asarray(launch.run(x, statistics).outputs), exact, bound) <= 1
    assert worst(np.asarray(launch.run(x, wrong).outputs), exact, bound) > 1


def test_a_count_of_unequal_tiles_that_is_off_is_noticed(monkeypatch):
    """32 steps are combined at once; if they counted little, the mean of all would be off."""

    def forgetful(core):
        core.counted = 1
        combine(core)

    combine = StatisticsCore.combine
    monkeypatch.setattr(StatisticsCore, "combine", forgetful)
    problem = GroupNorm(1, 8, 4, 80_000)
    x, gamma, beta = arrays(problem)
    x[:, :, 65_536:] += 2
    y = simulate(problem, x, gamma, beta, TRN2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) > 1


def with_jumps(problem):
    """Of every step of 2,048 positions, the first 512 are around another mean than the others."""
    x, gamma, beta = arrays(problem)
    away = np.where(np.arange(problem.positions) % 2048 < 512, -40.0, 3.0)
    return (x.astype(np.float64) + away).astype(x.dtype), gamma, beta


@pytest.mark.parametrize("cores", [1, 2])
def test_positions_far_from_the_chunk_before_them(cores):
    """Squares are of distances from that chunk's mean, which is no mean of theirs."""
    problem = GroupNorm(1, 8, 4, 20_000)
    x, gamma, beta = with_jumps(problem)
    y = simulate(problem, x, gamma, beta, TRN2, cores)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) <= 1


def test_a_mean_that_is_not_taken_off_the_squares_is_noticed(monkeypatch):
    def forgetful(core, tile):
        fill(core, tile)
        stride, steps = core.recipe.stride, core.held
        squares = core.sums.whole(SQUARES, tile)[:, 0:steps]
        at = slice(TRIPLE + 2, TRIPLE + steps * stride, stride)
        nisa.tensor_copy(dst=core.records.whole(core.slot, tile)[:, at], src=squares)

    fill = StatisticsCore.fill_triples
    monkeypatch.setattr(StatisticsCore, "fill_triples", forgetful)
    problem = GroupNorm(1, 8, 4, 20_000)
    x, gamma, beta = with_jumps(problem)
    y = simulate(problem, x, gamma, beta, TRN2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) > 1


def factors_of(problem, x, gamma, beta, parts=1):
    statistics = np.asarray(statistics_launch(problem, TRN2, parts).run(x).outputs)
    launch = scale_shift_launch(problem, gamma, beta, TRN2, parts)
    return np.asarray(launch.run(statistics).outputs)


@few(3)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_factors_make_the_norm(problem, parts):
    """a x + b in float64, rounded and activated as the second launch does it."""
    x, gamma, beta = arrays(problem)
    factors = factors_of(problem, x, gamma, beta, parts).astype(np.float64)
    assert factors.shape == (problem.channels, 2 * problem.units)
    grouped = x.astype(np.float64).reshape(problem.images, problem.channels, problem.frames, -1)
    a, b = (
        factors[:, n::2]
        .T.reshape(problem.images, problem.frames, problem.channels)
        .swapaxes(1, 2)[..., None]
        for n in range(2)
    )
    z = (a * grouped + b).reshape(x.shape)
    y = silu(z) if problem.activation == "silu" else z
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) <= 1


@few(2)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", PRICED[:6], ids=str)
def test_factors_break_no_rule_and_have_a_price(problem, machine, parts):
    statistics = specs(problem, parts)[1]
    ones = np.ones(problem.channels)
    launch = scale_shift_launch(problem, ones, ones, machine, parts)
    run = launch.run(statistics, values=False, rules=EVERY_RULE)
    price = problem.scale_shift_price(machine, parts)
    assert run.rules == ()
    assert price.instructions == run.traces[0].compiler_count
    assert price.ns == pytest.approx(launch.time(statistics).makespan_ns, rel=0.05)
