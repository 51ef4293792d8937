"""ResNet-50: He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385, table 1.

A block that halves its size does so in its 3x3 convolution, as has become usual (Goyal et al.,
arXiv:1706.02677, section 5.1), not in its first 1x1.
"""

from __future__ import annotations

from benchmarks.image_networks.layers import HALVED, ImageNetwork, Planes, Sketch
from trnconv.problem.epilogue import BEFORE, PLAIN_EPILOGUE, RELU, Epilogue

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # inner channels, blocks
_WIDENED = 4  # channels of a block's output, over its inner ones


def residual_network(batch: int = 1, size: int = 224) -> ImageNetwork:
    """Every convolution; the linear layer at the end is none."""
    sketch = Sketch(batch, Epilogue(RELU))
    x = residual_stages(sketch, Planes(3, size, size))
    assert x.channels == _STAGES[-1][0] * _WIDENED
    source = "arXiv:1512.03385, table 1"
    return ImageNetwork("resnet-50", f"{size}x{size}", batch, source, tuple(sketch.layers))


def residual_stages(sketch: Sketch, image: Planes) -> Planes:
    """All but the head."""
    x = sketch.conv("conv1", image, 64, 7, stride=HALVED)
    x = Planes(x.channels, x.height // HALVED, x.width // HALVED)  # max pooling
    for stage, (inner, blocks) in enumerate(_STAGES, 2):
        for block in range(blocks):
            stride = HALVED if block == 0 and stage > 2 else 1
            x = _bottleneck(sketch, f"conv{stage}_{block + 1}", x, inner, stride)
    return x


def _bottleneck(sketch: Sketch, name: str, x: Planes, inner: int, stride: int) -> Planes:
    wide = _WIDENED * inner
    if x.channels != wide:
        sketch.conv(f"{name}.shortcut", x, wide, 1, stride=stride, epilogue=PLAIN_EPILOGUE)
    y = sketch.conv(f"{name}.1", x, inner, 1)
    y = sketch.conv(f"{name}.2", y, inner, 3, stride=stride)
    return sketch.conv(f"{name}.3", y, wide, 1, epilogue=Epilogue(RELU, BEFORE))
