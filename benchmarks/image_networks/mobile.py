"""MobileNetV2: Sandler et al., arXiv:1801.04381, table 2. Most of its layers are depthwise."""

from __future__ import annotations

from benchmarks.image_networks.layers import HALVED, ImageNetwork, Planes, Sketch
from trnconv.problem.epilogue import BEFORE, PLAIN_EPILOGUE, RELU, Epilogue

# expansion, channels, blocks, stride of the first of them
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_LAST = 1280


def mobile(batch: int = 1, size: int = 224) -> ImageNetwork:
    """Every convolution; its ReLU6 is taken for a ReLU, which costs the same."""
    sketch = Sketch(batch, Epilogue(RELU))
    x = sketch.conv("stem", Planes(3, size, size), 32, 3, stride=HALVED)
    for stage, (expansion, channels, blocks, first) in enumerate(_STAGES, 1):
        for block in range(blocks):
            stride = first if block == 0 else 1
            x = _inverted(sketch, f"stage{stage}.{block}", x, (expansion, channels, stride))
    sketch.conv("last", x, _LAST, 1)
    source = "arXiv:1801.04381, table 2"
    return ImageNetwork("mobilenet-v2", f"{size}x{size}", batch, source, tuple(sketch.layers))


def _inverted(sketch: Sketch, name: str, x: Planes, how: tuple[int, int, int]) -> Planes:
    """Widened, filtered channel by channel, narrowed."""
    expansion, channels, stride = how
    wide = expansion * x.channels
    y = x if expansion == 1 else sketch.conv(f"{name}.expand", x, wide, 1)
    y = sketch.conv(f"{name}.depthwise", y, wide, 3, stride=stride, groups=wide)
    adds = stride == 1 and x.channels == channels
    return sketch.conv(
        f"{name}.project",
        y,
        channels,
        1,
        epilogue=Epilogue(residual=BEFORE) if adds else PLAIN_EPILOGUE,
    )
