"""Turbo-VAED's decoder as its authors publish it, in code of our own; they train no encoder.

Wide levels of depthwise separable convolutions, narrow ones of whole convolutions, and upsampling
that makes frames, rows and columns of channels: first frames, then 2x2 pixels, image by image. Time
is padded with copies of the first and the last frame. No weights come with this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn

EPSILON = 1e-8  # of norms over channels; the shortcut's has its own
SHORTCUT_EPSILON = 1e-6
SEPARABLE_KERNEL = 5
Activation = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Level:
    """A level of the decoder: blocks of a width, after an upsampling or none."""

    width: int
    blocks: int
    strides: tuple[int, int]  # of frames, and of rows and columns; (1, 1): it has no upsampling
    separable: bool
    drops_first: bool  # of upsampled frames, all but the last of the first latent

    @property
    def is_upsampled(self) -> bool:
        """Whether it makes more frames or pixels."""
        return self.strides != (1, 1)


class FrameEdges(nn.Module):
    """A convolution of as many frames as it is given: copies of the first and last around them."""

    def __init__(self, given: int, made: int, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.copies = kernel // 2
        sides = (0, kernel // 2, kernel // 2)
        self.conv = nn.Conv3d(given, made, kernel, padding=sides, groups=groups)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        """Rows and columns are padded with zeros."""
        if self.copies:
            first, last = (
                edge.repeat(1, 1, self.copies, 1, 1) for edge in (video[:, :, :1], video[:, :, -1:])
            )
            video = torch.cat([first, video, last], 2)
        made: torch.Tensor = self.conv(video)
        return made


class ChannelRMS(nn.Module):
    """Every position's channels over their root mean square, computed in float32."""

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        """No parameters."""
        rows = video.permute(0, 2, 3, 4, 1)
        squares = rows.to(torch.float32).pow(2).mean(-1, keepdim=True)
        normed = (rows * torch.rsqrt(squares + EPSILON)).to(video.dtype)
        return normed.permute(0, 4, 1, 2, 3)


class WidthShortcut(nn.Module):
    """To another width: a layer norm over channels and a pointwise convolution."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(given, eps=SHORTCUT_EPSILON)
        self.conv = FrameEdges(given, made, 1)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        """Beside a block."""
        rows = self.norm(video.permute(0, 2, 3, 4, 1))
        made: torch.Tensor = self.conv(rows.permute(0, 4, 1, 2, 3))
        return made


class VideoBlock(nn.Module):
    """A residual block of two convolutions, each after a norm and an activation."""

    def __init__(self, given: int, made: int, *, separable: bool, first: Activation) -> None:
        super().__init__()
        self.first = first
        self.norm1, self.conv1 = ChannelRMS(), _convolution(given, made, separable=separable)
        self.norm2, self.conv2 = ChannelRMS(), _convolution(made, made, separable=separable)
        self.shortcut = nn.Identity() if given == made else WidthShortcut(given, made)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        """Of the same frames, rows and columns."""
        inner = self.conv1(self.first(self.norm1(video)))
        made: torch.Tensor = self.conv2(F.silu(self.norm2(inner))) + self.shortcut(video)
        return made


class FramesThenPixels(nn.Module):
    """A convolution to more channels, which become frames, and then pixels of each image."""

    def __init__(self, width: int, strides: tuple[int, int], *, drops_first: bool) -> None:
        super().__init__()
        self.frames, self.side = strides
        self.dropped = self.frames - 1 if drops_first else 0
        self.conv = FrameEdges(width, width * self.frames * self.side**2, 3)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        """Of the same width."""
        batch, _, frames, *plane = video.shape
        spread = self.conv(video).reshape(batch, -1, self.frames, frames, *plane)
        longer = spread.permute(0, 1, 3, 2, 4, 5).reshape(batch, -1, frames * self.frames, *plane)
        made = _shuffled(longer, self.side)
        return made[:, :, self.dropped :]


class ImagePixels(nn.Module):
    """A norm, SiLU, a convolution of images, and a quarter of its channels at twice the side."""

    def __init__(self, width: int, *, one_by_one: bool) -> None:
        super().__init__()
        self.norm, self.one_by_one = ChannelRMS(), one_by_one
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        """One call a frame, or one for all of them, as published."""
        active = F.silu(self.norm(video))
        if self.one_by_one:
            images = [F.pixel_shuffle(self.conv(image), 2) for image in active.unbind(2)]
            return torch.stack(images, 2)
        frames = self.conv(active.permute(0, 2, 1, 3, 4).flatten(0, 1))
        return _as_videos(F.pixel_shuffle(frames, 2), video.shape[0])


class TurboDecoder(nn.Module):
    """From latents to pixels."""

    def __init__(self, latent_channels: int, levels: Sequence[Level], patch_size: int) -> None:
        super().__init__()
        width = levels[0].width
        layers: list[nn.Module] = [FrameEdges(latent_channels, width, 3)]
        for level in levels:
            layers += _level(width, level)
            width = level.width
        for at in range(patch_size.bit_length() - 1):
            layers.append(ImagePixels(width, one_by_one=at == 0))
            width //= 4
        self.layers = nn.Sequential(*layers)
        self.conv_out = FrameEdges(width, 3, 3)
        self.norm_out = ChannelRMS()

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        """All frames at once."""
        made: torch.Tensor = self.conv_out(F.silu(self.norm_out(self.layers(latent))))
        return made


class TurboVideoDecoder(nn.Module):
    """Latents and videos are `(batch, channels, frames, height, width)`; it decodes only.

    Levels are listed from the latent on: the first has no upsampling, and blocks are counted with
    those before the first level, which have its width. The first two lots are separable.
    """

    def __init__(
        self,
        latent_channels: int,
        patch_size: int,
        widths: Sequence[int],
        blocks: Sequence[int],
        frame_strides: Sequence[int],
        *,
        drops_first: bool,
    ) -> None:
        super().__init__()
        middle = Level(widths[0], blocks[0], (1, 1), separable=True, drops_first=False)
        levels = [
            Level(width, count, (stride, 2) if at else (1, 1), at == 0, drops_first)
            for at, (width, count, stride) in enumerate(
                zip(widths, blocks[1:], frame_strides, strict=True)
            )
        ]
        self.decoder = TurboDecoder(latent_channels, [middle, *levels], patch_size)

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        """The video."""
        made: torch.Tensor = self.decoder(latent)
        return made


def _convolution(given: int, made: int, *, separable: bool) -> nn.Module:
    if not separable:
        return FrameEdges(given, made, 3)
    depthwise = FrameEdges(given, given, SEPARABLE_KERNEL, groups=given)
    return nn.Sequential(depthwise, nn.Conv3d(given, made, 1))


def _level(given: int, level: Level) -> list[nn.Module]:
    """Its layers, from another width."""
    layers: list[nn.Module] = []
    if given != level.width:
        layers.append(VideoBlock(given, level.width, separable=level.separable, first=F.silu))
    if level.is_upsampled:
        layers.append(FramesThenPixels(level.width, level.strides, drops_first=level.drops_first))
    first = F.relu if level.is_upsampled else F.silu
    layers += [
        VideoBlock(level.width, level.width, separable=level.separable, first=first)
        for _ in range(level.blocks)
    ]
    return layers


def _shuffled(video: torch.Tensor, side: int) -> torch.Tensor:
    """Pixels from channels, image by image."""
    images = video.permute(0, 2, 1, 3, 4).flatten(0, 1)
    return _as_videos(F.pixel_shuffle(images, side), video.shape[0])


def _as_videos(images: torch.Tensor, batch: int) -> torch.Tensor:
    return images.reshape(batch, -1, *images.shape[1:]).permute(0, 2, 1, 3, 4)
