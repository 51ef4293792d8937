"""Attention: values against NumPy in float64, frames that are not seen, strict rules, prices."""

from dataclasses import replace

import numpy as np
import pytest

from fused_op_bounds import EVERY_RULE, SINGLE, SMALLEST, UNIT, normal, rounded, worst
from nkisim import TRN1, TRN2, TRN3, Spec
from nkisim.machine import find_machine
from repetition import few
from trnconv.errors import PlanError
from trnconv.fused_ops.attention.price import launch_price
from trnconv.fused_ops.attention.problem import Attention, launch_of, recipes_of, simulate

MACHINES = [TRN2, pytest.param(TRN3, marks=pytest.mark.slow)]
CASES = [
    Attention(1, 1, 64),
    Attention(2, 3, 16),
    Attention(1, 300, 64),
    Attention(2, 130, 384),
    Attention(1, 1100, 512),
    Attention(1, 520, 96, frame_tokens=130, dtype="float16"),
    Attention(1, 600, 384, frame_tokens=150),
    Attention(1, 60, 32, frame_tokens=4),
    Attention(1, 260, 80, scale=0.7),
]
LOOPED = [Attention(1, 1200, 32), Attention(1, 1800, 16, frame_tokens=900)]


def arrays(problem, seed=0):
    shape = (problem.batch, problem.tokens, problem.head_dim)
    return tuple(normal(seed + n, *shape, dtype=problem.dtype) for n in range(3))


def exact_and_bound(problem, q, k, v):
    """The definition; and how far the kernel may be.

    Products of 16-bit values are exact in float32, and a score sums d of them. A weight is rounded
    to the type of v once, where it is multiplied; sums over keys are float32. So a weight is off by
    UNIT, twice by what two scores are off, and by a rounding for every key; outputs are averages.
    """
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scale = problem.head_dim**-0.5 if problem.scale is None else problem.scale
    scores = scale * np.einsum("bqd,bkd->bqk", q, k)
    off = (
        scale * (problem.head_dim + 4) * 2.0**-24 * np.einsum("bqd,bkd->bqk", *map(np.abs, (q, k)))
    )
    if problem.frame_tokens is not None:
        frame = np.arange(problem.tokens) // problem.frame_tokens
        scores = np.where(frame[:, None] >= frame[None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    relative = UNIT[problem.dtype] + 4 * off.max() + (problem.tokens + 8) * 2.0**-24 + SINGLE
    lost = SMALLEST[problem.dtype] * np.abs(v).sum(axis=1, keepdims=True)  # of tiny weights
    exact = weights @ v
    return exact, rounded(relative * (weights @ np.abs(v)) + lost, exact, problem.dtype)


@few(6)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_values_are_within_the_derived_bound(problem, cores):
    given = arrays(problem)
    o = simulate(problem, *given, TRN2, cores)
    assert o.dtype == given[0].dtype
    assert worst(o, *exact_and_bound(problem, *given)) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", LOOPED, ids=str)
def test_values_of_loops_are_within_the_derived_bound(problem, cores):
    test_values_are_within_the_derived_bound(problem, cores)
    test_no_device_rule_is_broken(problem, TRN2, cores)
    assert cores == 2 or problem.price(TRN2, cores).regions > 0


@few(2)
@pytest.mark.parametrize("seed", range(8))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    frame, frames = int(rng.integers(1, 200)), int(rng.integers(1, 5))
    problem = Attention(
        int(rng.integers(1, 3)),
        frame * frames,
        16 * int(rng.integers(1, 33)),
        frame_tokens=frame if rng.integers(2) else None,
        dtype=str(rng.choice(["bfloat16", "float16"])),
    )
    given = arrays(problem, seed)
    o = simulate(problem, *given, (TRN2, TRN3)[seed % 2], 1 + seed % 2)
    assert worst(o, *exact_and_bound(problem, *given)) <= 1


def test_large_scores_do_not_overflow_and_the_maximum_may_come_last():
    problem = Attention(1, 1100, 16, scale=1.0)
    q, k, v = arrays(problem)
    k[:, -1] = 30 * q[:, 0]  # scores of hundreds, in the last block
    exact, bound = exact_and_bound(problem, q, k, v)
    assert worst(simulate(problem, q, k, v, TRN2), exact, bound) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("problem", [CASES[3], CASES[6], *LOOPED], ids=str)
def test_two_cores_give_the_bits_of_one(problem):
    given = arrays(problem)
    one, two = (
        np.asarray(launch_of(problem, TRN2, cores).run(*given, summation="fixed").outputs)
        for cores in (1, 2)
    )
    assert one.tobytes() == two.tobytes()


def specs(problem):
    return [Spec((problem.batch, problem.tokens, problem.head_dim), problem.dtype)] * 3


@few(9)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_no_device_rule_is_broken(problem, machine, cores):
    launch = launch_of(problem, machine, cores)
    run = launch.run(*specs(problem), values=False, rules=EVERY_RULE)
    assert run.rules == ()
    price = problem.price(machine, cores)
    assert price.instructions == max(trace.compiler_count for trace in run.traces)
    assert price.regions == sum(hasattr(item, "trips") for item in run.traces[0].items)


def test_frames_that_no_query_sees_are_not_computed():
    causal = Attention(1, 1200, 64, frame_tokens=300)
    flops = []
    for problem in (causal, replace(causal, frame_tokens=None)):
        flops.append(launch_of(problem, TRN2, 1).time(*specs(problem)).flops)
    assert flops[0] / flops[1] == pytest.approx(10 / 16, rel=0.02)


def check_price(problem, machine, cores, rel):
    timeline = launch_of(problem, machine, cores).time(*specs(problem))
    assert problem.price(machine, cores).ns == pytest.approx(timeline.makespan_ns, rel=rel)


@few(2)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize(
    "problem",
    [
        Attention(1, 1024, 512),
        Attention(1, 3600, 384),
        pytest.param(Attention(1, 4096, 64), marks=pytest.mark.slow),
        Attention(1, 2048, 64),
        Attention(2, 900, 512),
        Attention(1, 3600, 256, frame_tokens=1800),
    ],
    ids=str,
)
def test_the_price_is_within_5_percent_of_the_schedule(problem, machine, cores):
    check_price(problem, machine, cores, 0.05)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("problem", [Attention(1, 1, 64), Attention(1, 500, 384)], ids=str)
def test_prices_of_a_few_hundred_tokens_are_within_10_percent(problem, cores):
    """One or two tiles of queries: waits decide, which the cost model has in part."""
    check_price(problem, TRN2, cores, 0.10)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("tokens", [100, 3000])
def test_images_in_between_are_priced_alike(tokens, cores):
    """A model may have tens of thousands, of a few tokens each."""
    problem = Attention(7, tokens, 64)
    priced = problem.price(TRN2, cores)
    every = launch_price(recipes_of(problem, TRN2, cores), TRN2)
    assert priced.instructions == every.instructions
    assert (priced.regions, priced.hbm_bytes) == (every.regions, every.hbm_bytes)
    assert np.isclose(priced.ns, every.ns, rtol=1e-9)
    assert np.allclose([ns for _, ns in priced.busy], [ns for _, ns in every.busy], rtol=1e-9)


def test_four_fifths_of_the_tensor_engine_are_products_of_long_videos():
    """HunyuanVideo, 17 frames of 720p: 72,000 tokens in five. Modelled, by the cost model."""
    problem = Attention(1, 72_000, 512, frame_tokens=14_400)
    pairs = sum(14_400 * 14_400 * frame for frame in range(1, 6))
    ideal = 2 * pairs * 512 / (128 * 128 * 2.4)  # ns of an array that does nothing else
    price = problem.price(TRN2)
    assert 0.80 < ideal / price.ns < 0.88
    assert price.bound == "tensor"


def test_what_is_refused_says_why():
    assert "one of" in Attention(1, 8, 64, dtype="float32").refuses(TRN2)
    assert "at least 1" in Attention(1, 0, 64).refuses(TRN2)
    assert "divide" in Attention(1, 10, 64, frame_tokens=3).refuses(TRN2)
    assert "bank of PSUM" in Attention(1, 10, 1024).refuses(TRN2)
    assert "pad it" in Attention(1, 10, 131).refuses(TRN2)
    assert "trn1" in Attention(1, 10, 64).refuses(TRN1)
    assert "switched off" in Attention(1, 10, 64).refuses(find_machine("trn2+no-dma-transpose"))
    with pytest.raises(PlanError, match="divide"):
        Attention(1, 10, 64, frame_tokens=3).price(TRN2)


def test_a_mask_that_is_off_by_one_frame_is_noticed():
    problem = Attention(1, 400, 64, frame_tokens=100)
    given = arrays(problem)
    exact, bound = exact_and_bound(problem, *given)
    assert worst(simulate(problem, *given, TRN2), exact, bound) <= 1
    for frame in (50, 200, None):
        o = simulate(replace(problem, frame_tokens=frame), *given, TRN2)
        assert worst(o, exact, bound) > 1
