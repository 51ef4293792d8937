"""A small causal video autoencoder of our own, in integers: what is compared can be equal.

It has what large ones are made of: convolutions that look back in time and keep frames for the
next chunk, residual blocks, strides with padding on one side, nearest upsampling. Activations are
clamped, so that sums of small integers stay exact in float32: at most 216 products of 4 and 1, and
a residual.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

_WIDTH: Final = 8
_LATENT: Final = 4
_MOST: Final = 4.0  # of what goes into a convolution
_BACK: Final = 2  # frames that a convolution of three looks back

Cache = dict[nn.Module, Tensor]  # the last frames that each convolution has seen


class CausalConv(nn.Conv3d):
    """3 x 3 x 3: zeros, or frames of the chunk before, come in front of the first frame."""

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__(ins, outs, 3)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """With a cache, it is read and replaced."""
        before = None if cache is None else cache.get(self)
        front = _BACK
        if before is not None:
            x, front = torch.cat([before, x], dim=2), 0
        if cache is not None:
            kept = nn.functional.pad(x, (0, 0, 0, 0, front, 0))
            cache[self] = kept[:, :, -_BACK:].clone()
        return super().forward(nn.functional.pad(x, (1, 1, 1, 1, front, 0)))


class CausalBlock(nn.Module):
    """Two convolutions and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = CausalConv(_WIDTH, _WIDTH), CausalConv(_WIDTH, _WIDTH)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Of the size of x."""
        y = torch.relu(self.first(_clamped(x), cache))
        added: Tensor = self.second(_clamped(y), cache)
        return x + added


class CausalEncoder(nn.Module):
    """[N, 3, T, H, W] -> [N, 4, T, H / 2, W / 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in, self.block = CausalConv(3, _WIDTH), CausalBlock()
        self.down = nn.Conv3d(_WIDTH, _WIDTH, (1, 3, 3), stride=(1, 2, 2))
        self.conv_out = nn.Conv3d(_WIDTH, _LATENT, 1)

    def forward(self, x: Tensor) -> Tensor:
        """All frames at once."""
        y = self.block(self.conv_in(x))
        y = self.down(nn.functional.pad(_clamped(y), (0, 1, 0, 1)))
        return _clamped(self.conv_out(_clamped(y)))


class CausalDecoder(nn.Module):
    """[N, 4, T, H, W] -> [N, 3, T, 2 H, 2 W]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in, self.block = CausalConv(_LATENT, _WIDTH), CausalBlock()
        self.up = nn.Conv3d(_WIDTH, _WIDTH, (1, 3, 3), padding=(0, 1, 1))
        self.conv_out = CausalConv(_WIDTH, 3)

    def forward(self, z: Tensor, cache: Cache | None = None) -> Tensor:
        """A chunk, if there is a cache; else all frames."""
        y = _clamped(self.block(self.conv_in(z, cache), cache))
        y = y.repeat_interleave(2, dim=3).repeat_interleave(2, dim=4)
        video: Tensor = self.conv_out(_clamped(self.up(y)), cache)
        return video


class CausalVae(nn.Module):
    """Encodes a video at once, and decodes it in chunks."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.encoder, self.decoder = CausalEncoder(), CausalDecoder()
        drawn = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            values = torch.randint(-1, 2, parameter.shape, generator=drawn)
            parameter.data = values.to(parameter.dtype)
            parameter.requires_grad = False

    def encode(self, x: Tensor) -> Tensor:
        """The latent."""
        latent: Tensor = self.encoder(x)
        return latent

    def decode(self, z: Tensor) -> Tensor:
        """The first frame, then the rest, as streams do."""
        cache: Cache = {}
        chunks = [self.decoder(chunk, cache) for chunk in (z[:, :, :1], z[:, :, 1:])]
        return torch.cat(chunks, dim=2)

    def forward(self, x: Tensor) -> Tensor:
        """There and back."""
        return self.decode(self.encode(x))


def _clamped(x: Tensor) -> Tensor:
    return x.clamp(-_MOST, _MOST)
