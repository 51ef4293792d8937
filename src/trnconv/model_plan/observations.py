"""What a model does at a size: as it was observed and shipped, else by running it, without data."""

from __future__ import annotations

from importlib.util import find_spec

from trnconv.errors import UnsupportedError
from trnconv.models import ModelEntry, Size, latent_size
from trnconv.observed import Observation, shipped

STORED_DTYPE = "bfloat16"
_NEEDED = ("torch", "diffusers")


def observation(
    entry: ModelEntry, size: Size, phase: str, batch: int = 1, dtype: str = STORED_DTYPE
) -> Observation:
    """One encode or decode of a model. What nobody looked at needs torch and diffusers.

    Stored are sizes of the registry, batch 1 in bfloat16.
    """
    if phase not in entry.phases:
        raise UnsupportedError(f"{phase} of {entry.name}: it can {' and '.join(entry.phases)}.")
    latent_size(entry, size)
    known = shipped(entry, size, phase)
    if known is not None and (batch, dtype) == (1, STORED_DTYPE):
        return known
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        named = ", ".join(
            f"{other.height}x{other.width}x{other.frames}" for other in planned_sizes(entry)
        )
        raise UnsupportedError(
            f"{entry.name} at {size.height}x{size.width}x{size.frames}, batch {batch}, {dtype}:"
            f" what it does is not stored, and finding out needs {' and '.join(missing)}. Run"
            f" `pip install 'trnconv[diffusers]'`, or ask for batch 1 of {named} in {STORED_DTYPE}."
        )
    from trnconv.pytorch.observer import observe  # noqa: PLC0415 (torch: for other sizes only)

    return observe(entry, size, phase, batch=batch, dtype=dtype)


def planned_sizes(entry: ModelEntry) -> tuple[Size, ...]:
    """The sizes that need no torch: all of the registry but the one for reduced models."""
    return tuple(size for size in entry.sizes if size != entry.tiny)
