"""The U-Net of Stable Diffusion XL: Podell et al., arXiv:2307.01952, table 1 and section 2.1.

Three resolutions of 320, 640 and 1280 channels with two residual blocks each (three on the way
up), transformers on the lower two and in the middle. Their projections are linear layers in the
published configuration, so no convolutions. Group norms and activations come before a convolution
here, and are none of its.
"""

from __future__ import annotations

from benchmarks.image_networks.layers import DOUBLED, HALVED, ImageNetwork, Planes, Sketch
from trnconv.problem.epilogue import BEFORE, Epilogue

_CHANNELS = (320, 640, 1280)
_BLOCKS = 2  # of a resolution, on the way down
_LATENT = 4


def unet(batch: int = 1, size: int = 128) -> ImageNetwork:
    """Every convolution of one step; `size` is that of the latent."""
    sketch = Sketch(batch)
    x = sketch.conv("conv_in", Planes(_LATENT, size, size), _CHANNELS[0], 3)
    x, passed = _down(sketch, x)
    for block in range(2):
        x = _block(sketch, f"mid.{block}", x, x.channels)
    x = _up(sketch, x, passed)
    sketch.conv("conv_out", x, _LATENT, 3)
    source = "arXiv:2307.01952, table 1"
    return ImageNetwork("sdxl-unet", f"{size}x{size}", batch, source, tuple(sketch.layers))


def _down(sketch: Sketch, x: Planes) -> tuple[Planes, list[Planes]]:
    """The lowest resolution, and what is passed across, first things first."""
    passed = [x]
    for level, channels in enumerate(_CHANNELS):
        for block in range(_BLOCKS):
            x = _block(sketch, f"down.{level}.{block}", x, channels)
            passed.append(x)
        if channels != _CHANNELS[-1]:
            x = sketch.conv(f"down.{level}.downsample", x, channels, 3, stride=HALVED)
            passed.append(x)
    return x, passed


def _up(sketch: Sketch, x: Planes, passed: list[Planes]) -> Planes:
    for level, channels in reversed(list(enumerate(_CHANNELS))):
        for block in range(_BLOCKS + 1):
            x = _block(sketch, f"up.{level}.{block}", x.joined(passed.pop()), channels)
        if level:
            x = sketch.conv(f"up.{level}.upsample", x, channels, 3, upsample=DOUBLED)
    return x


def _block(sketch: Sketch, name: str, x: Planes, channels: int) -> Planes:
    """Two convolutions, and one of 1x1 around them where the channels change."""
    widens = x.channels != channels
    y = sketch.conv(f"{name}.conv1", x, channels, 3)
    if widens:
        sketch.conv(f"{name}.shortcut", x, channels, 1)
    return sketch.conv(f"{name}.conv2", y, channels, 3, epilogue=Epilogue(residual=BEFORE))
