"""nl.sum, max, min, mean, prod, var and all: over trailing free dimensions of a tile."""

from __future__ import annotations

from functools import partial
from math import prod as product
from typing import TypeAlias

import nkisim.isa as nisa
from nkisim.language.creation import ndarray
from nkisim.language.tiles import free_axes, require_tensor, stretch, tile_like, tile_shape
from nkisim.numerics import operators
from nkisim.numerics.operators.operator import Operator
from nkisim.tensors.tensor import NkiTensor

Axis: TypeAlias = int | tuple[int, ...] | list[int]


def reduce_tile(
    op: Operator, x: NkiTensor, axis: Axis, dtype: str | None = None, keepdims: bool = False
) -> NkiTensor:
    """`x` folded over free axes by one instruction; a tile keeps one free dimension at least."""
    axes = free_axes(require_tensor(f"{op!r}", "x", x), axis)
    kept = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
    dropped = [size for dim, size in enumerate(x.shape) if dim not in axes]
    result = ndarray(tile_shape(tuple(kept if keepdims else dropped)), dtype or x.dtype)
    nisa.tensor_reduce(result, op, x, axes, keepdims=keepdims)
    return result


def sum(x: NkiTensor, axis: Axis, dtype: str | None = None, keepdims: bool = False) -> NkiTensor:
    """The sum."""
    return reduce_tile(operators.add, x, axis, dtype, keepdims)


def prod(x: NkiTensor, axis: Axis, dtype: str | None = None, keepdims: bool = False) -> NkiTensor:
    """The product."""
    return reduce_tile(operators.multiply, x, axis, dtype, keepdims)


def mean(x: NkiTensor, axis: Axis, dtype: str | None = None, keepdims: bool = False) -> NkiTensor:
    """The mean; the sum is kept in float32."""
    total = reduce_tile(operators.add, x, axis, "float32", keepdims)
    result = tile_like(total, dtype or x.dtype)
    nisa.tensor_scalar(result, total, operators.multiply, 1 / _count(x, axis))
    return result


def var(x: NkiTensor, axis: Axis, dtype: str | None = None, keepdims: bool = False) -> NkiTensor:
    """The mean squared distance from the mean; reduced axes are kept, as NKI documents."""
    centre = mean(x, axis, "float32", keepdims=True)
    distance = tile_like(x, "float32")
    nisa.tensor_tensor(distance, x, stretch(centre, x.shape), operators.subtract)
    nisa.tensor_tensor(distance, distance, distance, operators.multiply)
    return mean(distance, axis, dtype or x.dtype, keepdims=True)


def all(x: NkiTensor, axis: Axis, dtype: str | None = None) -> NkiTensor:
    """1 where no element is 0, else 0."""
    return reduce_tile(operators.logical_and, x, axis, dtype)


def _count(x: NkiTensor, axis: Axis) -> int:
    return product(x.shape[dim] for dim in free_axes(x, axis))


operators.max.eager = partial(reduce_tile, operators.max)
operators.min.eager = partial(reduce_tile, operators.min)
