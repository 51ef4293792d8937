"""The gradient of an RMS norm: values against NumPy in float64, strict rules, cores, prices.

The bound follows the kernel: what each engine hands to the next is rounded to x's type, squares and
products to bf16 (to float32 for float32), and every error goes on through the formula.
"""

from dataclasses import replace

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
from trnconv.fused_ops import step_sums
from trnconv.fused_ops.rms_norm.problem import MEAN, NORM, RmsNorm
from trnconv.fused_ops.rms_norm_gradient import kernel
from trnconv.fused_ops.rms_norm_gradient.problem import (
    RmsNormGradient,
    launch_of,
    pack,
    plan_of,
    simulate,
)

CASES = [
    RmsNorm(96, 5000),
    RmsNorm(1, 1),
    RmsNorm(1, 700, variant=MEAN, eps=1e-3),
    RmsNorm(2, 1, dtype="float32"),
    RmsNorm(160, 513, dtype="float16", activation="gelu"),
    RmsNorm(192, 777, images=3, variant=MEAN, eps=1e-2, has_beta=True),
    RmsNorm(384, 1025, activation="identity", has_beta=True),
    RmsNorm(512, 600, dtype="float32", variant=MEAN, eps=0.5, has_beta=True),
    RmsNorm(1024, 300),
    RmsNorm(160, 700, images=2, x_first=300, x_positions=1001),  # frames of a longer video
]
LOOPED = [
    RmsNorm(3, 45_001, has_beta=True),  # a loop over positions, and what is left
    RmsNorm(3, 1200, images=31),  # a loop over images, and what is left
    RmsNorm(3, 45_001, x_first=77, x_positions=45_078),
]


def arrays(norm, seed=0):
    """x, dy, gamma and beta."""
    dtype = normal(0, 1, dtype=norm.dtype).dtype
    x = 3 * normal(seed, norm.images, norm.channels, norm.in_memory).astype(dtype)
    dy = normal(seed + 3, norm.images, norm.channels, norm.positions).astype(dtype)
    beta = normal(seed + 2, norm.channels) if norm.has_beta else None
    return x, dy, normal(seed + 1, norm.channels), beta


def exact_and_bounds(norm, x, dy, gamma, beta):
    """dx and sums by the definition; and how far the kernel's may be."""
    x = x[:, :, norm.x_first : norm.x_first + norm.positions].astype(np.float64)
    dy, single = dy.astype(np.float64), UNIT["float32"]
    wide = norm.dtype == "float32"
    between, of_squares = UNIT[norm.dtype], UNIT["float32" if wide else "bfloat16"]
    squares = np.square(x).sum(axis=1, keepdims=True)
    r = (squares + (norm.eps**2 if norm.variant == NORM else norm.channels * norm.eps)) ** -0.5
    a = (gamma.astype(np.float64) * np.sqrt(norm.channels))[None, :, None]
    b = np.zeros_like(a) if beta is None else beta.astype(np.float64)[None, :, None]
    off_r = 0.5 * (of_squares + (norm.channels + 4) * single) + SINGLE

    def to(unit, exact, bound):
        return bound + unit * (np.abs(exact) + bound)

    n = x * r
    off_n = to(between, n, off_r * np.abs(n))
    g, bend = slope_and_curvature(norm.activation, a * n + b)
    plain = norm.activation == "identity"
    off_u = np.abs(a) * off_n + SINGLE * (np.abs(a * n) + np.abs(b))
    off_g = 0 if plain else to(between, g, bend * off_u + SINGLE)
    du = dy * g
    off_du = 0 * du if plain else rounded(np.abs(dy) * off_g, du, norm.dtype)
    p = du * n
    off_p = to(of_squares, p, np.abs(du) * off_n + np.abs(n) * off_du + off_n * off_du)
    terms = np.abs(a) * np.abs(p)
    s = (a * p).sum(axis=1, keepdims=True)
    off_terms = np.abs(a) * to(of_squares, p, off_p) + (norm.channels + 4) * single * terms
    off_s = off_terms.sum(axis=1, keepdims=True)
    t = n * s
    off_t = rounded(np.abs(s) * off_n + np.abs(n) * off_s + off_n * off_s, t, norm.dtype)
    w = a * du - t
    off_w = np.abs(a) * off_du + off_t + SINGLE * (np.abs(a * du) + np.abs(t))
    off_w = rounded(off_w, w, norm.dtype)
    dx = r * w
    off_dx = rounded(r * (off_w + off_r * (np.abs(w) + off_w)), dx, norm.dtype)
    count = norm.images * norm.positions
    sums, off_sums = (
        np.stack([part.sum(axis=(0, 2)) for part in parts], axis=1)
        for parts in (
            (p, du),
            (off_p + count * single * np.abs(p), off_du + count * single * np.abs(du)),
        )
    )
    return (dx, off_dx), (sums, off_sums + 2.0**-140)


def worst_of(norm, found, tensors, gamma, beta):
    """The largest error in bounds, of dx and of the sums that there are."""
    whole = exact_and_bounds(norm, *tensors, gamma, beta)
    kinds = 2 if norm.has_beta else 1
    dx = worst(found[0], *whole[0])
    return dx, worst(found[1], *(part[:, :kinds] for part in whole[1]))


@few(6)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("norm", CASES, ids=str)
def test_values_are_within_the_derived_bound(norm, cores):
    x, dy, gamma, beta = arrays(norm)
    found = simulate(RmsNormGradient(norm), (x, dy), gamma, beta, TRN2, cores)
    assert found[0].dtype == x.dtype
    assert max(worst_of(norm, found, (x, dy), gamma, beta)) <= 1


@few(1)
@pytest.mark.usefixtures("short_iterations")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("norm", LOOPED, ids=str)
def test_values_of_loops_are_within_the_derived_bound(norm, cores):
    test_values_are_within_the_derived_bound(norm, cores)
    test_no_device_rule_is_broken(norm, TRN2, cores)
    assert RmsNormGradient(norm).price(TRN2, cores).regions > 0


def test_sums_of_many_steps_are_folded_on_the_way(monkeypatch):
    monkeypatch.setattr(step_sums, "COLUMNS", 3)
    test_values_are_within_the_derived_bound(RmsNorm(96, 5000, has_beta=True), 1)


@few(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    norm = RmsNorm(
        int(rng.integers(1, 400)),
        int(rng.integers(1, 2000)),
        dtype=str(rng.choice(["bfloat16", "float16", "float32"])),
        activation=str(rng.choice(["silu", "gelu", "identity"])),
        images=int(rng.integers(1, 4)),
        eps=1e-3,
        variant=MEAN,
        has_beta=bool(rng.integers(2)),
    )
    x, dy, gamma, beta = arrays(norm, seed)
    machine, cores = (TRN2, TRN3)[seed % 2], 1 + seed % 2
    found = simulate(RmsNormGradient(norm), (x, dy), gamma, beta, machine, cores)
    assert max(worst_of(norm, found, (x, dy), gamma, beta)) <= 1


@few(6)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("norm", CASES, ids=str)
def test_no_device_rule_is_broken(norm, machine, cores):
    problem, run = RmsNormGradient(norm), traced(norm, machine, cores)
    assert run.rules == ()
    price = problem.price(machine, cores)
    assert price.instructions == max(trace.compiler_count for trace in run.traces)
    assert price.regions == sum(hasattr(item, "trips") for item in run.traces[0].items)


def traced(norm, machine, cores):
    return launched(norm, machine, cores).run(*specs(norm), values=False, rules=EVERY_RULE)


def launched(norm, machine, cores):
    packed = pack(norm, np.ones(norm.channels), None, machine)
    return launch_of(RmsNormGradient(norm), packed, machine, cores)


def specs(norm):
    return tuple(
        Spec((norm.images, norm.channels, positions), norm.dtype)
        for positions in (norm.in_memory, norm.positions)
    )


PRICED = [
    RmsNorm(96, 1),
    RmsNorm(96, 3000),
    RmsNorm(96, 20_000),
    pytest.param(RmsNorm(96, 400_000), marks=pytest.mark.slow),
    RmsNorm(128, 60_000, has_beta=True),
    RmsNorm(192, 30_000),
    RmsNorm(384, 10_000, dtype="float32"),
    RmsNorm(1024, 5_000),
    RmsNorm(64, 3600, images=40, activation="identity"),
]


@few(3)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("norm", PRICED, ids=str)
def test_the_price_is_within_10_percent_of_the_schedule(norm, cores):
    timeline = launched(norm, TRN2, cores).time(*specs(norm))
    price = RmsNormGradient(norm).price(TRN2, cores)
    assert price.ns == pytest.approx(timeline.makespan_ns, rel=0.10)


def test_the_gpsimd_engine_takes_products():
    """Modelled; with 16-bit types the Vector engine is the bound without that."""
    assert plan_of(RmsNormGradient(RmsNorm(96, 10**6)), TRN2, 1).gpsimd_passes == 2


def test_what_is_refused_says_why():
    def refuses(norm, machine=TRN2, cores=1):
        return RmsNormGradient(norm).refuses(machine, cores)

    assert "at least 1" in refuses(RmsNorm(0, 5))
    assert "mish" in refuses(RmsNorm(4, 5, activation="mish"))
    assert "trn1" in refuses(RmsNorm(4, 5), TRN1)
    assert "cores" in refuses(RmsNorm(4, 5), cores=3)
    assert "SBUF" in refuses(RmsNorm(9000, 5))
    assert refuses(RmsNorm(4, 5, has_beta=True), cores=2) == ""


@pytest.mark.parametrize("channels", [96, 192])
def test_a_channel_that_no_sum_has_is_noticed(monkeypatch, channels):
    """Of what statistics pass on; x is such that the channel counts."""

    def without_one(core, step, n):
        kernel.nisa.memset(dst=core.products.whole(n, 0)[0:1, 0 : step.width], value=0.0)
        return summed(core, step, n)

    summed = kernel.sum_over_channels
    monkeypatch.setattr(kernel, "sum_over_channels", without_one)
    norm = RmsNorm(channels, 600)
    x, dy, gamma, beta = arrays(norm)
    x[:, 0], dy[:, 0], gamma[0] = 20 * x[:, 0], 3, 2
    found = simulate(RmsNormGradient(norm), (x, dy), gamma, beta, TRN2)
    assert worst_of(norm, found, (x, dy), gamma, beta)[0] > 1


def test_a_step_that_no_sum_has_is_noticed(monkeypatch):
    def only_first(self, tile, kind, values):
        if self.held == 0:
            added(self, tile, kind, values)

    added = step_sums.StepSums.add_by_scalar
    monkeypatch.setattr(step_sums.StepSums, "add_by_scalar", only_first)
    norm = replace(CASES[0], positions=1024)
    x, dy, gamma, beta = arrays(norm)
    found = simulate(RmsNormGradient(norm), (x, dy), gamma, beta, TRN2)
    assert worst_of(norm, found, (x, dy), gamma, beta)[1] > 1
