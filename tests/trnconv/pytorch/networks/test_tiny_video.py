"""Tiny video autoencoders: frames in, latents out, and what a frame may depend on."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch.networks.tiny_video import FrameMemory, TinyVideoAutoencoder

pytestmark = pytest.mark.torch


def tiny(**changed):
    torch.manual_seed(0)
    options = {
        "latent_channels": 4,
        "patch_size": 2,
        "encoder_width": 8,
        "decoder_widths": (8, 8, 8, 8),
        "pooled_frames": (2, 2, 1),
        **changed,
    }
    return TinyVideoAutoencoder(**options).double().requires_grad_(requires_grad=False)


@pytest.mark.parametrize(
    ("pooled", "patch", "frames", "latent"),
    [
        ((2, 2, 1), 1, 9, (4, 3, 4, 6)),
        ((2, 2, 1), 2, 9, (4, 3, 2, 3)),
        ((2, 2, 2), 2, 9, (4, 2, 2, 3)),
    ],
)
def test_shapes(pooled, patch, frames, latent):
    model = tiny(pooled_frames=pooled, patch_size=patch)
    found = model.encode(torch.randn(2, 3, frames, 32, 48, dtype=torch.double))
    assert found.shape == (2, *latent)
    assert model.decode(found).shape == (2, 3, frames, 32, 48)


def test_a_block_sees_its_frame_and_the_one_before():
    block = FrameMemory(4).double().requires_grad_(requires_grad=False)
    clips = torch.randn(1, 5, 4, 6, 6, dtype=torch.double)
    other = clips.clone()
    other[:, 2] += 1
    differ = [not torch.equal(a, b) for a, b in zip(block(clips)[0], block(other)[0], strict=True)]
    assert differ == [False, False, True, True, False]


def test_the_frame_before_the_first_is_zeros():
    block = FrameMemory(4).double().requires_grad_(requires_grad=False)
    clips = torch.randn(1, 2, 4, 6, 6, dtype=torch.double)
    clips[:, 0] = 0
    alone = block(clips[:, 1:])
    assert torch.allclose(block(clips)[:, 1:], alone)


def test_a_shorter_clip_makes_the_first_frames_of_a_longer_one():
    model = tiny()
    latent = torch.randn(1, 4, 5, 2, 3, dtype=torch.double)
    whole, part = model.decode(latent), model.decode(latent[:, :, :3])
    assert torch.allclose(whole[:, :, : part.shape[2]], part)
    video = torch.randn(1, 3, 16, 32, 48, dtype=torch.double)
    assert torch.allclose(model.encode(video)[:, :, :2], model.encode(video[:, :, :8]))


def test_latents_are_squashed():
    model = tiny()
    large = torch.full((1, 4, 1, 2, 3), 1e6, dtype=torch.double)
    assert torch.allclose(model.decode(large), model.decode(2 * large))
