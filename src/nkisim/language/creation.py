"""Making tensors: nl.ndarray and its filled relatives, constants, identity matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkisim.errors import NkiValidationError, refuse
from nkisim.isa.dma import dma_copy
from nkisim.isa.move import memset
from nkisim.memory.layout import MemoryRegion
from nkisim.numerics import dtypes
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

_SBUF = MemoryRegion.sbuf


def ndarray(
    shape: Sequence[int],
    dtype: str,
    buffer: MemoryRegion = _SBUF,
    name: str | None = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """An uninitialised tensor; reading it before writing gives NaN (4 for integers).

    `address` is (partition, byte in the partition) and turns automatic placement off.
    """
    if not isinstance(buffer, MemoryRegion):
        refuse(
            "nl.ndarray", f"buffer={buffer!r}", "an nl memory region", "use nl.sbuf, nl.psum ..."
        )
    session = current()
    storage = session.allocate(shape, dtype, buffer, name or None, address)
    return NkiTensor(storage.shape, storage.dtype, storage, buffer)


def zeros(
    shape: Sequence[int], dtype: str, buffer: MemoryRegion = _SBUF, name: str | None = ""
) -> NkiTensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(
    shape: Sequence[int], dtype: str, buffer: MemoryRegion = _SBUF, name: str | None = ""
) -> NkiTensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def full(
    shape: Sequence[int],
    fill_value: float,
    dtype: str,
    buffer: MemoryRegion = _SBUF,
    name: str | None = "",
) -> NkiTensor:
    """A tensor of one value; HBM tensors are filled through an SBUF row."""
    tensor = ndarray(shape, dtype, buffer, name)
    if buffer in (MemoryRegion.sbuf, MemoryRegion.psum):
        memset(tensor, fill_value)
        return tensor
    row = ndarray((1, 1), dtype, MemoryRegion.sbuf)
    memset(row, fill_value)
    dma_copy(tensor, row.ap([[1, 1], [0, tensor.size]]))
    return tensor


def zeros_like(
    x: NkiTensor,
    dtype: str | None = None,
    buffer: MemoryRegion | None = None,
    name: str | None = "",
) -> NkiTensor:
    """Zeros in the shape of `x`, and in its dtype and buffer unless told."""
    return zeros(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def empty_like(
    x: NkiTensor,
    dtype: str | None = None,
    buffer: MemoryRegion | None = None,
    name: str | None = "",
) -> NkiTensor:
    """Uninitialised, in the shape of `x`, and in its dtype and buffer unless told."""
    return ndarray(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def shared_constant(constant: Any) -> NkiTensor:
    """A shared_hbm tensor that holds a NumPy array, or the array of a .npy file."""
    array = _constant_array(constant)
    dtype, values = dtypes.from_host(array)
    tensor = ndarray(array.shape, dtype, MemoryRegion.shared_hbm)
    tensor.storage.given = True
    if current().values:
        tensor.storage.adopt(np.ascontiguousarray(values).reshape(-1))
    return tensor


def _constant_array(constant: Any) -> np.ndarray[Any, Any]:
    try:
        return np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    except (OSError, ValueError) as problem:
        raise NkiValidationError(
            f"a constant that cannot be read: {problem}",
            instruction="nl.shared_constant",
            limit="a NumPy array, or the path of a .npy file",
            remedy="pass an array, or check the path",
        ) from None


def shared_identity_matrix(n: int, dtype: str = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """The n x n identity in SBUF, loaded from a constant."""
    kind = dtypes.canonical(dtype)
    most = current().machine.partitions
    if isinstance(n, (int, np.integer)) and not 1 <= n <= most:
        refuse("nl.shared_identity_matrix", f"n={n}", f"1..{most} partitions", "tile the matrix")
    identity = dtypes.to_host(dtypes.from_float32(np.eye(n, dtype=np.float32), kind), kind)
    tile = ndarray((n, n), kind) if dst is None else dst
    dma_copy(tile, shared_constant(identity))
    return tile
