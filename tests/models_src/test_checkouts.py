"""Autoencoders of other repositories as they are written, patched: MODELS_SRC=... -m models_src."""

import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("einops")

from model_checkouts import CHECKOUTS, SCALE
from patched_runs import CONVOLUTIONS, Patched, Unpatched
from three_way import Error
from trnconv.models import Size, find
from trnconv.pytorch import patch_
from trnconv.pytorch.model_builder import build, decode, encode, example_latent, example_video

pytestmark = pytest.mark.models_src

# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
CASES = [(name, phase) for name, checkout in CHECKOUTS.items() for phase in checkout.calls]
every_case = pytest.mark.parametrize(("name", "phase"), CASES)


@pytest.fixture(autouse=True)
def pools_that_torch_lacks_in_bf16(monkeypatch):
    """Averages over volumes in float32, rounded once: torch's CPU has none in bf16."""
    pool = torch.nn.functional.avg_pool3d

    def pooled(x, *args, **options):
        return pool(x.float(), *args, **options).to(x.dtype)

    monkeypatch.setattr(torch.nn.functional, "avg_pool3d", pooled)


@every_case
def test_a_patched_model_is_as_exact_as_bf16(name, phase):
    checkout = CHECKOUTS[name]
    exact = checkout.call(phase, checkout.model())
    model = checkout.model(torch.bfloat16)
    floor = Unpatched(model, lambda model: checkout.call(phase, model))
    ours = Patched(model, lambda model: checkout.call(phase, model))
    ours.require_every_convolution(floor)
    lowest, error = Error.of(floor.y, exact), Error.of(ours.y, exact)
    assert type(ours.y) is torch.Tensor
    assert error.within(lowest), f"floor {lowest}, ours {error}"


@every_case
def test_a_patched_model_in_float32(name, phase):
    checkout = CHECKOUTS[name]
    model = checkout.model()
    theirs = Unpatched(model, lambda model: checkout.call(phase, model))
    ours = Patched(model, lambda model: checkout.call(phase, model), backend="torch")
    assert ours.report.left_to_torch == ()
    assert ours.report.stats.calls == theirs.calls > 0
    assert Error.of(ours.y, theirs.y).largest <= FLOAT32_BOUND


def with_weights_of(theirs, ours):
    """Our module with the published one's weights, which both have in the same order."""
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    for own, published in pairs:
        own.data.copy_(published)
    return ours


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("turbo-vaed-hunyuan", "Hunyuan"),
        ("turbo-vaed-cogvideox", "Cog"),
        ("turbo-vaed-ltx", "LTX"),
        ("turbo-vaed-dc", "DC"),
    ],
)
def test_our_turbo_vaed_is_the_published_one(name, file):
    """Class and configuration of its authors, at full width, and our module with its weights."""
    entry, checkout = find(name), CHECKOUTS["Turbo-VAED"]
    config = Path(os.environ["MODELS_SRC"], "Turbo-VAED", "configs", f"Turbo-VAED-{file}.json")
    module = checkout.module()
    written = json.loads(config.read_text(encoding="utf-8"))
    without_heads = {
        key: value for key, value in written.items() if not key.startswith(("_", "aligned_"))
    }
    torch.manual_seed(0)
    theirs = module.AutoencoderKLTurboVAED(**without_heads).eval().requires_grad_(False)
    ours = with_weights_of(theirs, build(entry))
    latent = torch.randn(1, entry.latent_channels, 2, 2, 3)
    expected, found = theirs.decode(latent).sample, decode(ours, entry, latent)
    assert Error.of(found, expected).largest <= FLOAT32_BOUND


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("taew2.1", {"patch_size": 1, "latent_channels": 16}),
        ("taew2.2", {"patch_size": 2, "latent_channels": 48}),
        ("taehv1.5", {"patch_size": 2, "latent_channels": 32}),
        (
            "taeltx2",
            {
                "patch_size": 4,
                "latent_channels": 128,
                "encoder_time_downscale": (True, True, True),
                "decoder_time_upscale": (True, True, True),
            },
        ),
    ],
)
def test_our_taehv_is_the_published_one(name, options):
    entry = find(name)
    torch.manual_seed(0)
    theirs = CHECKOUTS["TAEHV"].module().TAEHV(checkpoint_path=None, **options)
    ours = with_weights_of(theirs.eval().requires_grad_(False), build(entry))
    frames, rows, columns = entry.compression
    clip = Size("", frames + 1, 4 * rows, 2 * columns)
    video, latent = example_video(entry, clip), example_latent(entry, clip)
    whole = {"parallel": True, "show_progress_bar": False}
    encoded = theirs.encode_video(video.movedim(2, 1), **whole).movedim(1, 2)
    decoded = theirs.decode_video(latent.movedim(2, 1), **whole).movedim(1, 2)
    assert Error.of(encode(ours, entry, video), encoded).largest <= FLOAT32_BOUND
    # Theirs ends in the range of pixels, ours before it.
    assert Error.of(decode(ours, entry, latent).clamp(0, 1), decoded).largest <= FLOAT32_BOUND


def test_every_convolution_of_wan_in_full_width():
    """The official file as published: 96 channels, 16 latents; shapes only."""
    module = CHECKOUTS["Wan2.1"].module()
    with torch.device("meta"):
        options = {"dim": 96, "z_dim": 16, "temperal_downsample": [False, True, True]}
        model = module.WanVAE_(**options).eval().requires_grad_(requires_grad=False)
        count = sum(isinstance(each, CONVOLUTIONS) for each in model.modules())
        report = patch_(model)
        with torch.no_grad():
            frames = model.decode(torch.empty(1, 16, 2, 4, 4), SCALE)
            model.encode(torch.empty(1, 3, 5, 32, 32), SCALE)
    assert frames.shape == (1, 3, 5, 32, 32)
    assert len(report.patched) == count
    assert {work.module for work in report.stats.works} == {entry.name for entry in report.patched}
    assert "pad" not in report.copied()
