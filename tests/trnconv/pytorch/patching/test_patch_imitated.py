"""Models beyond diffusers: their structures, patched, compute what they compute unpatched."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("einops")

from imitated_vaes import IMITATIONS
from imitated_wan import SURROUNDING
from model_checkouts import CHECKOUTS
from patched_runs import Patched, Unpatched
from three_way import Error
from trnconv.models import models
from trnconv.pytorch import patch_

pytestmark = pytest.mark.torch

# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
PHASES = ("encode", "decode")
# Padding that no convolution can do.
PADDED = {
    "wan2.2-official": "the shortcut around a resampler takes means of a padded clip",
    "hunyuanvideo-1.5": "a padded clip is cut into pieces in time, which overlap",
    "taehv": "the frames before, moved by one, are channels of a convolution",
}
# Of each class of ours in the registry: an imitation with other code, and its authors' own file.
BESIDE_OURS = {
    "TinyVideoAutoencoder": ("taehv", "TAEHV"),
    "TurboVideoDecoder": ("turbo-vaed", "Turbo-VAED"),
}
every_imitation = pytest.mark.parametrize("name", IMITATIONS)
every_phase = pytest.mark.parametrize("phase", PHASES)


def calling(phase, given):
    def call(model):
        with torch.no_grad():
            return getattr(model, phase)(given.to(next(model.parameters()).dtype))

    return call


def test_every_registered_model_is_of_diffusers_or_has_an_imitation_and_a_checkout():
    own = {entry.own_class for entry in models() if not entry.diffusers_class}
    assert own == set(BESIDE_OURS)
    assert {name for name, _ in BESIDE_OURS.values()} <= set(IMITATIONS)
    assert {name for _, name in BESIDE_OURS.values()} <= set(CHECKOUTS)


@every_phase
@every_imitation
def test_a_patched_imitation_is_as_exact_as_bf16(name, phase):
    imitation = IMITATIONS[name]
    call = calling(phase, imitation.given(phase))
    exact = call(imitation.model())
    model = imitation.model(torch.bfloat16)
    floor = Unpatched(model, call)
    ours = Patched(model, call)
    ours.require_every_convolution(floor)
    lowest, error = Error.of(floor.y, exact), Error.of(ours.y, exact)
    assert type(ours.y) is torch.Tensor
    assert ours.y.shape == exact.shape
    assert error.within(lowest), f"floor {lowest}, ours {error}"


@every_phase
@every_imitation
def test_a_patched_imitation_in_float32(name, phase):
    imitation = IMITATIONS[name]
    call = calling(phase, imitation.given(phase, batch=2))
    model = imitation.model()
    theirs = Unpatched(model, call)
    ours = Patched(model, call, backend="torch")
    assert ours.report.left_to_torch == ()
    assert theirs.modules <= {work.module for work in ours.report.stats.works}
    assert ours.report.stats.calls == theirs.calls > 0
    assert Error.of(ours.y, theirs.y).largest <= FLOAT32_BOUND


@every_imitation
def test_padding_goes_into_the_convolutions(name):
    imitation = IMITATIONS[name]
    model = imitation.model()
    report = patch_(model, backend="torch")
    for phase in PHASES:
        calling(phase, imitation.given(phase))(model)
    assert ("pad" in report.copied()) == (name in PADDED), report.copied()


def test_both_ways_of_taehv_agree():
    at_once, in_turn = (IMITATIONS[name].model() for name in ("taehv", "taehv-in-turn"))
    latent = IMITATIONS["taehv"].given("decode")
    for model in (at_once, in_turn):
        patch_(model, backend="torch")
    call = calling("decode", latent)
    assert Error.of(call(in_turn), call(at_once)).largest <= FLOAT32_BOUND


def test_slots_in_context_variables_are_those_of_arguments():
    latent = IMITATIONS["wan2.1-official"].given("decode")
    call = calling("decode", latent)
    by_argument, by_context = (
        IMITATIONS[name].model() for name in ("wan2.1-official", "sglang-wan")
    )
    for model in (by_argument, by_context):
        patch_(model, backend="torch")
    assert torch.equal(call(by_argument), call(by_context))
    assert SURROUNDING.get() is None


def test_the_bound_would_notice_a_slot_that_is_lost():
    imitation = IMITATIONS["wan2.1-official"]
    call = calling("decode", imitation.given("decode"))
    model = imitation.model()
    exact = call(model)
    floor = Error.of(call(imitation.model(torch.bfloat16)), exact)
    conv = model.decoder.head[2]
    whole = conv.forward
    conv.forward = lambda x, _before=None: whole(x)
    assert not Error.of(call(model), exact).within(floor)
