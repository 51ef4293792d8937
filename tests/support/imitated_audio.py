"""The structures of vocoders and of codecs' decoders in code of our own: lines of samples.

HiFi-GAN and BigVGAN: transposed convolutions, then blocks of dilated ones, leaky ReLU or snake.
Encodec and Mimi: causal, ELU. DAC and Stable Audio: snake, transposed ones of twice the stride.
"""

import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

SLOPE = 0.1
DILATIONS = (1, 3, 5)


NORMS = {"old": weight_norm, "new": parametrizations.weight_norm, "none": lambda module: module}


class Snake(nn.Module):
    """x + sin(a x)^2 / a, with an `a` for each channel."""

    def __init__(self, width):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, x):
        return x + torch.sin(self.alpha * x) ** 2 / (self.alpha + 1e-9)


def activation(kind, width):
    made = {"leaky": lambda: nn.LeakyReLU(SLOPE), "snake": lambda: Snake(width), "elu": nn.ELU}
    return made[kind]()


class Dilated(nn.Module):
    """Residual convolutions of growing dilation."""

    def __init__(self, width, taps, kind, norm):
        super().__init__()
        self.layers = nn.ModuleList()
        for dilation in DILATIONS:
            wide = nn.Conv1d(
                width, width, taps, padding=dilation * (taps - 1) // 2, dilation=dilation
            )
            close = nn.Conv1d(width, width, taps, padding=(taps - 1) // 2)
            self.layers.append(
                nn.Sequential(
                    activation(kind, width), norm(wide), activation(kind, width), norm(close)
                )
            )

    def forward(self, x):
        for layers in self.layers:
            x = x + layers(x)
        return x


class ImitatedVocoder(nn.Module):
    """From a spectrogram to samples, `(batch, channels, time)`; the mean of several blocks."""

    def __init__(self, mels=8, width=16, strides=(4, 2), kind="leaky", norm="old"):
        super().__init__()
        norm = NORMS[norm]
        self.pre = norm(nn.Conv1d(mels, width, 7, padding=3))
        self.ups, self.blocks, self.acts = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for stride in strides:
            narrow = width // 2
            up = nn.ConvTranspose1d(width, narrow, 2 * stride, stride, padding=stride // 2)
            self.acts.append(activation(kind, width))
            self.ups.append(norm(up))
            self.blocks.append(nn.ModuleList(Dilated(narrow, taps, kind, norm) for taps in (3, 7)))
            width = narrow
        self.last = activation(kind, width)
        self.post = norm(nn.Conv1d(width, 1, 7, padding=3))

    def forward(self, mel):
        x = self.pre(mel)
        for act, up, blocks in zip(self.acts, self.ups, self.blocks, strict=True):
            x = up(act(x))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.post(self.last(x)))


class Causal(nn.Module):
    """A convolution of what was and is; `kept` are the samples before, of the call before."""

    def __init__(self, c_in, c_out, taps, dilation=1, norm=NORMS["new"]):
        super().__init__()
        self.conv = norm(nn.Conv1d(c_in, c_out, taps, dilation=dilation))
        self.before = (taps - 1) * dilation
        self.kept = None

    def forward(self, x):
        kept = x.new_zeros(*x.shape[:2], self.before) if self.kept is None else self.kept
        both = torch.cat([kept, x], 2)
        self.kept = both[:, :, both.shape[2] - self.before :].clone()
        return self.conv(both)


class CausalUp(nn.Module):
    """A transposed convolution of twice its stride: a sample makes what it and the next overlap."""

    def __init__(self, c_in, c_out, stride, norm=NORMS["new"], groups=1):
        super().__init__()
        self.conv = norm(nn.ConvTranspose1d(c_in, c_out, 2 * stride, stride, groups=groups))
        self.stride = stride
        self.kept = None

    def forward(self, x):
        kept = x.new_zeros(*x.shape[:2], 1) if self.kept is None else self.kept
        both = torch.cat([kept, x], 2)
        self.kept = both[:, :, -1:].clone()
        return self.conv(both)[:, :, self.stride : -self.stride]


class ImitatedCodec(nn.Module):
    """The decoder of a causal codec: whole, or one chunk after the other (`go_on`)."""

    def __init__(self, z=8, width=16, strides=(4, 2), kind="elu", norm="new"):
        super().__init__()
        norm = NORMS[norm]
        layers = [CausalUp(z, z, 2, norm, groups=z), Causal(z, width, 7, norm=norm)]
        for stride in strides:
            narrow = width // 2
            layers += [activation(kind, width), CausalUp(width, narrow, stride, norm)]
            for dilation in (1, 3):
                layers += [
                    activation(kind, narrow),
                    Causal(narrow, narrow, 3, dilation, norm),
                    activation(kind, narrow),
                    Causal(narrow, narrow, 1, norm=norm),
                ]
            width = narrow
        self.layers = nn.Sequential(
            *layers, activation(kind, width), Causal(width, 1, 7, norm=norm)
        )

    def forward(self, codes, go_on=False):
        if not go_on:
            for module in self.modules():
                if isinstance(module, (Causal, CausalUp)):
                    module.kept = None
        return self.layers(codes)


def hifi_gan(**sizes):
    return ImitatedVocoder(kind="leaky", norm="old", **sizes)


def big_vgan(**sizes):
    return ImitatedVocoder(kind="snake", norm="new", **sizes)


def encodec(**sizes):
    return ImitatedCodec(kind="elu", norm="old", **sizes)


def mimi(**sizes):
    return ImitatedCodec(kind="elu", norm="none", **sizes)


def dac(**sizes):
    return ImitatedCodec(kind="snake", norm="new", **sizes)


VOCODERS = {"hifi-gan": hifi_gan, "bigvgan": big_vgan}
CODECS = {"encodec": encodec, "mimi": mimi, "dac": dac}
AUDIO = {**VOCODERS, **CODECS}


def built(name, seed=0, **sizes):
    """With random weights of unit gain, for inference."""
    torch.manual_seed(seed)
    return AUDIO[name](**sizes).eval().requires_grad_(requires_grad=False)
