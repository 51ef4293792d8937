"""Networks of whole numbers: every sum is exact in float32, so equal results are equal bits."""

import torch
from torch import nn


def integers(*shape, most=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).float()


def with_integers(model, seed=0):
    """The model with whole numbers for weights, in eval mode."""
    for number, parameter in enumerate(model.parameters()):
        parameter.data = integers(*parameter.shape, seed=seed + number).to(parameter.dtype)
    return model.eval()


class SmallDecoder(nn.Module):
    """What video decoders do around convolutions, and a convolution of every kind."""

    def __init__(self):
        super().__init__()
        self.replicated = nn.Conv3d(2, 4, 3)
        self.causal = nn.Conv3d(4, 4, 3, padding=(0, 1, 1))
        self.images = nn.Conv2d(4, 4, 3, padding=1)
        self.pointwise = nn.Conv3d(4, 4, 1)
        self.doubling = nn.ConvTranspose3d(4, 2, 2, stride=2)
        self.line = nn.Conv1d(2, 2, 3, padding=1)
        self.register_buffer("offset", torch.ones(1))

    def forward(self, x):
        h = nn.functional.relu(
            self.replicated(nn.functional.pad(x, (1, 1, 1, 1, 2, 0), mode="replicate"))
        )
        h = h + self.causal(torch.cat([h[:, :, :1]] * 2 + [h], dim=2))
        videos, channels, frames = h.shape[:3]
        images = h.permute(0, 2, 1, 3, 4).reshape(-1, channels, *h.shape[3:])
        images = self.images(nn.functional.interpolate(images, scale_factor=2.0))
        h = images.unflatten(0, (videos, frames)).permute(0, 2, 1, 3, 4)
        h = self.doubling(self.pointwise(h) + self.offset)
        return self.line(h.flatten(2)).reshape(h.shape)


CONVOLUTIONS = ("replicated", "causal", "images", "pointwise", "doubling", "line")


def small_decoder(seed=0):
    """A model, and a clip for it. Its weights ask for gradients, as a fresh model's do."""
    return with_integers(SmallDecoder(), seed), integers(1, 2, 3, 4, 5, seed=99)
