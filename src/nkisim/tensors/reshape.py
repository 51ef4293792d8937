"""Stride arithmetic of the view methods; shapes and strides in, shapes and strides out.

`pinned` says why dimension 0 may not be touched: "in sbuf", "in psum" or "gathered by rows"; None
where it is a dimension like the others.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from nkisim.errors import refuse

Shape = tuple[int, ...]
Pinned = str | None


class Dims(NamedTuple):
    """Shape and strides of a view, both in elements."""

    shape: Shape
    strides: Shape

    def replace(self, dim: int, sizes: Shape, strides: Shape) -> Dims:
        """The dimension `dim` gives way to others."""
        shape = (*self.shape[:dim], *sizes, *self.shape[dim + 1 :])
        return Dims(shape, (*self.strides[:dim], *strides, *self.strides[dim + 1 :]))


def row_major_strides(shape: Shape) -> Shape:
    """Strides, in elements, of a fresh tensor."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return tuple(strides)


def require_dim(method: str, dim: int, ndim: int) -> None:
    """Refuse a dimension number outside 0..ndim - 1; negative ones are not part of the API."""
    if not 0 <= dim < ndim:
        refuse(method, f"dimension {dim}", f"dimensions 0..{ndim - 1}", "count from the first")


def permuted(old: Dims, dims: Shape, pinned: Pinned) -> Dims:
    """Reorder dimensions."""
    if sorted(dims) != list(range(len(old.shape))):
        last = len(old.shape) - 1
        refuse("permute", f"dims {dims}", f"a permutation of 0..{last}", "name every one once")
    if pinned and dims[0] != 0:
        _refuse_pinned("permute", f"dims {dims}", pinned)
    shape = tuple([old.shape[dim] for dim in dims])
    return Dims(shape, tuple([old.strides[dim] for dim in dims]))


def repeated(old: Dims, dim: int, size: int, pinned: Pinned) -> Dims:
    """Repeat a dimension of size 1 with stride 0."""
    require_dim("broadcast", dim, len(old.shape))
    if old.shape[dim] != 1 or size < 1:
        refuse(
            "broadcast",
            f"dimension {dim} of size {old.shape[dim]} to {size} elements",
            "a dimension of size 1 is repeated 1 or more times",
            "insert one with expand_dim",
        )
    if pinned and dim == 0:
        _refuse_pinned("broadcast", "dimension 0", pinned)
    return old.replace(dim, (size,), (0,))


def expanded(old: Dims, dim: int, pinned: Pinned) -> Dims:
    """Insert a dimension of size 1."""
    require_dim("expand_dim", dim, len(old.shape) + 1)
    if pinned and dim == 0:
        _refuse_pinned("expand_dim", "dimension 0", pinned)
    shape = (*old.shape[:dim], 1, *old.shape[dim:])
    return Dims(shape, (*old.strides[:dim], 0, *old.strides[dim:]))


def squeezed(old: Dims, dim: int, pinned: Pinned) -> Dims:
    """Remove a dimension of size 1."""
    require_dim("squeeze_dim", dim, len(old.shape))
    if pinned and dim == 0:
        _refuse_pinned("squeeze_dim", "dimension 0", pinned)
    if old.shape[dim] != 1 or len(old.shape) == 1:
        refuse(
            "squeeze_dim",
            f"dimension {dim} of shape {old.shape}",
            "a dimension of size 1 can be removed, and one dimension stays",
            "use select to fix an index",
        )
    return old.replace(dim, (), ())


def split(old: Dims, dim: int, shape: Shape, pinned: Pinned) -> Dims:
    """Split one dimension; one size may be -1."""
    require_dim("reshape_dim", dim, len(old.shape))
    sizes = fill_minus_one(tuple(shape), old.shape[dim], "reshape_dim")
    if pinned and dim == 0 and sizes != old.shape[:1]:
        _refuse_pinned("reshape_dim", f"split of dimension 0 into {sizes}", pinned)
    inner = row_major_strides(sizes)
    return old.replace(dim, sizes, tuple([stride * old.strides[dim] for stride in inner]))


def merged(old: Dims, first: int, last: int, pinned: Pinned) -> Dims:
    """Merge the dimensions first..last (inclusive) into one."""
    require_dim("flatten_dims", first, len(old.shape))
    require_dim("flatten_dims", last, len(old.shape))
    if pinned and first == 0:
        _refuse_pinned("flatten_dims", f"dimensions 0..{last}", pinned)
    shape, strides = old.shape[first : last + 1], old.strides[first : last + 1]
    joined = reshape_strides(shape, strides, (math.prod(shape),))
    if joined is None or first > last:
        refuse(
            "flatten_dims",
            f"dimensions {first}..{last} of shape {old.shape}, strides {old.strides}",
            "merged dimensions follow each other without gaps",
            "copy into a fresh tile, or keep the dimensions apart",
        )
    new_shape = (*old.shape[:first], math.prod(shape), *old.shape[last + 1 :])
    return Dims(new_shape, (*old.strides[:first], *joined, *old.strides[last + 1 :]))


def reshaped(old: Dims, shape: Shape, pinned: Pinned) -> Dims:
    """Another shape over the same elements; one size may be -1."""
    sizes = fill_minus_one(tuple(shape), math.prod(old.shape), "reshape")
    kept = 1 if pinned else 0
    if pinned and sizes[0] != old.shape[0]:
        _refuse_pinned("reshape", f"shape {sizes} from {old.shape}", pinned)
    strides = reshape_strides(old.shape[kept:], old.strides[kept:], sizes[kept:])
    if strides is None:
        refuse(
            "reshape",
            f"shape {sizes} from {old.shape} with strides {old.strides}",
            "a view cannot gather scattered elements into one dimension",
            "copy into a fresh tile first",
        )
    return Dims(sizes, (*old.strides[:kept], *strides))


def fill_minus_one(sizes: Shape, total: int, method: str) -> Shape:
    """Sizes that hold `total` elements, with one -1 worked out."""
    known = math.prod(tuple([size for size in sizes if size != -1]))
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        sizes = tuple([total // known if size == -1 else size for size in sizes])
    if not sizes or math.prod(sizes) != total or min(sizes) < 1:
        refuse(
            method,
            f"{sizes} for {total} elements",
            "one size or more, the same element count, and at most one -1",
            "fix the sizes",
        )
    return sizes


def reshape_strides(shape: Shape, strides: Shape, new_shape: Shape) -> Shape | None:
    """Strides that give `new_shape` over the same elements without a copy, or None."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result = [0] * len(new_shape)
    old_at = 0
    new_at = 0
    while new_at < len(new_shape):
        new_end, old_end, matched = _match_block(new_shape, new_at, old, old_at)
        if not matched or not _uniform(old[old_at:old_end]):
            return None
        stride = old[old_end - 1][1] if old_end > old_at else 1
        for dim in range(new_end - 1, new_at - 1, -1):
            result[dim] = stride
            stride *= new_shape[dim]
        old_at, new_at = old_end, new_end
    for dim in range(len(new_shape) - 2, -1, -1):
        if new_shape[dim] == 1:  # as in a fresh tensor: run-time offsets may step by it
            result[dim] = result[dim + 1] * new_shape[dim + 1]
    return tuple(result) if old_at == len(old) else None


def _match_block(
    new_shape: Shape, new_at: int, old: list[tuple[int, int]], old_at: int
) -> tuple[int, int, bool]:
    """Grow both sides until they hold the same number of elements: (new_end, old_end, matched)."""
    new_end, new_count = new_at + 1, new_shape[new_at]
    old_end, old_count = old_at, 1
    while new_count != old_count:
        if new_count < old_count:
            if new_end == len(new_shape):
                return new_end, old_end, False
            new_count *= new_shape[new_end]
            new_end += 1
        else:
            if old_end == len(old):
                return new_end, old_end, False
            old_count *= old[old_end][0]
            old_end += 1
    return new_end, old_end, True


def _uniform(block: list[tuple[int, int]]) -> bool:
    """Whether the dimensions follow each other without gaps."""
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairwise(block))


def _refuse_pinned(method: str, what: str, pinned: str) -> NoReturn:
    refuse(
        method,
        f"{what} on a tensor {pinned}",
        "the partition dimension (0) of an on-chip or gathered tensor stays as it is",
        "move data between partitions with nc_transpose, dma_copy or nc_stream_shuffle",
    )


def regroup(
    shape: Shape, src: tuple[Any, ...], dst: tuple[Any, ...], fixed: dict[str, int]
) -> tuple[list[Shape], Shape, list[tuple[int, int]]]:
    """Plan a rearrange: (sizes, permutation, merges).

    The sizes each source dimension splits into, the permutation of all the named axes, and for
    each destination dimension the (first, last) axes it merges (first > last: none).
    """
    src_groups = [_group(item) for item in src]
    dst_groups = [_group(item) for item in dst]
    names = [name for group in src_groups for name in group]
    wanted = [name for group in dst_groups for name in group]
    once = len(set(names)) == len(names) and not set(fixed) - set(names)
    if len(src_groups) != len(shape) or sorted(names) != sorted(wanted) or not once:
        refuse(
            "rearrange",
            f"{src} -> {dst} on shape {shape} with sizes {fixed}",
            "one source entry per dimension, and the same names, each once, on both sides",
            "fix the patterns",
        )
    parts = [_split_sizes(group, n, fixed) for group, n in zip(src_groups, shape, strict=True)]
    order = tuple([names.index(name) for name in wanted])
    merges: list[tuple[int, int]] = []
    at = 0
    for group in dst_groups:
        merges.append((at, at + len(group) - 1))
        at += len(group)
    return parts, order, merges


def _group(item: Any) -> tuple[str, ...]:
    return tuple(item) if isinstance(item, (tuple, list)) else (item,)


def _split_sizes(group: tuple[str, ...], size: int, fixed: dict[str, int]) -> Shape:
    known = math.prod(tuple([fixed[name] for name in group if name in fixed]))
    unknown = sum(name not in fixed for name in group)
    divides = known > 0 and size % known == 0
    if unknown > 1 or not divides or (unknown == 0 and known != size):
        refuse(
            "rearrange",
            f"group {group} of a dimension of {size} elements with sizes {fixed}",
            "all but one size of a group are given, and they divide the dimension",
            "pass fixed_sizes",
        )
    return tuple([fixed.get(name, size // known) for name in group])
