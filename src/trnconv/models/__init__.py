"""Open video and image autoencoders, as data: what they are made of and what sizes they run at."""

from trnconv.models.registry import (
    Calling,
    Capture,
    FrameRule,
    LatentSize,
    ModelEntry,
    Size,
    find,
    latent_size,
    models,
)

__all__ = [
    "Calling",
    "Capture",
    "FrameRule",
    "LatentSize",
    "ModelEntry",
    "Size",
    "find",
    "latent_size",
    "models",
]
