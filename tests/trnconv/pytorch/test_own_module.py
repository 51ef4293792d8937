"""Modules of strangers: built on the meta device, traced, and refused in words."""

import json

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, width=8):\n"
        "        super().__init__()\n"
        "        self.a = torch.nn.Conv3d(3, width, 3, padding=1)\n"
        "        self.b = torch.nn.Conv3d(width, 3, 3, padding=1)\n"
        "    def forward(self, x):\n"
        "        return self.b(torch.nn.functional.silu(self.a(x)))\n"
        "    def decode(self, x):\n"
        "        return self.b(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from trnconv.pytorch import own_module

    return own_module


def test_forward_is_traced_with_its_convolutions(own):
    net = own.of_class("stranger:Net", {"width": 24})
    seen = own.trace_own("stranger:Net", net, (2, 3, 5, 8, 16), "forward", "bfloat16")
    assert (seen.frames, seen.height, seen.width, seen.calls) == (5, 8, 16, 2)
    first, second = (work.shape for work, _ in seen.works)
    assert (first.batch, first.c_in, first.c_out, second.c_out) == (2, 3, 24, 3)
    assert seen.weight_bytes == 2 * (2 * 3 * 24 * 27 + 24 + 3)


def test_a_phase_is_a_method(own):
    net = own.of_class("stranger:Net", {"width": 24})
    seen = own.trace_own("stranger:Net", net, (1, 24, 5, 8, 16), "decode", "float32")
    assert [work.dtype for work, _ in seen.works] == ["float32"]
    with pytest.raises(Exception, match="no method of that name"):
        own.trace_own("stranger:Net", net, (1, 24, 5, 8, 16), "encode", "float32")


@pytest.mark.parametrize(
    ("path", "config", "words"),
    [
        ("stranger", {}, "package.module:Class"),
        ("stranger:Nope", {}, "Nope"),
        ("no.such:Net", {}, "no"),
        ("json:JSONDecoder", {}, "no torch.nn.Module"),
        ("stranger:Net", {"depth": 3}, "depth"),
    ],
)
def test_what_cannot_be_built_is_said(own, path, config, words):
    from trnconv.errors import TrnconvError

    with pytest.raises(TrnconvError, match=words):
        own.of_class(path, config)


def test_an_input_that_does_not_fit_is_said(own):
    from trnconv.errors import UnsupportedError

    net = own.of_class("stranger:Net", {})
    with pytest.raises(UnsupportedError, match="with an input of 1x4x5x8x16"):
        own.trace_own("stranger:Net", net, (1, 4, 5, 8, 16), "forward", "bfloat16")


def test_a_folder_needs_its_configuration(own, tmp_path):
    from trnconv.errors import TrnconvError

    with pytest.raises(TrnconvError, match=r"no config\.json"):
        own.of_folder(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(TrnconvError, match="JSON object"):
        own.of_folder(tmp_path)


@pytest.mark.diffusers
def test_a_folder_of_diffusers_is_built_from_its_class(own, tmp_path):
    config = {
        "_class_name": "AutoencoderKLWan",
        "base_dim": 8,
        "z_dim": 4,
        "num_res_blocks": 1,
        "latents_mean": [0.0] * 4,
        "latents_std": [1.0] * 4,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    net = own.of_folder(tmp_path)
    seen = own.trace_own("wan", net, (1, 4, 2, 8, 8), "decode", "bfloat16")
    assert seen.calls > 20
