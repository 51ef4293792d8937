"""The structure of other video autoencoders outside of diffusers, in code of our own, and small.

All of them take and give videos and latents [N, C, T, H, W]; TAEHV turns its axes itself.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from einops import rearrange, repeat
from torch import nn

from imitated_taehv import ImitatedTaehv
from imitated_wan import ImitatedWan

SPREAD = 0.1  # of biases


# HunyuanVideo-1.5: replicate padding, pixel shuffles, attention over all frames, swish in place


class ReplicateConv(nn.Module):
    """Causal: copies of the first frame before it, and of the border around; pieces of time."""

    def __init__(self, c_in, c_out, kernel=3, pieces=1):
        super().__init__()
        side = kernel // 2
        self.sides, self.pieces = (side, side, side, side, kernel - 1, 0), pieces
        self.reach = kernel - 1
        self.conv = nn.Conv3d(c_in, c_out, kernel)

    def forward(self, x):
        x = F.pad(x, self.sides, mode="replicate")
        if self.pieces == 1 or x.shape[2] <= self.reach + self.pieces:
            return self.conv(x)
        parts = list(x.chunk(self.pieces, dim=2))
        for at in range(len(parts) - 1, 0, -1):  # each has the last frames of the one before
            parts[at] = torch.cat([parts[at - 1][:, :, -self.reach :], parts[at]], dim=2)
        return torch.cat([self.conv(part) for part in parts], dim=2)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width, 1, 1, 1))

    def forward(self, x):
        return F.normalize(x, dim=1) * x.shape[1] ** 0.5 * self.gamma


def swish_(x):
    return x.mul_(torch.sigmoid(x))


class HunyuanBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.norm1, self.conv1 = RMSNorm(c_in), ReplicateConv(c_in, c_out)
        self.norm2, self.conv2 = RMSNorm(c_out), ReplicateConv(c_out, c_out, pieces=2)
        self.shortcut = nn.Conv3d(c_in, c_out, 1) if c_in != c_out else None

    def forward(self, x):
        h = self.conv1(swish_(self.norm1(x)))
        h = self.conv2(swish_(self.norm2(h)))
        return (x if self.shortcut is None else self.shortcut(x)) + h


class FrameAttention(nn.Module):
    """Over all positions of this frame and those before it."""

    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Conv3d(width, width, 1) for _ in range(4))

    def forward(self, x):
        n, _, t, h, w = x.shape
        normed = self.norm(x)
        q, k, v = (
            rearrange(to(normed), "b c t h w -> b 1 (t h w) c").contiguous()
            for to in (self.q, self.k, self.v)
        )
        frame = torch.arange(t, device=x.device).repeat_interleave(h * w)
        mask = frame[:, None] >= frame[None]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(n, 1, -1, -1))
        return x + self.out(rearrange(mixed, "b 1 (t h w) c -> b c t h w", t=t, h=h))


class ShuffleUp(nn.Module):
    """A convolution to 8 times the channels, which become frames, rows and columns."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = ReplicateConv(c_in, 8 * c_out)
        self.copies = 8 * c_out // c_in

    def forward(self, x):
        beside = x.repeat_interleave(self.copies, dim=1)
        return self.spread(self.conv(x)) + self.spread(beside)

    @staticmethod
    def spread(x):
        first, others = x[:, :, :1], x[:, :, 1:]
        first = rearrange(first, "b (r1 r2 r3 c) f h w -> r1 b c f (h r2) (w r3)", r1=2, r2=2, r3=2)
        shape = "b (r1 r2 r3 c) f h w -> b c (f r1) (h r2) (w r3)"
        return torch.cat([first[0], rearrange(others, shape, r1=2, r2=2, r3=2)], dim=2)


class ShuffleDown(nn.Module):
    """The reverse: the first frame alone, with its channels twice; means beside."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = ReplicateConv(c_in, c_out // 8)
        self.c_out = c_out

    def forward(self, x):
        beside = rearrange(self.gather(x), "b (c g) f h w -> b c g f h w", c=self.c_out)
        return self.gather(self.conv(x)) + beside.mean(dim=2)

    @staticmethod
    def gather(x):
        x = torch.cat([x[:, :, :1], x], dim=2)
        shape = "b c (f r1) (h r2) (w r3) -> b (r1 r2 r3 c) f h w"
        return rearrange(x, shape, r1=2, r2=2, r3=2)


class ImitatedHunyuan15(nn.Module):
    def __init__(self, width=16, z=4):
        super().__init__()
        self.encoder = nn.Sequential(
            ReplicateConv(3, width),
            HunyuanBlock(width, width),
            ShuffleDown(width, 2 * width),
            HunyuanBlock(2 * width, 2 * width),
            FrameAttention(2 * width),
            ReplicateConv(2 * width, 2 * z),
        )
        self.decoder = nn.Sequential(
            ReplicateConv(z, 2 * width),
            FrameAttention(2 * width),
            HunyuanBlock(2 * width, 2 * width),
            ShuffleUp(2 * width, width),
            HunyuanBlock(width, width),
            ReplicateConv(width, 3),
        )

    def encode(self, video):
        return self.encoder(video).chunk(2, dim=1)[0]

    def decode(self, latent):
        return self.decoder(latent)


# Turbo-VAED: depthwise 5 x 5 x 5 and pointwise, pixel shuffles in space


class EdgeConv(nn.Module):
    """Copies of the first and last frame around, or of the first before; zeros around pixels."""

    def __init__(self, c_in, c_out, kernel=3, *, causal, **options):
        super().__init__()
        self.frames, self.causal = kernel - 1, causal
        self.conv = nn.Conv3d(c_in, c_out, kernel, padding=(0, kernel // 2, kernel // 2), **options)

    def forward(self, x, causal=None):
        before = self.frames if (self.causal if causal is None else causal) else self.frames // 2
        first = x[:, :, :1].repeat(1, 1, before, 1, 1)
        last = x[:, :, -1:].repeat(1, 1, self.frames - before, 1, 1)
        return self.conv(torch.cat([first, x, last], dim=2))


class Separable(nn.Module):
    def __init__(self, c_in, c_out, kernel):
        super().__init__()
        self.depthwise = EdgeConv(c_in, c_in, kernel, causal=False, groups=c_in)
        self.pointwise = nn.Conv3d(c_in, c_out, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


class TurboBlock(nn.Module):
    def __init__(self, width, depthwise):
        super().__init__()
        make = (
            (lambda: Separable(width, width, 5))
            if depthwise
            else (lambda: EdgeConv(width, width, causal=False))
        )
        self.conv1, self.conv2 = make(), make()
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class ShuffledImages(nn.Module):
    """Rows and columns from channels, frame by frame."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, 4 * c_out, 3, padding=1)

    def forward(self, x):
        frames = x.shape[2]
        images = self.conv(rearrange(x, "b c t h w -> (b t) c h w"))
        return rearrange(F.pixel_shuffle(images, 2), "(b t) c h w -> b c t h w", t=frames)


class ImitatedTurbo(nn.Module):
    def __init__(self, width=8, z=4):
        super().__init__()
        self.encoder = nn.Sequential(
            EdgeConv(3, width, causal=True),
            TurboBlock(width, depthwise=False),
            nn.Conv3d(width, 2 * width, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
            TurboBlock(2 * width, depthwise=True),
            EdgeConv(2 * width, z, causal=True),
        )
        self.decoder = nn.Sequential(
            EdgeConv(z, 2 * width, causal=False),
            TurboBlock(2 * width, depthwise=True),
            ShuffledImages(2 * width, width),
            TurboBlock(width, depthwise=False),
            EdgeConv(width, 3, causal=False),
        )

    def encode(self, video):
        return self.encoder(video)

    def decode(self, latent):
        return self.decoder(latent)


# LTX-2: patches, causal or not as the call says, reflection, depth to space


class PerPositionNorm(nn.Module):
    def forward(self, x):
        return x / torch.sqrt(x.float().square().mean(dim=1, keepdim=True) + 1e-6).to(x.dtype)


class LtxBlock(nn.Module):
    def __init__(self, width, mode):
        super().__init__()
        self.norm = PerPositionNorm()
        self.conv1 = EdgeConv(width, width, causal=True, padding_mode=mode)
        self.conv2 = EdgeConv(width, width, causal=True, padding_mode=mode)

    def forward(self, x, causal):
        h = self.conv1(F.silu(self.norm(x)), causal)
        return x + self.conv2(F.silu(self.norm(h)), causal)


class DepthToSpace(nn.Module):
    """Twice the frames, rows and columns; the first frame that comes of it is dropped."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = EdgeConv(c_in, 8 * c_out, causal=True)
        self.copies = 8 * c_out // c_in

    def forward(self, x, causal):
        beside = repeat(x, "b c d h w -> b (c r) d h w", r=self.copies)
        return self.spread(self.conv(x, causal)) + self.spread(beside)

    @staticmethod
    def spread(x):
        shape = "b (c p1 p2 p3) d h w -> b c (d p1) (h p2) (w p3)"
        return rearrange(x, shape, p1=2, p2=2, p3=2)[:, :, 1:]


class SpaceToDepth(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = EdgeConv(c_in, c_out // 8, causal=True)
        self.c_out = c_out

    def forward(self, x, causal):
        x = torch.cat([x[:, :, :1], x], dim=2)
        beside = self.gather(x).unflatten(1, (self.c_out, -1)).mean(dim=2)
        return self.gather(self.conv(x, causal)) + beside

    @staticmethod
    def gather(x):
        shape = "b c (d p1) (h p2) (w p3) -> b (c p1 p2 p3) d h w"
        return rearrange(x, shape, p1=2, p2=2, p3=2)


class ImitatedLtx2(nn.Module):
    """Encodes causally, decodes not; rows and columns are reflected in the decoder."""

    patch = 2

    def __init__(self, width=16, z=8):
        super().__init__()
        pixels = 3 * self.patch**2
        self.encoder = nn.ModuleList(
            [
                EdgeConv(pixels, width, causal=True),
                LtxBlock(width, "zeros"),
                SpaceToDepth(width, 2 * width),
                LtxBlock(2 * width, "zeros"),
                EdgeConv(2 * width, z, causal=True),
            ]
        )
        self.decoder = nn.ModuleList(
            [
                EdgeConv(z, 2 * width, causal=False, padding_mode="reflect"),
                LtxBlock(2 * width, "reflect"),
                DepthToSpace(2 * width, width),
                LtxBlock(width, "reflect"),
                EdgeConv(width, pixels, causal=False, padding_mode="reflect"),
            ]
        )

    def encode(self, video):
        p = self.patch
        x = rearrange(video, "b c t (h q) (w r) -> b (c r q) t h w", q=p, r=p)
        for layer in self.encoder:
            x = layer(x, causal=True)
        return x

    def decode(self, latent):
        x, p = latent, self.patch
        for layer in self.decoder:
            x = layer(x, causal=False)
        return rearrange(x, "b (c r q) t h w -> b c t (h q) (w r)", q=p, r=p)


@dataclass(frozen=True)
class Imitation:
    """How it is built, and sizes (channels, frames, height, width) that it takes."""

    build: object
    video: tuple[int, ...]
    latent: tuple[int, ...]

    def model(self, dtype=torch.float32, seed=0):
        """Weights of variance 1 / fan-in that bf16 holds, in a type; no bias is zero."""
        generator = torch.Generator().manual_seed(seed)
        model = self.build()
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("weight") and parameter.dim() > 1:
                noise = noise / parameter[0].numel() ** 0.5
            elif name.endswith("bias"):
                noise = noise * SPREAD
            else:
                noise = 1 + noise * SPREAD
            parameter.data.copy_(noise.bfloat16().float())
        return model.to(dtype).eval().requires_grad_(requires_grad=False)

    def given(self, phase, batch=1):
        """Values that bf16 holds, in float32."""
        generator = torch.Generator().manual_seed(1)
        shape = {"encode": self.video, "decode": self.latent}[phase]
        values = torch.randn(batch, *shape, generator=generator).bfloat16().float()
        return values.clamp(-1, 1) if phase == "encode" else values


IMITATIONS = {
    "wan2.1-official": Imitation(ImitatedWan, (3, 9, 8, 12), (4, 3, 2, 3)),
    "wan2.2-official": Imitation(lambda: ImitatedWan(patch=2), (3, 9, 16, 24), (4, 3, 2, 3)),
    "lightvae": Imitation(lambda: ImitatedWan((24, 48, 96), z=16), (3, 5, 8, 8), (16, 3, 2, 2)),
    "sglang-wan": Imitation(lambda: ImitatedWan(in_context=True), (3, 9, 8, 12), (4, 3, 2, 3)),
    "hunyuanvideo-1.5": Imitation(ImitatedHunyuan15, (3, 5, 6, 8), (4, 3, 3, 4)),
    "taehv": Imitation(ImitatedTaehv, (3, 5, 8, 12), (4, 3, 3, 4)),
    "taehv-in-turn": Imitation(
        lambda: ImitatedTaehv(in_iteration=True), (3, 4, 8, 12), (4, 3, 3, 4)
    ),
    "turbo-vaed": Imitation(ImitatedTurbo, (3, 5, 10, 12), (4, 5, 5, 6)),
    "ltx-2-official": Imitation(ImitatedLtx2, (3, 5, 8, 12), (8, 3, 3, 4)),
}
