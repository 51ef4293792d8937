"""The autoencoder of stage 3: chunks give what all frames at once give, in exact integers."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch import patched
from trnconv.pytorch.networks.causal_vae import CausalVae

pytestmark = pytest.mark.torch


def video():
    drawn = torch.randint(-2, 3, (1, 3, 3, 8, 12), generator=torch.Generator().manual_seed(0))
    return drawn.float()


def test_chunks_and_precision_change_nothing():
    model, x = CausalVae(), video()
    with torch.no_grad():
        z = model.encode(x)
        whole = model.decoder(z)
        assert torch.equal(model.decode(z), whole)
        assert torch.equal(model.double()(x.double()), whole.double())
    assert whole.shape == x.shape
    assert whole.std() > 1


def test_patched_it_is_the_same_and_every_convolution_is_taken():
    model, x = CausalVae(), video()
    with torch.no_grad():
        expected = model(x)
        with patched(model, backend="nkisim") as report:
            assert torch.equal(model(x), expected)
    assert str(report).startswith("10 convolutions patched, 0 left to torch")
