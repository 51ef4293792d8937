"""A detector like YOLO: the structure of YOLOX-S, Ge et al., arXiv:2107.08430.

A backbone of CSP stages (Wang et al., arXiv:1911.11929), a path aggregation neck (Liu et al.,
arXiv:1803.01534) and a decoupled head on three resolutions, all at half of the full width and a
third of the full depth. The list of layers is ours, after the descriptions there.
"""

from __future__ import annotations

from benchmarks.image_networks.layers import HALVED, ImageNetwork, Planes, Sketch
from trnconv.problem.epilogue import AFTER, NO_RESIDUAL, PLAIN_EPILOGUE, Epilogue

_WIDTH = 32  # channels of the stem; every halving doubles them
_DEPTHS = (1, 3, 3, 1)  # residual blocks of the backbone's stages
_POOLED = 4  # spatial pyramid pooling: the planes themselves, and three sizes of maxima
_HEAD = 128
_ACTIVATION = "silu"
_CLASSES = 80  # of COCO


def detector(batch: int = 1, size: int = 640) -> ImageNetwork:
    """Every convolution, from the image to boxes and classes."""
    sketch = Sketch(batch, Epilogue(_ACTIVATION))
    levels = _neck(sketch, *_backbone(sketch, Planes(3, size, size)))
    for level, x in enumerate(levels, 3):
        _head(sketch, f"head{level}", x)
    source = "arXiv:2107.08430, YOLOX-S"
    return ImageNetwork("detector", f"{size}x{size}", batch, source, tuple(sketch.layers))


def _backbone(sketch: Sketch, image: Planes) -> tuple[Planes, Planes, Planes]:
    """Planes at an eighth, a sixteenth and a 32nd of the size."""
    folded = Planes(4 * image.channels, image.height // HALVED, image.width // HALVED)
    x = sketch.conv("stem", folded, _WIDTH, 3)
    features = []
    for stage, depth in enumerate(_DEPTHS, 2):
        name, wide = f"dark{stage}", HALVED * x.channels
        x = sketch.conv(f"{name}.down", x, wide, 3, stride=HALVED)
        is_last = stage == len(_DEPTHS) + 1
        if is_last:
            pooled = sketch.conv(f"{name}.pool1", x, wide // 2, 1)
            several = Planes(_POOLED * pooled.channels, x.height, x.width)
            x = sketch.conv(f"{name}.pool2", several, wide, 1)
        x = _partial(sketch, f"{name}.csp", x, wide, depth, adds=not is_last)
        features.append(x)
    return features[-3], features[-2], features[-1]


def _partial(
    sketch: Sketch, name: str, x: Planes, channels: int, depth: int, *, adds: bool = False
) -> Planes:
    """A cross stage partial layer: half of the channels pass the blocks, half do not."""
    inner = channels // 2
    y = sketch.conv(f"{name}.1", x, inner, 1)
    past = sketch.conv(f"{name}.2", x, inner, 1)
    for block in range(depth):
        z = sketch.conv(f"{name}.block{block}.1", y, inner, 1)
        y = sketch.conv(f"{name}.block{block}.2", z, inner, 3, epilogue=_block_end(adds=adds))
    return sketch.conv(f"{name}.3", y.joined(past), channels, 1)


def _block_end(*, adds: bool) -> Epilogue:
    """These blocks add what they were given after their last activation."""
    return Epilogue(_ACTIVATION, AFTER if adds else NO_RESIDUAL)


def _neck(sketch: Sketch, c3: Planes, c4: Planes, c5: Planes) -> tuple[Planes, Planes, Planes]:
    """Down from the smallest resolution to the largest, and up again."""
    top = sketch.conv("neck.lateral", c5, c4.channels, 1)
    middle = _partial(sketch, "neck.p4", top.doubled().joined(c4), c4.channels, 1)
    reduced = sketch.conv("neck.reduce", middle, c3.channels, 1)
    p3 = _partial(sketch, "neck.p3", reduced.doubled().joined(c3), c3.channels, 1)
    x = sketch.conv("neck.down3", p3, p3.channels, 3, stride=HALVED)
    p4 = _partial(sketch, "neck.n3", x.joined(reduced), c4.channels, 1)
    x = sketch.conv("neck.down4", p4, p4.channels, 3, stride=HALVED)
    return p3, p4, _partial(sketch, "neck.n4", x.joined(top), c5.channels, 1)


def _head(sketch: Sketch, name: str, x: Planes) -> None:
    """Classes on one branch, boxes and whether there is an object on the other."""
    stem = sketch.conv(f"{name}.stem", x, _HEAD, 1)
    for branch, outputs in (("classes", (_CLASSES,)), ("boxes", (4, 1))):
        y = stem
        for step in (1, 2):
            y = sketch.conv(f"{name}.{branch}.{step}", y, _HEAD, 3)
        for channels in outputs:
            sketch.conv(f"{name}.{branch}.out{channels}", y, channels, 1, epilogue=PLAIN_EPILOGUE)
