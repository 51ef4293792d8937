"""The registry: complete, consistent, and in agreement with the catalogue's names."""

import pytest

from trnconv.catalogue import calls
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.models import FrameRule, LatentSize, Size, find, latent_size, models

NAMES = """wan2.1 wan2.2-5b cogvideox cogvideox1.5 hunyuanvideo hunyuanvideo1.5 ltx-video-0.9.0
ltx-video-0.9.1 ltx-video-0.9.7 ltx-2 ltx-2.3 mochi cosmos1.0 qwen-image allegro svd sdxl
flux lightvae-wan2.1 lightvae-wan2.2 kvae-video kvae-image kandinsky6-sr easyanimate5
hunyuanimage2.1 hunyuanimage-refiner flux2 flux2-small-decoder qwen-image-2.1 sana-dc-ae
dc-ae-f64c128 taesd taef1 taew2.1 taew2.2 taehv1.5 taeltx2 turbo-vaed-hunyuan turbo-vaed-ltx
turbo-vaed-dc vidtok""".split()


def of_every_model(function):
    return pytest.mark.parametrize("entry", models(), ids=lambda entry: entry.name)(function)


def test_these_models_are_known_and_found_by_name():
    assert [entry.name for entry in models()] == NAMES
    assert all(find(entry.name) is entry for entry in models())


def test_models_that_run_on_another_ones_autoencoder_are_found_by_their_names():
    assert find("wan2.2-a14b") is find("helios") is find("wan2.1")
    assert find("cosmos3") is find("wan2.2-5b")
    aliases = [alias for entry in models() for alias in entry.aliases]
    assert not set(aliases) & set(NAMES)
    assert len(set(aliases)) == len(aliases)
    assert all(known for entry in models() for known in entry.aliases.values())


def test_an_unknown_name_is_answered_with_all_known_ones():
    with pytest.raises(UnsupportedError, match=r"'wan3'.*wan2\.1, wan2\.2-5b.*vidtok\."):
        find("wan3")


@of_every_model
def test_an_entry_has_one_production_size_and_a_tiny_one(entry):
    assert [size for size in entry.sizes if size.production] == [entry.production]
    assert entry.tiny.name == "tiny"
    assert len({size.name for size in entry.sizes}) == len(entry.sizes)
    assert entry.tiny.height != entry.tiny.width  # so that a swap is noticed


@of_every_model
def test_the_model_takes_each_of_its_sizes(entry):
    for size in entry.sizes:
        latent = latent_size(entry, size)
        time, high, wide = entry.compression
        assert (latent.height * high, latent.width * wide) == (size.height, size.width)
        assert (latent.frames - 1) * time < size.frames <= latent.frames * time


@of_every_model
def test_words_are_from_the_vocabulary(entry):
    assert entry.in_time in {"cached", "blended", "whole", "none"}
    assert entry.tilings[0] == "default"
    assert set(entry.tilings) <= {"default", "off", "on"}
    assert set(entry.phases) <= {"encode", "decode"}
    assert entry.calling.input in {"video", "frames"}
    assert entry.calling.decode_argument in {"none", "timestep", "num_frames"}
    assert entry.calling.decoded in {"video", "frames", "frames_before_channels"}
    assert (entry.in_time == "none") == (str(entry.frames) == "image")
    assert entry.calling.encoded in {"latent_dist", "latent", "latents", "tensor"}
    assert bool(entry.diffusers_class) != bool(entry.own_class)
    assert entry.source
    assert entry.notes


@of_every_model
def test_the_configuration_states_the_latent_channels(entry):
    for config, channels in (
        (entry.config, entry.latent_channels),
        (entry.reduced_config, entry.reduced_latent_channels),
    ):
        [stated] = {
            config[name] for name in ("latent_channels", "z_dim", "z_channels") if name in config
        }
        assert stated == channels


@of_every_model
def test_the_reduced_configuration_has_the_same_settings_and_narrower_values(entry):
    assert set(entry.reduced_config) == set(entry.config)
    assert dict(entry.reduced_config) != dict(entry.config)
    for name, value in entry.reduced_config.items():
        if "channels" in name or name == "base_dim":
            assert _largest(value) <= _largest(entry.config[name])


def _largest(value):
    return max(value) if isinstance(value, tuple) else value


@of_every_model
def test_captures_name_a_size_a_tiling_and_scenarios_of_the_catalogue(entry):
    captured = {(call.scenario, call.phase) for call in calls() if call.model == entry.catalogue}
    for capture in entry.captures:
        assert entry.size(capture.size)
        assert capture.tiling in entry.tilings
        assert {(capture.scenario, phase) for phase in capture.phases} <= captured
    production = entry.production.name
    assert bool(entry.captures) == bool(entry.catalogue)
    assert not captured or any(capture.size == production for capture in entry.captures)


@of_every_model
def test_an_entry_cannot_be_changed(entry):
    with pytest.raises(TypeError):
        entry.config["in_channels"] = 4
    with pytest.raises(AttributeError):
        entry.name = "other"


@pytest.mark.parametrize(
    ("name", "size", "latent"),
    [
        ("wan2.1", "720p81", (16, 21, 90, 160)),
        ("wan2.2-5b", "704p121", (48, 31, 44, 80)),
        ("cogvideox", "480p49", (16, 13, 60, 90)),
        ("hunyuanvideo", "720p129", (16, 33, 90, 160)),
        ("ltx-2", "1088x1920x121", (128, 16, 34, 60)),
        ("mochi", "480p163", (12, 28, 60, 106)),
        ("allegro", "720p88", (4, 22, 90, 160)),
        ("svd", "576p25", (4, 25, 72, 128)),
        ("flux", "1024x1024", (16, 1, 128, 128)),
    ],
)
def test_latents_of_known_sizes(name, size, latent):
    entry = find(name)
    assert latent_size(entry, entry.size(size)) == LatentSize(*latent)


def test_a_reduced_model_may_have_fewer_latent_channels():
    entry = find("ltx-2")
    assert latent_size(entry, entry.tiny, reduced=True) == LatentSize(8, 3, 2, 4)
    assert latent_size(entry, entry.tiny) == LatentSize(128, 3, 2, 4)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (Size("s", 80, 480, 832), r"80 frames for wan2\.1: it takes 4n\+1 frames"),
        (Size("s", 0, 480, 832), r"0 frames"),
        (Size("s", 81, 484, 832), r"484 x 832 pixels.*multiple of 8 pixels"),
        (Size("s", 81, 480, 836), r"480 x 836 pixels.*multiple of 8 pixels"),
        (Size("s", 81, 0, 832), r"0 x 832 pixels"),
    ],
)
def test_a_size_the_model_cannot_take_is_refused(size, message):
    with pytest.raises(ShapeError, match=message):
        latent_size(find("wan2.1"), size)


def test_an_unknown_size_is_answered_with_the_named_ones():
    with pytest.raises(ShapeError, match=r"size '8k' of sdxl: named are 1024x1024, tiny"):
        find("sdxl").size("8k")


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("4n+1", (1, 5, 81), (0, 2, 4, 80)),
        ("8n+1", (1, 9, 121), (0, 5, 8)),
        ("4n", (4, 88), (0, 1, 5)),
        ("any", (1, 2, 25), (0, -1)),
        ("image", (1,), (0, 2, 5)),
    ],
)
def test_frame_rules(text, allowed, refused):
    rule = FrameRule.parse(text)
    assert str(rule) == text
    assert all(rule.allows(frames) for frames in allowed)
    assert not any(rule.allows(frames) for frames in refused)


def test_a_frame_rule_that_cannot_be_read_is_refused():
    with pytest.raises(ShapeError, match=r"'n\+1': write 4n\+1"):
        FrameRule.parse("n+1")
