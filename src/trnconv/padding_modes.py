"""Modes of padding: what stands beyond the ends of an axis."""

from __future__ import annotations

from typing import Final

from trnconv.errors import ShapeError

MODES: Final = ("zeros", "replicate", "reflect", "circular")
_ZEROS, _, _REFLECT, _CIRCULAR = MODES


def padding_source(mode: str, size: int, position: int) -> int:
    """Of an axis, the position whose value stands at a position of its padding; -1: a zero."""
    if 0 <= position < size:
        return position
    if mode == _ZEROS:
        return -1
    if mode == _CIRCULAR:
        return position % size
    if mode == _REFLECT and size > 1:
        return (size - 1) - abs((size - 1) - position % (2 * (size - 1)))
    return min(max(position, 0), size - 1)


def require_mode(mode: str, size: int, most: int, axis: str) -> None:
    """Refuse a mode that there is not, and more padding than an axis of a size has values for."""
    if mode not in MODES:
        raise ShapeError(f"padding mode {mode!r}: zeros, replicate, reflect or circular.")
    limit = {_REFLECT: size - 1, _CIRCULAR: size}.get(mode, most)
    if most > limit:
        raise ShapeError(
            f"{mode} padding of {most} along {axis}: the input has {size} elements there, so at"
            f" most {limit} can be padded."
        )
