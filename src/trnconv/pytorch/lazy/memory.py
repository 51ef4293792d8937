"""Which tensors share memory, and which were changed in place. It works on the meta device too."""

from __future__ import annotations

import torch

from trnconv.errors import UnsupportedError

UNKNOWN = -1  # torch does not count for tensors made in inference mode


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are views of one storage."""
    return _storage(one) == _storage(other)


def _storage(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata  # noqa: SLF001 (there is no public identity)
    return key


def written(tensor: torch.Tensor) -> int:
    """How often the tensor, or one that shares its memory, was changed in place."""
    return UNKNOWN if tensor.is_inference() else tensor._version  # noqa: SLF001 (torch's name)


def require_unchanged(tensor: torch.Tensor, times: int) -> None:
    """Refuse to read what was changed since, by a function that saw no lazy tensor."""
    if times not in (UNKNOWN, written(tensor)):
        raise UnsupportedError(
            f"a tensor {list(tensor.shape)} was changed in place while a patched model still had to"
            " read it, by code that it does not see. Change a clone of it instead."
        )
