"""The `nki.typing` namespace: `tensor[128, 512]` in annotations. Annotations have no effect."""

from __future__ import annotations

from types import GenericAlias

__all__ = ["mutable_tensor", "tensor"]


class tensor:
    """Annotation of a tensor, with or without its shape."""

    def __class_getitem__(cls, shape: int | tuple[int, ...]) -> GenericAlias:
        return GenericAlias(cls, shape)


class mutable_tensor(tensor):
    """Annotation of a tensor that the kernel writes."""
