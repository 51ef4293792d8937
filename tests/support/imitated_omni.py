"""The structure of vllm-omni-neuron's Wan autoencoder, in code of our own.

Convolutions with a dispatch to a kernel of nki-library's, here a stand-in that counts its calls; a
decoder that is given its cache as a flat list and `first_chunk`; an encoder without dispatch.
"""

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn

KEPT = 2  # frames of a cache
KERNEL_CALLS = []  # of the stand-in: shapes of x


def kernel(x, packed, bias, padding):
    """nki-library's conv3d in its layout, by torch; the real one is no part of this repository."""
    KERNEL_CALLS.append(tuple(x.shape))
    return F.conv3d(x, packed.permute(4, 3, 0, 1, 2), bias, padding=padding)


class CausalConv3d(nn.Conv3d):
    least_channels = 96

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        frames, rows, columns = self.padding
        self._padding = (columns, columns, rows, rows, 2 * frames, 0)
        self.padding = (0, 0, 0)
        self.register_buffer("_nki_packed_filters", None, persistent=False)

    def install_nki_dispatch(self, target_device=None):  # noqa: ARG002 (theirs)
        wide = min(self.in_channels, self.out_channels) >= self.least_channels
        if self.kernel_size != (3, 3, 3) or self.stride != (1, 1, 1) or not wide:
            return False
        self._nki_packed_filters = self.weight.detach().permute(2, 3, 4, 1, 0).contiguous()
        return True

    def forward(self, x, cache_x=None):
        padding = list(self._padding)
        if cache_x is not None and padding[4] > 0:
            x = torch.cat([cache_x, x], dim=2)
            padding[4] -= cache_x.shape[2]
        done = self._maybe_nki_forward(x, padding)
        return super().forward(F.pad(x, padding)) if done is None else done

    def _maybe_nki_forward(self, x, padding):
        if self._nki_packed_filters is None or padding[4] or x.shape[2] < 4:
            return None
        return kernel(x, self._nki_packed_filters, self.bias, (0, 1, 1))


class LiftedConv2d(nn.Conv2d):
    least_channels = 96

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("_nki_packed_filters", None, persistent=False)

    def install_nki_dispatch(self, target_device=None):  # noqa: ARG002 (theirs)
        if self.in_channels < self.least_channels:
            return False
        self._nki_packed_filters = self.weight.detach().permute(2, 3, 1, 0).unsqueeze(0)
        return True

    def forward(self, x):
        if self._nki_packed_filters is None:
            return super().forward(x)
        y = kernel(x.unsqueeze(2), self._nki_packed_filters, self.bias, (0, 1, 1))
        return y.squeeze(2)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width, 1, 1, 1))

    def forward(self, x):
        scale = x.to(torch.float32).pow(2).mean(1, keepdim=True).clamp(min=1e-8).rsqrt()
        return (x * scale).to(self.gamma.dtype) * self.gamma


def cached(conv, x, cache, at):
    old = cache[at[0]]
    frames = x[:, :, -KEPT:].clone()
    if frames.shape[2] < KEPT:
        frames = torch.cat([old[:, :, -1:], frames], dim=2)
    y = conv(x, old)
    cache[at[0]] = frames
    at[0] += 1
    return y


class Block(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(c_in), RMSNorm(c_out)
        self.conv1 = CausalConv3d(c_in, c_out, 3, padding=1)
        self.conv2 = CausalConv3d(c_out, c_out, 3, padding=1)
        self.shortcut = CausalConv3d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, cache, at):
        y = cached(self.conv1, F.silu(self.norm1(x)), cache, at)
        y = cached(self.conv2, F.silu(self.norm2(y)), cache, at)
        return y + self.shortcut(x)


class Up(nn.Module):
    """Twice the rows and columns, and twice the frames but for the first chunk."""

    def __init__(self, width):
        super().__init__()
        self.time_conv = CausalConv3d(width, 2 * width, (3, 1, 1), padding=(1, 0, 0))
        self.conv = LiftedConv2d(width, width // 2, 3, padding=1)

    def forward(self, x, cache, at, first_chunk):
        n, c, t, h, w = x.shape
        if first_chunk:
            at[0] += 1
        else:
            y = cached(self.time_conv, x, cache, at).reshape(n, 2, c, t, h, w)
            x = torch.stack((y[:, 0], y[:, 1]), 3).reshape(n, c, 2 * t, h, w)
            t = 2 * t
        x = x.permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w)
        x = x.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)
        x = self.conv(x)
        return x.view(n, t, *x.shape[1:]).permute(0, 2, 1, 3, 4)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.to_qkv, self.proj = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        n, c, t, h, w = x.shape
        images = x.permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w)
        q, k, v = self.to_qkv(images).reshape(n * t, 3, c, h * w).permute(1, 0, 3, 2).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n * t, c, h, w)
        return x + self.proj(mixed).view(n, t, c, h, w).permute(0, 2, 1, 3, 4)


class Decoder(nn.Module):
    def __init__(self, z, width):
        super().__init__()
        self.post_quant_conv = CausalConv3d(z, z, 1)
        self.conv_in = CausalConv3d(z, width, 3, padding=1)
        self.mid, self.attention = Block(width, width), Attention(width)
        self.up, self.late = Up(width), Block(width // 2, width // 2)
        self.conv_out = CausalConv3d(width // 2, 3, 3, padding=1)

    def forward(self, frame, *flat_cache, first_chunk):
        cache, at = list(flat_cache), [0]
        x = cached(self.conv_in, self.post_quant_conv(frame), cache, at)
        x = self.attention(self.mid(x, cache, at))
        x = self.late(self.up(x, cache, at, first_chunk), cache, at)
        return cached(self.conv_out, x, cache, at), *cache

    def empty_cache(self, frame):
        n, _, _, h, w = frame.shape
        slots = [self.conv_in, self.mid.conv1, self.mid.conv2, self.up.time_conv]
        slots += [self.late.conv1, self.late.conv2, self.conv_out]
        grown = (1, 1, 1, 1, 2, 2, 2)
        return [
            frame.new_zeros(n, conv.in_channels, KEPT, h * times, w * times)
            for conv, times in zip(slots, grown, strict=True)
        ]


class ImitatedOmniVae(nn.Module):
    """`width` 192 makes sites that the server's dispatch takes."""

    def __init__(self, z=4, width=16):
        super().__init__()
        self.decoder = Decoder(z, width)
        self.encoder = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 2 * z, 3, stride=(2, 2))
        )

    def prepare_nki_conv_dispatch(self, target_device):
        sites = [each for each in self.modules() if hasattr(each, "install_nki_dispatch")]
        return sum(site.install_nki_dispatch(target_device) for site in sites)

    def decode(self, latent, run=None):
        run = self.decoder if run is None else run
        cache = self.decoder.empty_cache(latent[:, :, :1])
        frames = []
        for at in range(latent.shape[2]):
            y, *cache = run(latent[:, :, at : at + 1], *cache, first_chunk=at == 0)
            frames.append(y)
        return torch.cat(frames, dim=2)

    def encode(self, video):
        n, c, t, h, w = video.shape
        images = self.encoder(video.permute(0, 2, 1, 3, 4).reshape(n * t, c, h, w))
        return images.view(n, t, *images.shape[1:]).permute(0, 2, 1, 3, 4)
