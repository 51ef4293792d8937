"""A VAE of our own with one of everything that couples rows: for gradients over several ranks."""

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(2, width)
        self.to_qkv = nn.Conv2d(width, 3 * width, 1)

    def forward(self, x):
        n, c, t, h, w = x.shape
        images = self.norm(x).permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w)
        q, k, v = self.to_qkv(images).flatten(2).transpose(1, 2).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c, h, w)
        return x + mixed.permute(0, 2, 1, 3, 4)


class Block(nn.Module):
    """Norm, activation, a convolution padded by replication, and a residual."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(2, width)
        self.conv = nn.Conv3d(width, width, 3)

    def forward(self, x):
        padded = F.pad(F.silu(self.norm(x)), (1, 1, 1, 1, 2, 0), mode="replicate")
        return x + self.conv(padded)


class SmallVae(nn.Module):
    """Down by a stride of 2, attention, up by nearest neighbours."""

    def __init__(self, width=4):
        super().__init__()
        self.conv_in = nn.Conv3d(3, width, 3, padding=1)
        self.block = Block(width)
        self.down = nn.Conv3d(width, width, (1, 3, 3), stride=(1, 2, 2))
        self.attention = Attention(width)
        self.reflecting = nn.Conv3d(width, width, 3, padding=1, padding_mode="reflect")
        self.up = nn.Conv3d(width, width, 3, padding=1)
        self.conv_out = nn.Conv3d(width, 3, (1, 5, 5), padding=(0, 2, 2))

    def forward(self, x):
        x = self.block(self.conv_in(x))
        x = self.attention(self.down(F.pad(x, (0, 1, 0, 1))))
        x = F.interpolate(self.reflecting(x), scale_factor=(1.0, 2.0, 2.0), mode="nearest")
        return self.conv_out(torch.tanh(self.up(x)))


def built(seed=0):
    torch.manual_seed(seed)
    return SmallVae()


def clip(height=16, width=12):
    return torch.randn(1, 3, 3, height, width, generator=torch.Generator().manual_seed(1))
