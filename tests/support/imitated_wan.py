"""The structure of Wan's official autoencoders in code of our own: einops, slots, "Rep".

Wan 2.1 (and LightVAE, which is the same with pruned widths), and Wan 2.2 with patches of pixels and
shortcuts around its resamplers. Slots go through the modules as arguments, or lie in context
variables as in sglang, whose forwards are functions of the module.
"""

from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from einops import rearrange
from torch import nn

KEPT_FRAMES = 2
# (slots, index of the next): of a stream whose modules are told nothing.
SURROUNDING: ContextVar = ContextVar("slots", default=None)


@contextmanager
def surrounding(slots):
    token = SURROUNDING.set((slots, [0]))
    yield
    SURROUNDING.reset(token)


def slots_of(feat_cache, feat_idx):
    """As given, or those around."""
    if feat_cache is None and SURROUNDING.get() is not None:
        return SURROUNDING.get()
    return feat_cache, feat_idx


class CausalConv3d(nn.Conv3d):
    """Padded with zeros before the first frame; frames of the chunk before take their place."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        frames, rows, columns = self.padding
        self.sides, self.front = (columns, columns, rows, rows), 2 * frames
        self.padding = (0, 0, 0)

    def forward(self, x, before=None):
        front = self.front
        if before is not None and front > 0:
            x = torch.cat([before.to(x.device), x], dim=2)
            front -= before.shape[2]
        return super().forward(F.pad(x, (*self.sides, front, 0)))


class RMSNorm(nn.Module):
    def __init__(self, width, axes):
        super().__init__()
        self.scale = width**0.5
        self.gamma = nn.Parameter(torch.ones(width, *[1] * axes))

    def forward(self, x):
        return F.normalize(x, dim=1) * self.scale * self.gamma


class Upsample(nn.Upsample):
    """In float32, as torch had no other once."""

    def forward(self, x):
        return super().forward(x.float()).type_as(x)


def remembered(x, old):
    """The last frames of a chunk, with one of the chunk before if it has too few."""
    frames = x[:, :, -KEPT_FRAMES:].clone()
    if frames.shape[2] < KEPT_FRAMES and old is not None:
        last = old[:, :, -1].unsqueeze(2).to(frames.device)
        frames = torch.cat([last, frames], dim=2)
    return frames


def cached(conv, x, feat_cache, feat_idx):
    at = feat_idx[0]
    frames = remembered(x, feat_cache[at])
    y = conv(x, feat_cache[at])
    feat_cache[at] = frames
    feat_idx[0] += 1
    return y


def residual_forward(self, x, feat_cache=None, feat_idx=None):
    feat_cache, feat_idx = slots_of(feat_cache, feat_idx)
    beside = self.shortcut(x)
    for layer in self.residual:
        if isinstance(layer, CausalConv3d) and feat_cache is not None:
            x = cached(layer, x, feat_cache, feat_idx)
        else:
            x = layer(x)
    return x + beside


class ResidualBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.residual = nn.Sequential(
            RMSNorm(c_in, 3),
            nn.SiLU(),
            CausalConv3d(c_in, c_out, 3, padding=1),
            RMSNorm(c_out, 3),
            nn.SiLU(),
            nn.Dropout(0.0),
            CausalConv3d(c_out, c_out, 3, padding=1),
        )
        self.shortcut = CausalConv3d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    forward = residual_forward


class AttentionBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width, 2)
        self.to_qkv = nn.Conv2d(width, 3 * width, 1)
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, x):
        frames, rows = x.shape[2], x.shape[3]
        images = self.norm(rearrange(x, "b c t h w -> (b t) c h w"))
        q, k, v = rearrange(self.to_qkv(images), "n c h w -> n 1 (h w) c").chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(q, k, v).squeeze(1)
        mixed = self.proj(rearrange(mixed, "n (h w) c -> n c h w", h=rows))
        return x + rearrange(mixed, "(b t) c h w -> b c t h w", t=frames)


class Resample(nn.Module):
    """Up or down by 2 in space, and in time where it has a convolution over it."""

    def __init__(self, width, mode, c_out=None):
        super().__init__()
        self.mode = mode
        c_out = width if c_out is None else c_out
        if mode.startswith("up"):
            grow = Upsample(scale_factor=(2.0, 2.0), mode="nearest-exact")
            self.resample = nn.Sequential(grow, nn.Conv2d(width, c_out, 3, padding=1))
        else:
            shrink = nn.Conv2d(width, c_out, 3, stride=(2, 2))
            self.resample = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), shrink)
        if mode == "up3d":
            self.time_conv = CausalConv3d(width, 2 * width, (3, 1, 1), padding=(1, 0, 0))
        elif mode == "down3d":
            self.time_conv = CausalConv3d(c_out, c_out, (3, 1, 1), stride=(2, 1, 1))

    def forward(self, x, feat_cache=None, feat_idx=None):
        feat_cache, feat_idx = slots_of(feat_cache, feat_idx)
        if self.mode == "up3d" and feat_cache is not None:
            x = self.longer(x, feat_cache, feat_idx)
        frames = x.shape[2]
        x = self.resample(rearrange(x, "b c t h w -> (b t) c h w"))
        x = rearrange(x, "(b t) c h w -> b c t h w", t=frames)
        if self.mode == "down3d" and feat_cache is not None:
            x = self.shorter(x, feat_cache, feat_idx)
        return x

    def longer(self, x, feat_cache, feat_idx):
        at = feat_idx[0]
        feat_idx[0] += 1
        old = feat_cache[at]
        if old is None:  # the first frame stays one
            feat_cache[at] = "Rep"
            return x
        if old == "Rep":
            frames = remembered(x, None)
            if frames.shape[2] < KEPT_FRAMES:
                frames = torch.cat([torch.zeros_like(frames), frames], dim=2)
            y = self.time_conv(x)
        else:
            frames = remembered(x, old)
            y = self.time_conv(x, old)
        feat_cache[at] = frames
        n, c, t, h, w = x.shape
        halves = y.reshape(n, 2, c, t, h, w)
        return torch.stack((halves[:, 0], halves[:, 1]), 3).reshape(n, c, 2 * t, h, w)

    def shorter(self, x, feat_cache, feat_idx):
        at = feat_idx[0]
        feat_idx[0] += 1
        if feat_cache[at] is None:
            feat_cache[at] = x.clone()
            return x
        last = x[:, :, -1:].clone()
        x = self.time_conv(torch.cat([feat_cache[at][:, :, -1:], x], 2))
        feat_cache[at] = last
        return x


class Shortcut(nn.Module):
    """Wan 2.2: around a resampler, means of what becomes one, or copies of what becomes several."""

    def __init__(self, inner, widths, factors, *, up):
        super().__init__()
        self.inner = nn.ModuleList(inner)
        self.c_in, self.c_out = widths
        self.factors, self.up = factors, up

    def forward(self, x, feat_cache=None, feat_idx=None, first_chunk=False):
        y = x
        for layer in self.inner:
            y = layer(y, feat_cache, feat_idx)
        return y + (self.copies(x, first_chunk) if self.up else self.means(x))

    def means(self, x):
        t, s = self.factors
        x = F.pad(x, (0, 0, 0, 0, -x.shape[2] % t, 0))
        x = rearrange(x, "b c (t i) (h j) (w k) -> b (c i j k) t h w", i=t, j=s, k=s)
        return rearrange(x, "b (c g) t h w -> b c g t h w", c=self.c_out).mean(dim=2)

    def copies(self, x, first_chunk):
        t, s = self.factors
        x = x.repeat_interleave(self.c_out * t * s * s // self.c_in, dim=1)
        x = rearrange(x, "b (c i j k) t h w -> b c (t i) (h j) (w k)", i=t, j=s, k=s)
        return x[:, :, t - 1 :] if first_chunk else x


class Half(nn.Module):
    """An encoder or decoder: a convolution, blocks, a head."""

    def __init__(self, ends, blocks, width):
        super().__init__()
        first, last = ends
        self.conv1 = CausalConv3d(*first, 3, padding=1)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(
            RMSNorm(width, 3), nn.SiLU(), CausalConv3d(width, last, 3, padding=1)
        )

    def forward(self, x, feat_cache=None, feat_idx=None, first_chunk=False):
        feat_cache, feat_idx = slots_of(feat_cache, feat_idx)
        x = cached(self.conv1, x, feat_cache, feat_idx)
        for block in self.blocks:
            if isinstance(block, AttentionBlock):
                x = block(x)
            elif isinstance(block, Shortcut):
                x = block(x, feat_cache, feat_idx, first_chunk)
            else:
                x = block(x, feat_cache, feat_idx)
        norm, activation, conv = self.head
        return cached(conv, activation(norm(x)), feat_cache, feat_idx)


def resampler(widths, mode, *, shortcut):
    """A block and a resampler, and what Wan 2.2 has around them."""
    c_in, c_out = widths
    up = mode.startswith("up")
    if not shortcut:
        return [ResidualBlock(c_in, c_out), Resample(c_out, mode)]
    inner = [ResidualBlock(c_in, c_out), Resample(c_out, mode)]
    return [Shortcut(inner, widths, (2 if mode.endswith("3d") else 1, 2), up=up)]


class ImitatedWan(nn.Module):
    """Widths from the pixels inwards; `patch` pixels square are one position, with shortcuts."""

    temporal_stride = 4

    def __init__(self, widths=(8, 16, 16), z=4, patch=1, in_context=False):
        super().__init__()
        self.patch, self.in_context = patch, in_context
        a, b, c = widths
        pixels, shortcut = 3 * patch**2, patch > 1
        down = [
            *resampler((a, b), "down3d", shortcut=shortcut),
            *resampler((b, c), "down3d", shortcut=shortcut),
            ResidualBlock(c, c),
            AttentionBlock(c),
        ]
        up = [
            AttentionBlock(c),
            ResidualBlock(c, c),
            *resampler((c, b), "up3d", shortcut=shortcut),
            *resampler((b, a), "up3d", shortcut=shortcut),
        ]
        self.encoder = Half(((pixels, a), 2 * z), down, c)
        self.conv1 = CausalConv3d(2 * z, 2 * z, 1)
        self.conv2 = CausalConv3d(z, z, 1)
        self.decoder = Half(((z, c), pixels), up, a)

    def clear_cache(self):
        for name in ("encoder", "decoder"):
            half = getattr(self, name)
            count = sum(isinstance(each, CausalConv3d) for each in half.modules())
            setattr(self, f"{name}_slots", [None] * count)

    def chunk(self, name, x, first_chunk):
        half, slots = getattr(self, name), getattr(self, f"{name}_slots")
        if not self.in_context:
            return half(x, feat_cache=slots, feat_idx=[0], first_chunk=first_chunk)
        with surrounding(slots):
            return half(x, first_chunk=first_chunk)

    def encode(self, video):
        self.clear_cache()
        p = self.patch
        x = rearrange(video, "b c t (h q) (w r) -> b (c r q) t h w", q=p, r=p)
        out = self.chunk("encoder", x[:, :, :1], first_chunk=True)
        for at in range(1, x.shape[2], self.temporal_stride):
            more = self.chunk("encoder", x[:, :, at : at + self.temporal_stride], first_chunk=False)
            out = torch.cat([out, more], 2)
        mean, _ = self.conv1(out).chunk(2, dim=1)
        self.clear_cache()
        return mean

    def decode(self, latent):
        self.clear_cache()
        x, out = self.conv2(latent), None
        for at in range(x.shape[2]):
            more = self.chunk("decoder", x[:, :, at : at + 1], first_chunk=at == 0)
            out = more if out is None else torch.cat([out, more], 2)
        self.clear_cache()
        p = self.patch
        return rearrange(out, "b (c r q) t h w -> b c t (h q) (w r)", q=p, r=p)
