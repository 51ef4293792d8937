"""Loads, stores, copies, transposes and products, each by an instruction into a fresh tile."""

from __future__ import annotations

from collections.abc import Sequence

import nkisim.isa as nisa
from nkisim.errors import UnsupportedError, refuse
from nkisim.language.creation import ndarray
from nkisim.language.tiles import require_tensor, stretch, tile_like
from nkisim.machine import V3
from nkisim.memory.layout import HBM, MemoryRegion
from nkisim.numerics import operators
from nkisim.running.environment import machine_in_use
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

_HALVES = frozenset({"bfloat16", "float16"})


def load(src: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """An SBUF tile with the values of an HBM tensor."""
    _require_hbm("nl.load", "src", src)
    tile = tile_like(src, dtype)
    nisa.dma_copy(tile, src)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write an SBUF tile to an HBM tensor."""
    _require_hbm("nl.store", "dst", dst)
    nisa.dma_copy(dst, require_tensor("nl.store", "value", value))


def copy(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """A copy of an SBUF or PSUM tile in SBUF, by the Vector engine."""
    result = tile_like(require_tensor("nl.copy", "x", x), dtype)
    nisa.tensor_copy(result, x, engine=nisa.engine.vector)
    return result


def load_transpose2d(src: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """An SBUF tile with the transpose of a 2-D HBM tensor."""
    _require_hbm("nl.load_transpose2d", "src", src)
    rows, columns = _two_dimensions("nl.load_transpose2d", src)
    tile = ndarray((columns, rows), src.dtype)
    nisa.dma_transpose(tile, src)
    return _in_dtype(tile, dtype)


def transpose(x: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """The transpose of a 2-D SBUF tile, in PSUM."""
    rows, columns = _two_dimensions("nl.transpose", require_tensor("nl.transpose", "x", x))
    widened = machine_in_use().generation < V3 and x.dtype in _HALVES  # its PE writes fp32
    result = ndarray((columns, rows), "float32" if widened else x.dtype, MemoryRegion.psum)
    nisa.nc_transpose(result, x, engine=nisa.engine.tensor)
    return _in_dtype(result, dtype or x.dtype)


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y in PSUM, in float32; only transpose_x=True works in NKI 0.6."""
    if not transpose_x:
        raise UnsupportedError(
            "transpose_x=False",
            instruction="nl.matmul",
            limit="the contraction runs over partitions, so x comes in transposed",
            remedy="nl.matmul(nl.copy(nl.transpose(x)), y, transpose_x=True)",
        )
    _, rows = _two_dimensions("nl.matmul", require_tensor("nl.matmul", "x", x))
    _, columns = _two_dimensions("nl.matmul", require_tensor("nl.matmul", "y", y))
    result = ndarray((rows, columns), "float32", MemoryRegion.psum)
    nisa.nc_matmul(result, x, y)
    return result


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new dimension of size 1."""
    require_tensor("nl.expand_dims", "x", x)
    return x.expand_dim(axis + x.ndim + 1 if axis < 0 else axis)


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: str | None = None) -> NkiTensor:
    """`x` repeated along its dimensions of size 1; `x` itself where nothing changes."""
    sizes = tuple(shape)
    require_tensor("nl.broadcast_to", "x", x)
    if sizes == x.shape:
        return _in_dtype(x, dtype)
    if len(sizes) != x.ndim or any(a not in (1, b) for a, b in zip(x.shape, sizes, strict=True)):
        refuse(
            "nl.broadcast_to",
            f"shape {sizes} from {x.shape}",
            "the same rank, and sizes that are equal or grow from 1",
            "insert dimensions with nl.expand_dims first",
        )
    row = stretch(x, sizes)
    if row.shape[0] == sizes[0]:
        result = ndarray(sizes, dtype or x.dtype)
        nisa.tensor_copy(result, row)
        return result
    return _in_dtype(_to_partitions(row, sizes), dtype)


def gather_flattened(
    data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: str | None = None
) -> NkiTensor:
    """Per partition, the elements of the flattened free dimensions that `indices` number."""
    if axis != 0:
        raise UnsupportedError(
            f"axis={axis}",
            instruction="nl.gather_flattened",
            limit="only the default, 0, is documented to have a meaning",
            remedy="gather along the flattened free dimensions",
        )
    require_tensor("nl.gather_flattened", "data", data)
    result = tile_like(require_tensor("nl.gather_flattened", "indices", indices), data.dtype)
    nisa.nc_n_gather(result, data, indices)
    return _in_dtype(result, dtype)


def _to_partitions(row: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """One partition copied to many: a shuffle reaches the 32 partitions of one quadrant."""
    quadrant = current().machine.quadrant_partitions
    result = ndarray(shape, row.dtype)
    for first in range(0, shape[0], quadrant):
        last = min(first + quadrant, shape[0])
        nisa.nc_stream_shuffle(result[first:last], row, [0] * quadrant)
    return result


def _in_dtype(tile: NkiTensor, dtype: str | None) -> NkiTensor:
    """The tile, or a copy beside it in another dtype."""
    if dtype is None or dtype == tile.dtype:
        return tile
    cast = ndarray(tile.shape, dtype, tile.buffer)
    nisa.tensor_copy(cast, tile)
    return cast


def _require_hbm(who: str, name: str, tensor: NkiTensor) -> None:
    if require_tensor(who, name, tensor).buffer not in HBM:
        refuse(
            who,
            f"{name} lives in {tensor.buffer.value}",
            f"{name} is an HBM tensor",
            "copy between SBUF and PSUM with nl.copy",
        )


def _two_dimensions(who: str, tensor: NkiTensor) -> tuple[int, int]:
    if tensor.ndim != 2:
        refuse(who, f"a tensor of shape {tensor.shape}", "2 dimensions", "flatten or slice it")
    rows, columns = tensor.shape
    return rows, columns


operators.copy.eager = copy
