"""What a kernel returns was written by it, or given to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import refuse

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor


def require_written(title: str, returned: list[NkiTensor]) -> None:
    """Refuse a result that no instruction wrote and that is no argument: it would be garbage."""
    for position, tensor in enumerate(returned):
        if not (tensor.storage.written or tensor.storage.given):
            refuse(
                title,
                f"output {position}, tensor {tensor.name!r} {tensor.shape}, is never written",
                "a fresh HBM tensor holds whatever was there before",
                "copy a result into it with nisa.dma_copy, or return another tensor",
            )
