"""What autograd records of a patched model, and runs: nothing of that is recorded.

A model whose parameters and inputs want no gradient may meet a tensor that does: in a closure, an
attribute, a namespace among its arguments. Gradients stay on as its caller has them, so autograd
sees what it would see of the unpatched model; from that tensor on, operators run as they are.
"""

from __future__ import annotations

from typing import Any

import torch

from trnconv.pytorch.lazy.base.pending_reads import alias_of, unseen
from trnconv.pytorch.lazy.base.traits import tensors_in
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor


def autograd_records(given: Any) -> bool:
    """Whether autograd records an operator with these arguments."""
    if not torch.is_grad_enabled():
        return False
    return any(tensor.requires_grad for tensor in tensors_in(given))


def is_differentiating() -> bool:
    """Whether this thread runs a backward pass, whose tensors C++ holds and nobody can settle."""
    task: int = torch._C._current_graph_task_id()  # noqa: SLF001 (torch's only name for it)
    return task >= 0


def plain_of(value: Any) -> Any:
    """The tensor that a lazy tensor stands for, with its history; anything else as it is."""
    if not isinstance(value, LazyTensor):
        return value
    if value.grad_fn is not None:
        with torch.enable_grad():
            return _Solid.apply(value)  # type: ignore[no-untyped-call]
    base = value._base if value._is_view() else None  # noqa: SLF001 (torch's names)
    if isinstance(base, LazyTensor) and _shares_memory(base, value):
        return _view_of_plain(base, value)
    plain = alias_of(value.solid()) if value.becomes is None else value.becomes
    return plain.requires_grad_() if value.requires_grad else plain


def _shares_memory(base: LazyTensor, view: LazyTensor) -> bool:
    """Not after `view.data = other`, nor if the base has a history that its view has not."""
    alike = base.view_of.cell is view.view_of.cell and base.dtype == view.dtype
    return alike and base.grad_fn is None


def _view_of_plain(base: LazyTensor, view: LazyTensor) -> Tensor:
    """A view of what the base becomes, so that autograd knows them for one memory then, too."""
    seen = view.solid()
    if base.becomes is None:
        base.becomes = alias_of(base.solid())
    with unseen():
        return base.becomes.as_strided(seen.shape, seen.stride(), seen.storage_offset())


class _Solid(torch.autograd.Function):
    """The memory of a lazy tensor. Its gradient is that of the lazy tensor."""

    @staticmethod
    def forward(_ctx: Any, lazy: LazyTensor) -> Tensor:
        return alias_of(lazy.solid())

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]
