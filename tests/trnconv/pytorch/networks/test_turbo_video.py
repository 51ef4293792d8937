"""Turbo-VAED's decoder: latents in, frames out, as the published one makes them."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch.networks.turbo_video import (
    ChannelRMS,
    FrameEdges,
    FramesThenPixels,
    TurboVideoDecoder,
)

pytestmark = pytest.mark.torch


def turbo(**changed):
    torch.manual_seed(0)
    options = {
        "latent_channels": 4,
        "patch_size": 1,
        "widths": (16, 8, 8, 8),
        "blocks": (1, 1, 1, 1, 1),
        "frame_strides": (1, 2, 2, 1),
        "drops_first": True,
        **changed,
    }
    return TurboVideoDecoder(**options).double().requires_grad_(requires_grad=False)


@pytest.mark.parametrize(
    ("changed", "frames", "side"),
    [
        ({}, 9, 8),
        ({"frame_strides": (1, 2, 2, 2)}, 17, 8),
        ({"drops_first": False}, 12, 8),
        ({"patch_size": 4, "widths": (16, 8, 8, 32)}, 9, 32),
    ],
)
def test_shapes(changed, frames, side):
    latent = torch.randn(2, 4, 3, 2, 3, dtype=torch.double)
    assert turbo(**changed).decode(latent).shape == (2, 3, frames, 2 * side, 3 * side)


def test_depthwise_before_the_first_upsampling_and_whole_ones_after_it():
    convolutions = [module for module in turbo().modules() if isinstance(module, torch.nn.Conv3d)]
    depthwise = [module for module in convolutions if module.groups > 1]
    assert {(module.groups, module.kernel_size) for module in depthwise} == {(16, (5, 5, 5))}
    assert len(depthwise) == 4  # of two blocks
    whole = [module for module in convolutions if module.groups == 1]
    assert {module.kernel_size for module in whole} == {(1, 1, 1), (3, 3, 3)}


def test_time_is_padded_with_copies_of_the_first_and_last_frame():
    torch.manual_seed(0)
    layer = FrameEdges(2, 2, 3).double().requires_grad_(requires_grad=False)
    video = torch.randn(1, 2, 4, 5, 6, dtype=torch.double)
    longer = torch.cat([video[:, :, :1], video, video[:, :, -1:]], 2)
    assert torch.equal(layer(video), layer.conv(longer))


def test_channels_become_frames_and_then_pixels():
    torch.manual_seed(0)
    layer = FramesThenPixels(1, (2, 2), drops_first=True).double()
    layer.requires_grad_(requires_grad=False)
    video = torch.randn(1, 1, 2, 3, 4, dtype=torch.double)
    spread, made = layer.conv(video)[0], layer(video)[0, 0]
    assert made.shape == (3, 6, 8)
    for frame in range(3):
        source, part = divmod(frame + 1, 2)
        for row, column in ((0, 0), (3, 2), (5, 7)):
            corner = 2 * (row % 2) + column % 2
            # of channels that are read as (corner, part of a frame), the published order
            channel = 2 * corner + part
            found = made[frame, row, column]
            assert found == spread[channel, source, row // 2, column // 2]


def test_a_norm_makes_the_mean_square_of_channels_one():
    video = torch.randn(1, 16, 2, 3, 4)
    squares = ChannelRMS()(video).square().mean(1)
    assert torch.allclose(squares, torch.ones_like(squares), atol=1e-5)


def test_frames_at_the_end_do_not_reach_those_far_before():
    model = turbo()
    latent = torch.randn(1, 4, 40, 1, 1, dtype=torch.double)
    other = latent.clone()
    other[:, :, -1] += 1
    same = (model.decode(latent) == model.decode(other)).flatten(3).all(3)[0].all(0)
    assert same[:40].all()
    assert not same[-1]
