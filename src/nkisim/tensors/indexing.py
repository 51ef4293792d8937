"""`tensor[key]`: from a key to (shape, strides, offset), by NKI's rules for HBM and on-chip."""

from __future__ import annotations

from typing import Any, NamedTuple

from nkisim.errors import refuse
from nkisim.tensors.registers import RunTimeValue


class DynamicSlice(NamedTuple):
    """`nl.ds(register, size)`: a window whose start is known on the device only."""

    start: RunTimeValue
    size: int


def dynamic_slice(start: int | RunTimeValue, size: int) -> slice | DynamicSlice:
    """`nl.ds(start, size)`."""
    if isinstance(start, RunTimeValue):
        return DynamicSlice(start, size)
    return slice(start, start + size)


class Selection(NamedTuple):
    """What a key selects; `dynamic` is (register, elements per unit) or None."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dynamic: tuple[RunTimeValue, int] | None


def select_key(
    shape: tuple[int, ...], strides: tuple[int, ...], key: Any, *, on_chip: bool
) -> Selection:
    """Apply an indexing key to a view; `offset` is relative to the view."""
    keys = key if type(key) is tuple else (key,)
    if len(keys) > len(shape):
        keys = _expand_ellipsis(keys, len(shape))
    new_shape: list[int] = []
    new_strides: list[int] = []
    offset = 0
    dynamic = None
    dropped_stride = None
    for dim, item in enumerate(keys):
        size = shape[dim]
        stride = strides[dim]
        if type(item) is slice:
            start, count, step = _slice_bounds(item, size, dim)
            offset += start * stride
            new_shape.append(count)
            new_strides.append(stride * step)
        elif type(item) is DynamicSlice:
            if dynamic is not None:
                _refuse_second_dynamic()
            dynamic = (item.start, stride)
            new_shape.append(item.size)
            new_strides.append(stride)
        elif item is Ellipsis:
            whole = _expand_ellipsis(keys, len(shape))
            return select_key(shape, strides, whole, on_chip=on_chip)
        else:
            index = item if type(item) is int and 0 <= item < size else _index(item, size, dim)
            offset += index * stride
            if on_chip and dim == 0:
                new_shape.append(1)
                new_strides.append(stride)
            else:
                dropped_stride = stride
    given = len(keys)
    if given < len(shape):
        new_shape += shape[given:]
        new_strides += strides[given:]
    if dropped_stride is not None and len(new_shape) < (2 if on_chip else 1):
        new_shape.append(1)
        new_strides.append(dropped_stride)
    return Selection(tuple(new_shape), tuple(new_strides), offset, dynamic)


def _slice_bounds(item: slice, size: int, dim: int) -> tuple[int, int, int]:
    """(start, count, step) of a slice; unlike Python, bounds outside the dimension are refused."""
    start, stop, step = item.start, item.stop, item.step
    if start is None:
        start = 0
    if stop is None:
        stop = size
    if step is None:
        if type(start) is int is type(stop) and 0 <= start < stop <= size:
            return start, stop - start, 1
        step = 1
    start, stop, step = (_integer(bound, dim) for bound in (start, stop, step))
    if start < 0:
        start += size
    if stop < 0:
        stop += size
    if step < 1 or not 0 <= start < stop <= size:
        refuse(
            "tensor index",
            f"slice {item.start}:{item.stop}:{item.step} on dimension {dim}",
            f"0 <= start < stop <= {size} elements and step >= 1; bounds are not clamped",
            "cut the slice to the dimension",
        )
    return start, (stop - start + step - 1) // step, step


def _index(item: Any, size: int, dim: int) -> int:
    """An integer key, negative counted from the end."""
    index = _integer(item, dim)
    if not -size <= index < size:
        refuse(
            "tensor index",
            f"index {index} on dimension {dim}",
            f"the dimension has {size} elements",
            f"use an index in 0..{size - 1}",
        )
    return index % size


def _integer(item: Any, dim: int) -> int:
    """A Python integer, or a refusal; NumPy's integers count as such."""
    array = getattr(item, "ndim", 0) > 0
    if array or not hasattr(type(item), "__index__") or isinstance(item, (bool, RunTimeValue)):
        refuse(
            "tensor index",
            f"{type(item).__name__} key on dimension {dim}",
            "keys are integers, slices, nl.ds(...) and ...",
            "use nl.ds(register, size), .select(), .ap(scalar_offset=...) or .vector_select()",
        )
    return int(item.__index__())


def _expand_ellipsis(keys: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    where = [i for i, item in enumerate(keys) if item is Ellipsis]
    if len(where) > 1 or len(keys) - len(where) > ndim:
        refuse(
            "tensor index",
            f"{len(keys)} keys on a tensor of {ndim} dimensions",
            "at most one key per dimension and one ellipsis",
            "drop the extra keys",
        )
    if not where:
        return keys
    at = where[0]
    fill = (slice(None),) * (ndim - len(keys) + 1)
    return keys[:at] + fill + keys[at + 1 :]


def _refuse_second_dynamic() -> None:
    refuse(
        "tensor index",
        "two dynamic slices in one key",
        "one run-time offset per view",
        "combine the offsets into one register",
    )


def dynamic_room(shape: tuple[int, ...], key: Any) -> int:
    """How many values the start of the dynamic slice in `key` may take: 0, 1, ... below this."""
    keys = key if type(key) is tuple else (key,)
    at = next(i for i, item in enumerate(keys) if isinstance(item, DynamicSlice))
    after_ellipsis = Ellipsis in keys[:at]
    dim = len(shape) - len(keys) + at if after_ellipsis else at
    window = keys[at].size
    if not 1 <= window <= shape[dim]:
        refuse(
            "tensor index",
            f"nl.ds(register, {window}) on dimension {dim}",
            f"1..{shape[dim]} elements",
            "cut the window to the dimension",
        )
    return shape[dim] - int(window) + 1
