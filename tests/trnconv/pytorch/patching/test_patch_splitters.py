"""Classes of diffusers that cut large inputs for cuDNN's sake: a patched one does not."""

from functools import partial
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch import patched
from trnconv.pytorch.estimate import observe

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
    run = observe(conv, lambda model: model(x))
    assert [(work.shape.size, calls) for work, calls in run.report.book.works.items()] == [
        (LARGE[2:], 1)
    ]
    assert run.report.copied() == {}


@pytest.mark.parametrize("name", CLASSES)
def test_one_whose_forward_is_wrapped_cuts_as_it_likes(name):
    with torch.device("meta"):
        conv = splitter(name, 32, 8, 1, dtype=torch.bfloat16)
        x = torch.empty(LARGE, dtype=torch.bfloat16)
    own = conv.forward
    conv.forward = partial(own)
    run = observe(conv, lambda model: model(x))
    assert sum(run.report.book.works.values()) > 1


def test_kvaes_puts_its_result_where_it_is_asked_to():
    conv = splitter("KVAESafeConv3d", 4, 6, 3).requires_grad_(requires_grad=False)
    x = torch.randn(1, 4, 5, 6, 7, generator=torch.Generator().manual_seed(1))
    expected = conv(x)
    with patched(conv):
        out = torch.empty(expected.shape)
        given_back = conv(x, write_to=out)
    assert given_back is out
    torch.testing.assert_close(out, expected)
