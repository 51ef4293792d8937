"""Classes of diffusers that cut large inputs for cuDNN's sake: a patched one does not."""

import sys
from functools import partial
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch import patched
from trnconv.pytorch.estimate import run_on_meta

pytestmark = pytest.mark.diffusers

CLASSES = {
    "CogVideoXSafeConv3d": "autoencoder_kl_cogvideox",
    "KVAESafeConv3d": "autoencoder_kl_kvae_video",
    "Kandinsky6SRSafeConv3d": "autoencoder_kandinsky6_sr",
}
LARGE = (1, 32, 24, 1080, 2560)  # 2.1 billion elements: more than each of them takes at once


def splitter(name, *args, **options):
    module = import_module(f"diffusers.models.autoencoders.{CLASSES[name]}")
    return getattr(module, name)(*args, **options)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kernel", [1, 3])
def test_large_inputs_are_one_convolution_and_no_copy(name, kernel):
    with torch.device("meta"):
        conv = splitter(name, 32, 8, kernel, dtype=torch.bfloat16)
        x = torch.empty(LARGE, dtype=torch.bfloat16)
    run = run_on_meta(torch.nn.Sequential(conv), lambda model: model(x))
    assert [(work.shape.size, calls) for work, calls in run.report.stats.works.items()] == [
        (LARGE[2:], 1)
    ]
    assert run.report.copied() == {}


def test_one_whose_forward_is_wrapped_cuts_as_it_likes():
    with torch.device("meta"):
        conv = splitter("KVAESafeConv3d", 32, 8, 1, dtype=torch.bfloat16)
        x = torch.empty(LARGE, dtype=torch.bfloat16)
    original = conv.forward
    conv.forward = partial(original)
    run = run_on_meta(torch.nn.Sequential(conv), lambda model: model(x))
    assert run.report.copied()["cache"] >= 2 * x.nbytes


@pytest.mark.parametrize(("stride", "calls"), [(1, 1), (2, 2)])
def test_a_cut_that_may_shift_frames_stays_a_cut(stride, calls, monkeypatch):
    conv = splitter("Kandinsky6SRSafeConv3d", 4, 6, 3, stride=(stride, 1, 1))
    conv.requires_grad_(requires_grad=False)
    five_frames = 5 * 4 * 6 * 7  # then four: a stride of 2 begins anew at an odd frame
    monkeypatch.setattr(sys.modules[type(conv).__module__], "CONV_CHUNK_ELEMENTS", five_frames)
    x = torch.randn(1, 4, 9, 6, 7, generator=torch.Generator().manual_seed(1))
    model = torch.nn.Sequential(conv)
    expected = model(x)
    with patched(model) as report:
        torch.testing.assert_close(model(x), expected)
    assert report.stats.calls == calls


def test_kvaes_puts_its_result_where_it_is_asked_to():
    conv = splitter("KVAESafeConv3d", 4, 6, 3).requires_grad_(requires_grad=False)
    x = torch.randn(1, 4, 5, 6, 7, generator=torch.Generator().manual_seed(1))
    expected = conv(x)
    with patched(conv):
        out = torch.empty(expected.shape)
        given_back = conv(x, write_to=out)
    assert given_back is out
    torch.testing.assert_close(out, expected)
