"""Tensors as arrays and back, without copies where memory allows."""

from __future__ import annotations

from typing import Any, Protocol

import ml_dtypes
import numpy as np
import torch

Array = np.ndarray[Any, Any]


def to_array(tensor: torch.Tensor) -> Array:
    """The values of a CPU tensor. NumPy has no bfloat16 of its own, so that is passed as bits.

    Not by `Tensor.numpy`: that fixes the size of the memory for good, which FSDP2 frees and fills
    again. So an array is to be read before its tensor's memory changes.
    """
    dense = tensor.detach().contiguous()
    if dense.dtype == torch.bfloat16:
        return np.from_dlpack(dense.view(torch.int16)).view(ml_dtypes.bfloat16)
    return np.from_dlpack(dense)


def to_tensor(array: Array) -> torch.Tensor:
    """The same values as a tensor."""
    dense = np.require(array, requirements=["C", "W"])
    if dense.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(dense.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(dense)


class HasType(Protocol):
    """A tensor, or what knows the type of one."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""


def dtype_name(tensor: HasType) -> str:
    """The type of its elements, as kernels and plans call it."""
    return str(tensor.dtype).removeprefix("torch.")
