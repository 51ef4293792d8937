"""What a model does at a size: as it was traced and shipped, or scaled from such a size.

Where neither is known, the model is run, without data.
"""

from __future__ import annotations

from importlib.util import find_spec

from trnconv.errors import UnsupportedError
from trnconv.models import ModelEntry, Size, latent_size
from trnconv.traces import ModelTrace, at_size, shipped

STORED_DTYPE = "bfloat16"
_NEEDED = ("torch", "diffusers")


def model_trace(
    entry: ModelEntry, size: Size, phase: str, batch: int = 1, dtype: str = STORED_DTYPE
) -> ModelTrace:
    """One encode or decode of a model. What nobody looked at needs torch and diffusers."""
    known = stored_trace(entry, size, phase, batch, dtype)
    if known is not None:
        return known
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        named = ", ".join(
            f"{other.height}x{other.width}x{other.frames}" for other in planned_sizes(entry)
        )
        raise UnsupportedError(
            f"{entry.name} at {size.height}x{size.width}x{size.frames}, batch {batch}, {dtype}:"
            " what it does is not stored and does not follow from a size that is, and finding out"
            f" needs {' and '.join(missing)}. Run `pip install 'trnconv[diffusers]'`, or ask for"
            f" batch 1 of {named} in {STORED_DTYPE}."
        )
    from trnconv.pytorch.model_tracer import trace_entry  # noqa: PLC0415 (torch: for other sizes only)

    return trace_entry(entry, size, phase, batch=batch, dtype=dtype)


def stored_trace(
    entry: ModelEntry, size: Size, phase: str, batch: int = 1, dtype: str = STORED_DTYPE
) -> ModelTrace | None:
    """The same of what came with the package: sizes of the registry, batch 1 in bfloat16.

    None if neither it nor a size that it can be scaled from was stored.
    """
    if phase not in entry.phases:
        raise UnsupportedError(f"{phase} of {entry.name}: it can {' and '.join(entry.phases)}.")
    latent_size(entry, size)
    if (batch, dtype) != (1, STORED_DTYPE):
        return None
    return shipped(entry, size, phase) or _scaled(entry, size, phase)


def _scaled(entry: ModelEntry, size: Size, phase: str) -> ModelTrace | None:
    """From the stored size with the same frames, or the nearest area; None if from none."""

    def distance(other: Size) -> tuple[bool, float]:
        areas = (size.height * size.width, other.height * other.width)
        return other.frames != size.frames, max(areas) / min(areas)

    for other in sorted(planned_sizes(entry), key=distance):
        trace = shipped(entry, other, phase)
        scaled = None if trace is None else at_size(trace, entry, size)
        if scaled is not None:
            return scaled
    return None


def planned_sizes(entry: ModelEntry) -> tuple[Size, ...]:
    """The sizes that need no torch: all of the registry but the one for reduced models."""
    return tuple(size for size in entry.sizes if size != entry.tiny)
