"""A production model whose convolutions are fast wherever they can be: how good are its frames?

At sizes that a simulator can run, the planner would find Winograd rarely worth taking. So here
every plan that a policy allows is taken, whatever it costs: more than the same model does at 720p.
"""

from collections import Counter
from dataclasses import replace
from math import log10

import pytest

torch = pytest.importorskip("torch")

from nkisim.machine import TRN2
from three_way import FADED, rounded, run
from trnconv.algorithms.winograd import algorithm as winograd_algorithm
from trnconv.algorithms.winograd.transforms import F43
from trnconv.models import Size, find
from trnconv.planner import best, shares, table
from trnconv.problem.policy import FAST, LIMITS, Policy
from trnconv.pytorch import patched
from trnconv.pytorch.model_builder import build, example_latent
from trnconv.runtime.plans import plans_for

pytestmark = [pytest.mark.diffusers, pytest.mark.slow]
PEAK = 2.0  # frames are in [-1, 1]
MOST_LOST_DB = 0.3
WAN = find("wan2.1")
SIZE = Size("", 5, 48, 48)


def psnr(frames, exact):
    error = (frames.double() - exact.double()).square().mean()
    return (10 * torch.log10(PEAK**2 / error)).item()


def model_of(seed):
    """With frames too faint to be clamped: there an error would not show."""
    model = build(WAN, dtype=torch.bfloat16, seed=seed)
    for parameter in model.decoder.conv_out.parameters():
        parameter.mul_(FADED)
    return model


def decoded(model, latent, accuracy):
    """The frames, and how often each algorithm ran, on both cores of a launch."""
    with patched(model, accuracy=Policy(accuracy, least_macs=0)) as report:
        frames = run(model, WAN, "decode", latent)
    algorithms = Counter()
    for work, calls in report.stats.works.items():
        first, second = plans_for(work.problem(TRN2))
        assert first.family == second.family
        algorithms[getattr(first, "transform", "direct")] += calls
    return frames, algorithms


def fast_if_it_has_a_plan(fastest):
    """The planner's choice among offers, but of Winograd alone where that offers any plan."""

    def chosen(offers):
        fast = tuple(offer for offer in offers if offer.algorithm == "winograd" and offer.plans)
        return fastest(fast or offers)

    return chosen


def use_algorithms(monkeypatch, fast):
    """Plans of the direct algorithm and of this one."""
    monkeypatch.setattr(table, "ALGORITHMS", [table.algorithm_named("direct"), fast])
    monkeypatch.setattr(best, "ALGORITHMS", table.ALGORITHMS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_frames_are_as_good_as_those_of_plain_bf16(seed, monkeypatch):
    use_algorithms(monkeypatch, winograd_algorithm.WINOGRAD)
    monkeypatch.setattr(best, "_fastest", fast_if_it_has_a_plan(best._fastest))
    monkeypatch.setattr(shares, "first_offer", lambda _: None)
    model = model_of(seed)
    latent = rounded(example_latent(WAN, SIZE, seed=seed))
    plain = run(model, WAN, "decode", latent)
    direct, _ = decoded(model, latent, "direct")
    careful, careful_algorithms = decoded(model, latent, "bf16")
    quick_families = tuple(
        name for name in winograd_algorithm.FAMILIES if name.startswith(F43.name)
    )
    only = replace(winograd_algorithm.WINOGRAD, families=lambda _: quick_families)
    use_algorithms(monkeypatch, only)
    quick, quick_algorithms = decoded(model, latent, "fast")
    exact = run(torch.nn.Module.to(model, dtype=torch.float32), WAN, "decode", latent)
    assert exact.abs().max() < 1
    assert careful_algorithms["F(2,3)"] > careful_algorithms["direct"]
    assert quick_algorithms["F(4,3)"] > quick_algorithms["direct"]
    errors = {
        name: psnr(frames, exact)
        for name, frames in {
            "torch": plain,
            "direct": direct,
            "bf16": careful,
            "fast": quick,
        }.items()
    }
    assert errors["bf16"] > errors["direct"] - MOST_LOST_DB, errors
    assert errors["bf16"] > errors["torch"] - MOST_LOST_DB
    assert errors["fast"] > errors["torch"] - 20 * log10(LIMITS[FAST])  # noise in every layer
