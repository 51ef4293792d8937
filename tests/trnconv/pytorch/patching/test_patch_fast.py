"""A production model whose convolutions are fast wherever they can be: how good are its frames?

At sizes that a simulator can run, the planner would find few fast forms worth taking. So here every
one that a policy allows is taken, whatever it costs: more than the same model does at 720p.
"""

from collections import Counter
from dataclasses import replace
from math import log10

import pytest

torch = pytest.importorskip("torch")

from nkisim.machine import TRN2
from three_way import FADED, rounded, run
from trnconv.ask.policy import FAST, LIMITS, Policy
from trnconv.forms.minimal import form as minimal_form
from trnconv.forms.minimal.transforms import F43
from trnconv.models import Size, find
from trnconv.planner import best, shares, table
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
    forms = Counter()
    for work, calls in report.stats.works.items():
        first, second = plans_for(work.question(TRN2))
        assert first.family == second.family
        forms[getattr(first, "transform", "direct")] += calls
    return frames, forms


def fast_if_it_has_a_plan(fastest):
    """The planner's choice among offers, but of the fast form alone where that offers any plan."""

    def chosen(offers):
        fast = tuple(offer for offer in offers if offer.form == "minimal" and offer.plans)
        return fastest(fast or offers)

    return chosen


def use_forms(monkeypatch, fast):
    """Plans of the direct form and of this one."""
    monkeypatch.setattr(table, "FORMS", [table.form_named("direct"), fast])
    monkeypatch.setattr(best, "FORMS", table.FORMS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_frames_are_as_good_as_those_of_plain_bf16(seed, monkeypatch):
    use_forms(monkeypatch, minimal_form.MINIMAL)
    monkeypatch.setattr(best, "_fastest", fast_if_it_has_a_plan(best._fastest))
    monkeypatch.setattr(shares, "first_offer", lambda _: None)
    model = model_of(seed)
    latent = rounded(example_latent(WAN, SIZE, seed=seed))
    plain = run(model, WAN, "decode", latent)
    direct, _ = decoded(model, latent, "direct")
    careful, careful_forms = decoded(model, latent, "bf16")
    quick_families = tuple(name for name in minimal_form.FAMILIES if name.startswith(F43.name))
    only = replace(minimal_form.MINIMAL, families=lambda _: quick_families)
    use_forms(monkeypatch, only)
    quick, quick_forms = decoded(model, latent, "fast")
    exact = run(torch.nn.Module.to(model, dtype=torch.float32), WAN, "decode", latent)
    assert exact.abs().max() < 1
    assert careful_forms["F(2,3)"] > careful_forms["direct"]
    assert quick_forms["F(4,3)"] > quick_forms["direct"]
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
