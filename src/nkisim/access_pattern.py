"""Raw access patterns (`.ap`) and bit reinterpretation (`.view`) of a tensor's storage."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from nkisim import dtypes
from nkisim.errors import refuse
from nkisim.layout import ON_CHIP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.tensor import NkiTensor


def make_pattern_view(
    tensor: NkiTensor, pattern: Sequence[Sequence[int]], offset: int | None, dtype: str
) -> NkiTensor:
    """The view with these (step, count) pairs on the storage of `tensor`."""
    steps = tuple(int(pair[0]) for pair in pattern)
    counts = tuple(int(pair[1]) for pair in pattern)
    if not counts or min(counts) < 1:
        refuse("ap", f"pattern {pattern}", "every count is at least 1", "fix the pattern")
    start = tensor.offset if offset is None else offset
    if offset is not None and tensor.offset:
        warnings.warn(
            ".ap(offset=...) on a sliced tensor: the offset is taken as absolute in the storage; "
            "NKI's documents disagree, so call .ap on the base tensor",
            stacklevel=3,
        )
    if dtype != tensor.dtype:
        dtypes.itemsize_bytes(dtype)
        if offset is None:
            start = _rescale(start, tensor.dtype, dtype)
    view = tensor._view(counts, steps, start)  # noqa: SLF001 (same concept, split by size)
    view.dtype = dtype
    view.indirection = None
    _require_inside(view)
    return view


def reinterpret(tensor: NkiTensor, dtype: str) -> NkiTensor:
    """The same bits as `dtype`: the last dimension grows or shrinks with the element size."""
    old_bytes = dtypes.itemsize_bytes(tensor.dtype)
    new_bytes = dtypes.itemsize_bytes(dtype)
    if tensor.indirection is not None:
        refuse("view", "a view with a run-time offset", "static views only", "view first")
    if old_bytes == new_bytes:
        view = tensor._view(tensor.shape, tensor.strides, tensor.offset)  # noqa: SLF001
        view.dtype = dtype
        return view
    if tensor.shape[-1] != 1 and tensor.strides[-1] != 1:
        refuse(
            "view",
            f"{tensor.dtype} as {dtype} with a last stride of {tensor.strides[-1]} elements",
            "the last dimension is contiguous",
            "reinterpret before slicing with a step",
        )
    last_bytes = tensor.shape[-1] * old_bytes
    outer = tensor.strides[:-1]
    scaled = [stride * old_bytes for stride in (*outer, tensor.offset)]
    if last_bytes % new_bytes or any(byte % new_bytes for byte in scaled):
        refuse(
            "view",
            f"{tensor.dtype} {tensor.shape} at element {tensor.offset} as {dtype}",
            f"{new_bytes}-byte elements need sizes and offsets that are multiples of {new_bytes} B",
            "align the slice, or use .ap(dtype=...)",
        )
    strides = (*(byte // new_bytes for byte in scaled[:-1]), 1)
    shape = (*tensor.shape[:-1], last_bytes // new_bytes)
    view = tensor._view(shape, strides, scaled[-1] // new_bytes)  # noqa: SLF001
    view.dtype = dtype
    return view


def _rescale(elems: int, old: str, new: str) -> int:
    total = elems * dtypes.itemsize_bytes(old)
    size = dtypes.itemsize_bytes(new)
    if total % size:
        refuse("ap", f"offset of {total} bytes as {new}", f"a multiple of {size} B", "align it")
    return total // size


def _require_inside(view: NkiTensor) -> None:
    """Refuse patterns that leave the storage, or on chip the row of a partition."""
    storage = view.storage
    total = storage.size * dtypes.itemsize_bytes(storage.dtype) // dtypes.itemsize_bytes(view.dtype)
    layout = view.layout
    if storage.allocation.region in ON_CHIP:
        pitch = view.pitch_elems
        if view.shape[0] > 1 and view.strides[0] != pitch:
            refuse(
                "ap",
                f"first pair [{view.strides[0]}, {view.shape[0]}] on tensor {view.name!r}",
                f"on chip the first step is the partition pitch, {pitch} elements",
                f"start the pattern with [{pitch}, partitions]",
            )
        first = view.offset % pitch + layout.low
        last = view.offset % pitch + layout.high
        limit = pitch
        rows = view.offset // pitch + view.shape[0]
        inside = rows * pitch <= total
    else:
        first, last, limit, inside = view.offset + layout.low, view.offset + layout.high, total, True
    if first < 0 or last >= limit or not inside:
        refuse(
            "ap",
            f"pattern {view.get_pattern()} at offset {view.offset} on tensor {view.name!r}",
            f"elements 0..{limit - 1} of {'a partition' if limit != total else 'the tensor'}"
            f" (asked: {first}..{last})",
            "shorten the pattern or move the offset",
        )
