"""Tiny video autoencoders as TAEHV publishes them, in code of our own: two-dimensional layers.

A block sees a frame and, as more channels, the frame before it. Time is pooled and grown by 1x1
convolutions over neighbouring frames. No weights come with this.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn

LARGEST_LATENT = 3.0  # latents are squashed to +- this
BLOCKS = 3  # of a level


class FrameMemory(nn.Module):
    """A residual block on frames and on the frames before them: `(batch, frames, C, H, W)`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """The first frame has zeros before it."""
        before = F.pad(clips, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
        frames = clips.flatten(0, 1)
        both = torch.cat([frames, before.flatten(0, 1)], 1)
        made: torch.Tensor = F.relu(self.conv(both) + frames)
        return made.reshape(clips.shape)


class FramePool(nn.Module):
    """So many neighbouring frames become one."""

    def __init__(self, width: int, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.conv = nn.Conv2d(frames * width, width, 1, bias=False)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Frames must be a multiple."""
        batch, _, width, *plane = clips.shape
        pooled: torch.Tensor = self.conv(clips.reshape(-1, self.frames * width, *plane))
        return pooled.reshape(batch, -1, width, *plane)


class FrameGrowth(nn.Module):
    """Every frame becomes so many."""

    def __init__(self, width: int, frames: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, frames * width, 1, bias=False)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """In order."""
        batch, _, width, *plane = clips.shape
        grown: torch.Tensor = self.conv(clips.flatten(0, 1))
        return grown.reshape(batch, -1, width, *plane)


class EveryFrame(nn.Sequential):
    """Layers of images, on each frame."""

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """All frames at once."""
        frames = clips.flatten(0, 1)
        for layer in self:
            frames = layer(frames)
        return frames.reshape(*clips.shape[:2], *frames.shape[1:])


class TinyVideoAutoencoder(nn.Module):
    """Videos and latents are `(batch, channels, frames, height, width)`; both halves take clips."""

    def __init__(
        self,
        latent_channels: int,
        patch_size: int,
        encoder_width: int,
        decoder_widths: Sequence[int],
        pooled_frames: Sequence[int],
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.frames_a_latent = int(torch.Size(pooled_frames).numel())
        pixels = 3 * patch_size**2
        self.encoder = _encoder(pixels, encoder_width, pooled_frames, latent_channels)
        self.decoder = _decoder(latent_channels, decoder_widths, pooled_frames[::-1], pixels)

    def encode(self, video: torch.Tensor) -> torch.Tensor:
        """The latent; the last frame is repeated until whole latents come out."""
        clips = video.movedim(2, 1)
        missing = -clips.shape[1] % self.frames_a_latent
        clips = torch.cat([clips, clips[:, -1:].expand(-1, missing, -1, -1, -1)], 1)
        latent: torch.Tensor = self.encoder(F.pixel_unshuffle(clips, self.patch_size))
        return latent.movedim(1, 2)

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        """The video; what the first latent makes before its last frame is left out."""
        squashed = torch.tanh(latent / LARGEST_LATENT) * LARGEST_LATENT
        clips: torch.Tensor = self.decoder(squashed.movedim(2, 1))
        video = F.pixel_shuffle(clips, self.patch_size)[:, self.frames_a_latent - 1 :]
        return video.movedim(1, 2)


def _encoder(pixels: int, width: int, pooled: Sequence[int], channels: int) -> nn.Sequential:
    levels: list[nn.Module] = [EveryFrame(nn.Conv2d(pixels, width, 3, padding=1), nn.ReLU())]
    for frames in pooled:
        halved = nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False)
        blocks = [FrameMemory(width) for _ in range(BLOCKS)]
        levels += [FramePool(width, frames), EveryFrame(halved), *blocks]
    return nn.Sequential(*levels, EveryFrame(nn.Conv2d(width, channels, 3, padding=1)))


def _decoder(
    channels: int, widths: Sequence[int], grown: Sequence[int], pixels: int
) -> nn.Sequential:
    first, *_, last = widths
    levels: list[nn.Module] = [EveryFrame(nn.Conv2d(channels, first, 3, padding=1), nn.ReLU())]
    for width, narrower, frames in zip(widths, widths[1:], grown, strict=False):
        blocks = [FrameMemory(width) for _ in range(BLOCKS)]
        conv = nn.Conv2d(width, narrower, 3, padding=1, bias=False)
        doubled = EveryFrame(nn.Upsample(scale_factor=2))
        levels += [*blocks, doubled, FrameGrowth(width, frames), EveryFrame(conv)]
    return nn.Sequential(*levels, EveryFrame(nn.ReLU(), nn.Conv2d(last, pixels, 3, padding=1)))
