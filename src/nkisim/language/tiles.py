"""The tiles that functions of nki.language take and return."""

from __future__ import annotations

from typing import Any

from nkisim.errors import refuse
from nkisim.language.creation import ndarray
from nkisim.tensors.tensor import NkiTensor

Shape = tuple[int, ...]


def tile_shape(shape: Shape) -> Shape:
    """The shape of a tile: partitions and at least one free dimension."""
    return shape if len(shape) > 1 else (*shape, 1)


def tile_like(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """A fresh SBUF tile in the shape of `x`, and in its dtype unless told."""
    return ndarray(tile_shape(x.shape), dtype or x.dtype)


def require_tensor(who: str, name: str, value: Any) -> NkiTensor:
    """`value` if it is a tensor, else a refusal."""
    if not isinstance(value, NkiTensor):
        refuse(who, f"{name}={value!r}", f"{name} is a tile", "make one with nl.full")
    return value


def free_axes(x: NkiTensor, axis: int | tuple[int, ...] | list[int]) -> Shape:
    """Axis numbers counted from the front, in order."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(sorted(number + x.ndim if number < 0 else number for number in axes))


def stretch(column: NkiTensor, shape: Shape) -> NkiTensor:
    """A view of `column` that repeats its free dimensions of size 1 up to `shape`."""
    view = column
    for dim in range(1, len(shape)):
        if view.shape[dim] == 1 and shape[dim] != 1:
            view = view.broadcast(dim, shape[dim])
    return view
