"""A head of transposed convolutions: Xiao et al., "Simple Baselines for Human Pose Estimation".

arXiv:1804.06208, section 2: three transposed convolutions of 256 channels, 4x4, stride 2, behind a
ResNet-50 at 256x192, then a map for each of 17 joints.
"""

from __future__ import annotations

from benchmarks.image_networks.layers import HALVED, ImageNetwork, Planes, Sketch
from trnconv.problem.epilogue import PLAIN_EPILOGUE, RELU, Epilogue

_CHANNELS = 256
_STEPS = 3
_JOINTS = 17


def deconvolution_head(batch: int = 1, size: int = 256) -> ImageNetwork:
    """The head alone: what it stands on is a ResNet-50."""
    sketch = Sketch(batch, Epilogue(RELU))
    x = Planes(2048, size // 32, size * 3 // 4 // 32)
    for step in range(_STEPS):
        x = sketch.transposed(f"up{step + 1}", x, _CHANNELS, 4, stride=HALVED, padding=1)
    sketch.conv("joints", x, _JOINTS, 1, epilogue=PLAIN_EPILOGUE)
    source = "arXiv:1804.06208, section 2"
    name, words = "deconvolution-head", f"{size}x{size * 3 // 4}"
    return ImageNetwork(name, words, batch, source, tuple(sketch.layers))
