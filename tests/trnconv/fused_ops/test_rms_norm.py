"""RMS norm and SiLU: values against NumPy in float64, strict rules, two cores, prices."""

from dataclasses import replace

import numpy as np
import pytest

from fused_op_bounds import EVERY_RULE, SINGLE, SLOPE, UNIT, normal, rounded, silu, worst
from nkisim import TRN1, TRN2, TRN3, Spec
from repetition import few
from trnconv.errors import PlanError
from trnconv.fused_ops.rms_norm import square_sums
from trnconv.fused_ops.rms_norm.problem import MEAN, NORM, RmsNorm, launch_of, simulate

MACHINES = [TRN2, pytest.param(TRN3, marks=pytest.mark.slow)]
CASES = [
    RmsNorm(96, 5000),
    RmsNorm(1, 1),
    RmsNorm(1, 700, variant=MEAN, eps=1e-3),
    RmsNorm(2, 1, dtype="float32"),
    RmsNorm(160, 513, dtype="float16"),
    RmsNorm(192, 777, images=3, variant=MEAN, eps=1e-2, has_beta=True),
    RmsNorm(384, 1025, activation="identity", has_beta=True),
    RmsNorm(512, 2049, dtype="float32", variant=MEAN, eps=0.5),
    RmsNorm(1024, 300),
    RmsNorm(300, 511, images=2, activation="identity"),
    RmsNorm(160, 700, images=2, x_first=300, x_positions=1001),  # frames of a longer video
]
LOOPED = [
    RmsNorm(3, 45_001),  # a loop over positions, and what is left
    RmsNorm(3, 1200, images=31),  # a loop over images, and what is left
    RmsNorm(3, 30_000, images=3),  # images one after the other, each dealt to all cores
    RmsNorm(3, 45_001, x_first=77, x_positions=45_078),
    RmsNorm(3, 1200, images=31, x_first=400, x_positions=1601),
]


def arrays(problem, seed=0):
    shape = (problem.images, problem.channels, problem.in_memory)
    gamma = normal(seed + 1, problem.channels)
    beta = normal(seed + 2, problem.channels) if problem.has_beta else None
    return 3 * normal(seed, *shape).astype(normal(0, 1, dtype=problem.dtype).dtype), gamma, beta


def exact_and_bound(problem, x, gamma, beta):
    """The definition; and how far the kernel may be.

    Squares are rounded to bf16 (float32 for float32), and sums have C + 3 terms: the root of their
    sum is off by half of that. The product, the scale and the bias are float32.
    """
    x = x[:, :, problem.x_first : problem.x_first + problem.positions].astype(np.float64)
    sums = np.square(x).sum(axis=1, keepdims=True)
    if problem.variant == NORM:
        normed = x / np.maximum(np.sqrt(sums), problem.eps) * np.sqrt(problem.channels)
    else:
        normed = x / np.sqrt(sums / problem.channels + problem.eps)
    scaled = gamma.astype(np.float64)[None, :, None] * normed
    shift = 0 if beta is None else beta.astype(np.float64)[None, :, None]
    z = scaled + shift
    of_squares = UNIT["float32" if problem.dtype == "float32" else "bfloat16"]
    relative = 0.5 * (of_squares + (problem.channels + 4) * UNIT["float32"]) + SINGLE
    bound = relative * np.abs(scaled) + SINGLE * np.abs(shift)
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
    problem = RmsNorm(
        int(rng.integers(1, 400)),
        int(rng.integers(1, 3000)),
        dtype=str(rng.choice(["bfloat16", "float16", "float32"])),
        activation=str(rng.choice(["silu", "identity"])),
        images=int(rng.integers(1, 4)),
        eps=1e-3,
        variant=MEAN,
        has_beta=bool(rng.integers(2)),
    )
    x, gamma, beta = arrays(problem, seed)
    y = simulate(problem, x, gamma, beta, (TRN2, TRN3)[seed % 2], 1 + seed % 2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) <= 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_zeros_stay_zeros_and_large_values_do_not_overflow(dtype):
    problem = RmsNorm(64, 40, dtype=dtype)
    x, gamma, _ = arrays(problem)
    x[:] = 0
    assert not simulate(problem, x, gamma, None, TRN2).any()
    x[:, :, :] = 30_000  # squares are 9e8: beyond fp16
    assert (
        worst(simulate(problem, x, gamma, None, TRN2), *exact_and_bound(problem, x, gamma, None))
        <= 1
    )


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("problem", [CASES[0], CASES[5], *LOOPED], ids=str)
def test_two_cores_give_the_bits_of_one(problem):
    x, gamma, beta = arrays(problem)
    one, two = (
        np.asarray(launch_of(problem, gamma, beta, TRN2, cores).run(x, summation="fixed").outputs)
        for cores in (1, 2)
    )
    assert one.tobytes() == two.tobytes()


@few(9)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_no_device_rule_is_broken(problem, machine, cores):
    gamma = np.ones(problem.channels)
    spec = Spec((problem.images, problem.channels, problem.in_memory), problem.dtype)
    launch = launch_of(problem, gamma, gamma if problem.has_beta else None, machine, cores)
    run = launch.run(spec, values=False, rules=EVERY_RULE)
    assert run.rules == ()
    price = problem.price(machine, cores)
    assert price.instructions == max(trace.compiler_count for trace in run.traces)
    assert price.regions == sum(hasattr(item, "trips") for item in run.traces[0].items)


PRICED = [
    RmsNorm(96, 1),
    RmsNorm(96, 3000),
    RmsNorm(96, 20_000),
    pytest.param(RmsNorm(96, 400_000), marks=pytest.mark.slow),
    RmsNorm(128, 100_000),
    RmsNorm(192, 50_000),
    RmsNorm(384, 30_000, dtype="float32"),
    RmsNorm(1024, 10_000),
    RmsNorm(64, 3600, images=100),
]


@few(3)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", PRICED, ids=str)
def test_the_price_is_within_5_percent_of_the_schedule(problem, machine, cores):
    spec = Spec((problem.images, problem.channels, problem.in_memory), problem.dtype)
    timeline = launch_of(problem, np.ones(problem.channels), None, machine, cores).time(spec)
    price = problem.price(machine, cores)
    assert price.ns == pytest.approx(timeline.makespan_ns, rel=0.05)
    assert price.hbm_bytes == 2 * np.prod(spec.shape) * {"float32": 4}.get(problem.dtype, 2)


def test_it_moves_at_nine_tenths_of_what_dma_can():
    """Modelled, 128 channels, long; with 96 two engines that a step costs as much are the bound."""
    assert RmsNorm(128, 10**6).price(TRN2).share("dma") > 0.9
    price = RmsNorm(96, 10**6).price(TRN2)
    assert price.bound in {"vector", "scalar"}
    assert price.share("dma") > 0.7


def test_what_is_refused_says_why():
    assert "at least 1" in RmsNorm(0, 5).refuses(TRN2)
    assert "one of" in RmsNorm(4, 5, dtype="int8").refuses(TRN2)
    assert "one of" in RmsNorm(4, 5, activation="swish").refuses(TRN2)
    assert "one of" in RmsNorm(4, 5, variant="l1").refuses(TRN2)
    assert "trn1" in RmsNorm(4, 5).refuses(TRN1)
    assert "cores" in RmsNorm(4, 5).refuses(TRN2, 3)
    assert "SBUF" in RmsNorm(9000, 5).refuses(TRN2)
    assert "SBUF" in RmsNorm(2**25, 5).refuses(TRN2)  # constants alone are more than it has
    assert "32 bits" in RmsNorm(1024, 2**22).refuses(TRN2)
    assert RmsNorm(4, 5).refuses(TRN2, 2) == ""
    with pytest.raises(PlanError, match="32 bits"):
        RmsNorm(1024, 2**22).price(TRN2)


def test_a_wrong_eps_is_noticed():
    problem = RmsNorm(96, 600, variant=MEAN, eps=0.1)
    x, gamma, beta = arrays(problem)
    y = simulate(replace(problem, eps=0.05), x, gamma, beta, TRN2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) > 1


@pytest.mark.parametrize("channels", [96, 192])
def test_a_channel_that_no_sum_has_is_noticed(monkeypatch, channels):
    def with_zeros(self, step, number):
        squared(self, step, number)
        tile = self.squares.whole(number, 0)
        square_sums.nisa.memset(dst=tile[0:1, 0 : step.width], value=0.0)

    squared = square_sums.SquareSums.square
    monkeypatch.setattr(square_sums.SquareSums, "square", with_zeros)
    problem = RmsNorm(channels, 600)
    x, gamma, beta = arrays(problem)
    y = simulate(problem, x, gamma, beta, TRN2)
    assert worst(y, *exact_and_bound(problem, x, gamma, beta)) > 1
