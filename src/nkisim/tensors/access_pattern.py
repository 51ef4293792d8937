"""Raw access patterns (`.ap`) and bit reinterpretation (`.view`) of a tensor's storage."""

from __future__ import annotations

from operator import index as as_int
from typing import TYPE_CHECKING, TypeVar

from nkisim.errors import refuse
from nkisim.memory.layout import ON_CHIP, Layout, layout_of
from nkisim.numerics import dtypes
from nkisim.source_lines import warn_user
from nkisim.tensors.offsets import require_row_numbers
from nkisim.tensors.reshape import Shape
from nkisim.tensors.strided_tensor import StridedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


T = TypeVar("T", bound=StridedTensor)


def make_pattern_view(
    tensor: T,
    pattern: Sequence[Sequence[int]],
    offset: int | None,
    dtype: str,
    indirection: Any = None,
) -> T:
    """The view with these (step, count) pairs on the storage of `tensor`."""
    if tensor.indirection is not None:
        refuse("ap", "a view with a run-time offset", "static views only", "use the base tensor")
    steps, counts = _steps_and_counts(pattern)
    start = tensor.offset if offset is None else as_int(offset)
    if offset is not None and tensor.offset:
        warn_user(
            ".ap(offset=...) on a sliced tensor: the offset is taken as absolute in the storage; "
            "NKI's documents disagree, so call .ap on the base tensor",
            UserWarning,
        )
    if dtype != tensor.dtype:
        _require_whole_rows(tensor, dtype)
        if offset is None:
            start = rescale("offset", start, tensor.dtype, dtype)
    view = tensor._view(counts, steps, start)  # noqa: SLF001 (same concept, split by size)
    view.dtype = dtype
    view.indirection = indirection
    if indirection is not None and indirection.gathers_rows:
        require_row_numbers("ap", indirection.rows, counts[0])
        _require_in_hbm(view, _one_row(view))  # the first step plays no part: rows are numbered
    elif view.storage.allocation.region in ON_CHIP:
        _require_on_chip(view)
    else:
        _require_in_hbm(view, view.layout)
    return view


def reinterpret(tensor: T, dtype: str) -> T:
    """The same bits as `dtype`: the last dimension grows or shrinks with the element size."""
    old_bytes = dtypes.itemsize_bytes(tensor.dtype)
    new_bytes = dtypes.itemsize_bytes(dtype)
    if tensor.indirection is not None:
        refuse("view", "a view with a run-time offset", "static views only", "view first")
    shape, strides, offset = tensor.shape, tensor.strides, tensor.offset
    if old_bytes != new_bytes:
        _require_scalable(tensor, dtype)
        strides = (*[stride * old_bytes // new_bytes for stride in strides[:-1]], 1)
        shape = (*shape[:-1], shape[-1] * old_bytes // new_bytes)
        offset = offset * old_bytes // new_bytes
    view = tensor._view(shape, strides, offset)  # noqa: SLF001 (same concept, split by size)
    view.dtype = dtype
    return view


def rescale(what: str, elems: int, old: str, new: str) -> int:
    """A number of `old` elements as the number of `new` elements that take the same bytes."""
    total = elems * dtypes.itemsize_bytes(old)
    size = dtypes.itemsize_bytes(new)
    if total % size:
        refuse("ap", f"{what} of {total} bytes as {new}", f"a multiple of {size} B", "align it")
    return total // size


def _require_scalable(tensor: StridedTensor, dtype: str) -> None:
    old_bytes, new_bytes = dtypes.itemsize_bytes(tensor.dtype), dtypes.itemsize_bytes(dtype)
    partitions = tensor.buffer in ON_CHIP
    if (partitions and tensor.ndim == 1) or (tensor.shape[-1] != 1 and tensor.strides[-1] != 1):
        refuse(
            "view",
            f"{tensor.dtype} as {dtype} with a last stride of {tensor.strides[-1]} elements",
            "the last dimension is contiguous",
            "reinterpret before slicing with a step",
        )
    outer = zip(tensor.shape[:-1], tensor.strides[:-1], strict=True)
    steps = [stride for dim, (n, stride) in enumerate(outer) if n > 1 or (partitions and dim == 0)]
    if any(elems * old_bytes % new_bytes for elems in (*steps, tensor.shape[-1], tensor.offset)):
        refuse(
            "view",
            f"{tensor.dtype} {tensor.shape} at element {tensor.offset} as {dtype}",
            f"{new_bytes}-byte elements need sizes and offsets that are multiples of {new_bytes} B",
            "align the slice, or use .ap(dtype=...)",
        )


def _require_whole_rows(tensor: StridedTensor, dtype: str) -> None:
    """On chip a partition holds a whole number of elements of every type it is looked at with."""
    storage = tensor.storage
    if storage.allocation.region in ON_CHIP:
        rescale("partition row", storage.free_elems, storage.dtype, dtype)


def _steps_and_counts(pattern: Sequence[Sequence[int]]) -> tuple[Shape, Shape]:
    if not pattern or any(len(pair) != 2 or as_int(pair[1]) < 1 for pair in pattern):
        refuse("ap", f"pattern {pattern}", "[step, count] pairs, counts of 1 or more", "fix it")
    steps = tuple([as_int(pair[0]) for pair in pattern])
    return steps, tuple([as_int(pair[1]) for pair in pattern])


def _one_row(view: StridedTensor) -> Layout:
    return layout_of(view.buffer, view.dtype, view.shape[1:] or (1,), view.strides[1:] or (1,))


def _require_in_hbm(view: StridedTensor, layout: Layout) -> None:
    storage = view.storage
    stored = dtypes.itemsize_bytes(storage.dtype)
    total = storage.size * stored // dtypes.itemsize_bytes(view.dtype)
    first, last = view.offset + layout.low, view.offset + layout.high
    if first < 0 or last >= total:
        _refuse_outside(view, f"elements 0..{total - 1} of the tensor (asked: {first}..{last})")


def _require_on_chip(view: StridedTensor) -> None:
    """The first pair walks whole partitions; the others stay in the row of a partition."""
    pitch, layout = view.pitch_elems, view.layout
    if view.shape[0] > 1 and view.strides[0] != pitch:
        refuse(
            "ap",
            f"first pair [{view.strides[0]}, {view.shape[0]}] on tensor {view.name!r}",
            f"on chip the first step is the partition pitch, {pitch} elements",
            f"start the pattern with [{pitch}, partitions]",
        )
    row, start = divmod(view.offset, pitch)
    partitions = view.storage.shape[0]
    if row < 0 or row + view.shape[0] > partitions:
        asked = f"{row}..{row + view.shape[0] - 1}"
        _refuse_outside(view, f"partitions 0..{partitions - 1} of the tensor (asked: {asked})")
    first, last = start + layout.low, start + layout.high
    if first < 0 or last >= pitch:
        _refuse_outside(view, f"elements 0..{pitch - 1} of a partition (asked: {first}..{last})")


def _refuse_outside(view: StridedTensor, limit: str) -> None:
    refuse(
        "ap",
        f"pattern {view.get_pattern()} at offset {view.offset} on tensor {view.name!r}",
        limit,
        "shorten the pattern or move the offset",
    )
