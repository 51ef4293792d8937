"""Decoders of audio at their published widths, in code of our own and with random weights.

HiFi-GAN V1: 80 mel bands, 512 channels, a frame of 256 samples (jik876/hifi-gan, config_v1.json).
DAC at 44.1 kHz: 1,024 channels of codes, 1,536 channels, a frame of 512 samples
(descriptinc/descript-audio-codec, the defaults of its class). Both without weight norms, which are
no work when a decoder runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn

SLOPE = 0.1
VOCODER_STRIDES, VOCODER_TAPS, VOCODER_DILATIONS = (8, 8, 2, 2), (3, 7, 11), (1, 3, 5)
CODEC_STRIDES, CODEC_DILATIONS = (8, 8, 4, 2), (1, 3, 9)
SNAKE_EPSILON = 1e-9


@dataclass(frozen=True)
class AudioDecoder:
    """How it is made, and what it gets."""

    title: str
    make: Callable[[], nn.Module]
    channels: int
    frame: int  # samples of one frame of its input


class DilatedSteps(nn.Module):
    """Residual pairs of convolutions with so many taps, the first of each pair dilated."""

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.ModuleList([_same(width, taps, dilation), _same(width, taps)])
            for dilation in VOCODER_DILATIONS
        )

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        """Of the same length."""
        for pair in self.pairs:
            inner = line
            for conv in pair:
                inner = F.leaky_relu(inner, SLOPE)
                inner = conv(inner)
            line = line + inner
        return line


class SpectrogramDecoder(nn.Module):
    """HiFi-GAN: each level is the mean of blocks with different taps."""

    def __init__(self, bands: int = 80, width: int = 512) -> None:
        super().__init__()
        self.first = nn.Conv1d(bands, width, 7, padding=3)
        self.levels = nn.ModuleList()
        for stride in VOCODER_STRIDES:
            narrow = width // 2
            up = nn.ConvTranspose1d(width, narrow, 2 * stride, stride, padding=stride // 2)
            blocks = nn.ModuleList(DilatedSteps(narrow, taps) for taps in VOCODER_TAPS)
            self.levels.append(nn.ModuleList([up, blocks]))
            width = narrow
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        """Samples between -1 and 1."""
        line = self.first(line)
        for up, blocks in self.levels:
            line = up(F.leaky_relu(line, SLOPE))
            made = [block(line) for block in blocks]
            line = torch.stack(made).sum(0) / len(made)
        return torch.tanh(self.last(F.leaky_relu(line)))


class SineStep(nn.Module):
    """x + sin(a x)^2 / a, with an `a` for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        """Pointwise."""
        return line + torch.sin(self.alpha * line).pow(2) / (self.alpha + SNAKE_EPSILON)


class CodeStep(nn.Module):
    """A residual unit: seven dilated taps, then one."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            SineStep(width), _same(width, 7, dilation), SineStep(width), nn.Conv1d(width, width, 1)
        )

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        """Of the same length."""
        made: torch.Tensor = line + self.layers(line)
        return made


class CodeDecoder(nn.Sequential):
    """DAC: from codes' channels to samples."""

    def __init__(self, codes: int = 1024, width: int = 1536) -> None:
        layers: list[nn.Module] = [nn.Conv1d(codes, width, 7, padding=3)]
        for stride in CODEC_STRIDES:
            narrow = width // 2
            up = nn.ConvTranspose1d(width, narrow, 2 * stride, stride, padding=(stride + 1) // 2)
            steps = [CodeStep(narrow, dilation) for dilation in CODEC_DILATIONS]
            layers += [SineStep(width), up, *steps]
            width = narrow
        super().__init__(*layers, SineStep(width), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())


DECODERS = {
    "hifi-gan": AudioDecoder("HiFi-GAN V1, 512 channels, leaky ReLU", SpectrogramDecoder, 80, 256),
    "dac": AudioDecoder("DAC 44.1 kHz, 1,536 channels, snake", CodeDecoder, 1024, 512),
}


def _same(width: int, taps: int, dilation: int = 1) -> nn.Conv1d:
    """A convolution that keeps width and length."""
    return nn.Conv1d(width, width, taps, padding=dilation * (taps - 1) // 2, dilation=dilation)
