"""Stride arithmetic of reshape and rearrange; plain tuples in, plain tuples out."""

from __future__ import annotations

from typing import Any

from nkisim.errors import refuse

Shape = tuple[int, ...]


def row_major_strides(shape: Shape) -> Shape:
    """Strides, in elements, of a fresh tensor."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return tuple(strides)


def product(sizes: Shape) -> int:
    """Number of elements of a shape."""
    total = 1
    for size in sizes:
        total *= size
    return total


def fill_minus_one(sizes: Shape, total: int, method: str) -> Shape:
    """Sizes that hold `total` elements, with one -1 worked out."""
    known = product(tuple(size for size in sizes if size != -1))
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        sizes = tuple(total // known if size == -1 else size for size in sizes)
    if product(sizes) != total or min(sizes, default=1) < 1:
        refuse(
            method,
            f"{sizes} for {total} elements",
            "the element count stays the same and at most one size is -1",
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
    pairs = zip(block, block[1:], strict=False)
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairs)


def regroup(
    shape: Shape, src: tuple[Any, ...], dst: tuple[Any, ...], fixed: dict[str, int]
) -> tuple[list[Shape], Shape, list[tuple[int, int]]]:
    """Plan a rearrange: sizes each source dimension splits into, the permutation of all the named
    axes, and for each destination dimension the (first, last) axes it merges (first > last: none).
    """
    src_groups = [_group(item) for item in src]
    dst_groups = [_group(item) for item in dst]
    names = [name for group in src_groups for name in group]
    wanted = [name for group in dst_groups for name in group]
    if len(src_groups) != len(shape) or sorted(names) != sorted(wanted):
        refuse(
            "rearrange",
            f"{src} -> {dst} on shape {shape}",
            "one source entry per dimension, and the same names on both sides",
            "fix the patterns",
        )
    split = [_split(group, n, fixed) for group, n in zip(src_groups, shape, strict=True)]
    order = tuple(names.index(name) for name in wanted)
    merges: list[tuple[int, int]] = []
    at = 0
    for group in dst_groups:
        merges.append((at, at + len(group) - 1))
        at += len(group)
    return split, order, merges


def _group(item: Any) -> tuple[str, ...]:
    return tuple(item) if isinstance(item, (tuple, list)) else (item,)


def _split(group: tuple[str, ...], size: int, fixed: dict[str, int]) -> Shape:
    unknown = [name for name in group if name not in fixed]
    known = 1
    for name in group:
        known *= fixed.get(name, 1)
    if len(group) == 1:
        return (size,)
    if len(unknown) > 1 or size % known:
        refuse(
            "rearrange",
            f"group {group} of a dimension of {size} elements with sizes {fixed}",
            "all but one size of a group are given, and they divide the dimension",
            "pass fixed_sizes",
        )
    return tuple(fixed.get(name, size // known) for name in group)
