"""Every model of the registry is built, encodes and decodes, at the size made for tests."""

import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from recorded_convolutions import Recorder
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.models import find, models
from trnconv.pytorch.model_builder import build, decode, encode, example_latent, example_video

pytestmark = pytest.mark.diffusers

GMAC = 1e9


def of_every_model(function):
    return pytest.mark.parametrize("entry", models(), ids=lambda entry: entry.name)(function)


def phases(entry, **options):
    """A reduced model's results and convolutions, of each phase that it has."""
    model = build(entry, reduced=True, **options)
    video = example_video(entry, entry.tiny)
    latent = example_latent(entry, entry.tiny, reduced=True)
    runs = {
        "encode": lambda: encode(model, entry, video),
        "decode": lambda: decode(model, entry, latent),
    }
    found = {}
    for phase in entry.phases:
        with Recorder() as recorder:
            found[phase] = (runs[phase](), recorder)
    return found


@of_every_model
def test_a_reduced_model_encodes_and_decodes(entry):
    shapes = {
        "encode": example_latent(entry, entry.tiny, reduced=True).shape,
        "decode": example_video(entry, entry.tiny).shape,
    }
    for phase, (result, recorder) in phases(entry).items():
        assert result.shape == shapes[phase]
        assert result.isfinite().all()
        assert 0.1 < result.std() < 10
        assert 0 < recorder.macs < GMAC


@of_every_model
def test_a_reduced_model_has_every_kind_of_layer(entry):
    def kinds(*, reduced):
        model = build(entry, reduced=reduced, device="meta")
        settings = ("kernel_size", "stride", "padding", "padding_mode")
        return {
            (type(module).__name__, *(getattr(module, name, None) for name in settings))
            for module in model.modules()
            if module is not model  # its own settings are those of tiles
        }

    assert kinds(reduced=True) == kinds(reduced=False)


@of_every_model
def test_weights_follow_from_the_seed_and_no_bias_is_zero(entry):
    one, same, other = (build(entry, reduced=True, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    weights = [name for name, _ in build(entry, reduced=True).named_parameters()]
    assert not any(torch.equal(one[name], other[name]) for name in weights)
    biases = [one[name] for name in weights if name.endswith("bias")]
    assert biases
    assert all(bias.all() for bias in biases)


@of_every_model
def test_a_model_on_meta_has_no_values(entry):
    model = build(entry, device="meta", dtype=torch.bfloat16)
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert {tensor.dtype for tensor in model.parameters()} == {torch.bfloat16}
    assert not any(tensor.requires_grad for tensor in tensors)
    assert not model.training


@pytest.mark.parametrize(
    ("name", "layer", "chunks"),
    [("wan2.1", "conv_in", 3), ("cogvideox", "conv_in", 2), ("hunyuanvideo", "conv_in", 2)],
)
def test_a_tiny_clip_has_several_chunks(name, layer, chunks):
    entry = find(name)
    model = build(entry, reduced=True)
    seen = []
    for half in (model.encoder, model.decoder):
        getattr(half, layer).register_forward_hook(lambda *_: seen.append(1))
    encode(model, entry, example_video(entry, entry.tiny))
    assert len(seen) == chunks
    decode(model, entry, example_latent(entry, entry.tiny, reduced=True))
    assert len(seen) == 2 * chunks


TILED = [entry for entry in models() if {"off", "on"} <= set(entry.tilings)]


@pytest.mark.parametrize("entry", TILED, ids=lambda entry: entry.name)
def test_tiling_makes_more_calls_and_the_same_shapes(entry):
    tiled, whole = phases(entry, tiling="on"), phases(entry, tiling="off")
    for phase in entry.phases:
        (result, many), (same, few) = tiled[phase], whole[phase]
        assert result.shape == same.shape
        assert len(many.calls) > len(few.calls)


def test_tiling_off_is_one_clip_where_the_class_would_blend_chunks():
    entry = find("hunyuanvideo")
    default, off = phases(entry), phases(entry, tiling="off")
    assert len(default["decode"][1].calls) == 2 * len(off["decode"][1].calls)


@pytest.mark.parametrize("name", ["svd", "sdxl", "flux"])
def test_encoders_of_images_treat_frames_and_clips_alike(name):
    entry = find(name)
    model = build(entry, reduced=True, dtype=torch.float64)
    frames = entry.tiny.frames
    size = replace(entry.tiny, frames=frames)
    clips = torch.cat(
        [example_video(entry, size, dtype=torch.float64, seed=seed) for seed in (0, 1)]
    )
    together = encode(model, entry, clips)
    for clip in range(2):
        for frame in range(frames):
            one = encode(model, entry, clips[clip : clip + 1, :, frame : frame + 1])
            torch.testing.assert_close(together[clip : clip + 1, :, frame : frame + 1], one)


def test_first_frames_are_repeated_where_the_class_wants_them():
    entry = find("vidtok")
    model = build(entry, reduced=True, dtype=torch.float64)
    video = example_video(entry, entry.tiny, dtype=torch.float64)
    own = model(video, sample_posterior=False, encoder_mode=True)  # as the class's forward pads
    assert torch.equal(encode(model, entry, video), own)
    assert own.shape == example_latent(entry, entry.tiny, reduced=True).shape
    alone = model.encode(video).latent_dist.mode()
    assert alone.shape[2] == own.shape[2] - 1


def test_the_temporal_decoder_mixes_frames_of_a_clip_but_not_clips():
    entry = find("svd")
    model = build(entry, reduced=True, dtype=torch.float64)
    one, two = (
        example_latent(entry, entry.tiny, dtype=torch.float64, seed=seed) for seed in (0, 1)
    )
    together = decode(model, entry, torch.cat([one, two]))
    torch.testing.assert_close(together[:1], decode(model, entry, one))
    torch.testing.assert_close(together[1:], decode(model, entry, two))
    assert not torch.allclose(together[:1, :, :1], decode(model, entry, one[:, :, :1]))


def test_noise_of_a_decoder_repeats_and_leaves_other_random_numbers_alone():
    entry = find("ltx-video-0.9.1")
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    model = build(entry, reduced=True)
    latent = example_latent(entry, entry.tiny, reduced=True)
    assert torch.equal(decode(model, entry, latent), decode(model, entry, latent))
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("name", "tiling"), [("cosmos1.0", "on"), ("allegro", "off"), ("svd", "x")]
)
def test_a_tiling_the_class_cannot_do_is_refused(name, tiling):
    with pytest.raises(UnsupportedError, match=f"tiling='{tiling}' for {name}.*can do default"):
        build(find(name), device="meta", tiling=tiling)


def test_without_diffusers_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(UnsupportedError, match=r"wan2\.1.*pip install 'trnconv\[diffusers\]'"):
        build(find("wan2.1"), device="meta")


def test_a_class_that_diffusers_does_not_have_is_named():
    entry = replace(find("wan2.1"), diffusers_class="AutoencoderKLWan9")
    with pytest.raises(UnsupportedError, match=r"has no AutoencoderKLWan9\. Install a newer one"):
        build(entry, device="meta")


def test_an_attribute_that_the_class_does_not_have_is_refused():
    entry = replace(find("wan2.1"), reduced_attributes={"tile_depth": 1})
    with pytest.raises(UnsupportedError, match="no attribute tile_depth"):
        build(entry, reduced=True, device="meta")


@pytest.mark.parametrize("shape", [(1, 3, 16, 24), (1, 4, 9, 16, 24)])
def test_a_video_of_other_axes_is_refused(shape):
    entry = find("wan2.1")
    with pytest.raises(ShapeError, match=r"a video for wan2\.1 of shape.*3 channels"):
        encode(build(entry, device="meta"), entry, torch.empty(shape, device="meta"))


def test_a_latent_of_other_channels_is_refused():
    entry = find("ltx-2")
    latent = torch.empty(1, 16, 3, 2, 4, device="meta")
    with pytest.raises(ShapeError, match=r"a latent for ltx-2 of shape.*8 or 128 channels"):
        decode(build(entry, device="meta"), entry, latent)


def test_a_phase_that_a_model_does_not_have_is_refused():
    entry = replace(find("sdxl"), phases=("decode",))
    with pytest.raises(UnsupportedError, match="encode of sdxl: it can decode"):
        encode(build(entry, device="meta"), entry, example_video(entry, entry.tiny, device="meta"))
