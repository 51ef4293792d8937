"""LazyTensor: a torch.Tensor whose memory is recorded, and made when somebody looks at it.

It is a wrapper subclass: torch sends every operator with one among its arguments to
`__torch_dispatch__` (`mode.py`). What torch does not send there looks at the tensor here.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.frames.video import LazyVideo
from trnconv.pytorch.lazy.tensors.cell import ViewOf

Tensor = torch.Tensor
_NOT_DISPATCHED = """numpy __array__ tolist data_ptr untyped_storage storage __dlpack__
__dlpack_device__ share_memory_ is_shared __reduce_ex__ _typed_storage""".split()


class _Alive(threading.local):
    """Of this thread: one run must not settle another's tensors. Oldest first."""

    def __init__(self) -> None:
        self.tensors: weakref.WeakValueDictionary[int, LazyTensor] = weakref.WeakValueDictionary()


_alive = _Alive()


def _no_dispatch(func: Any, _args: Any, _kwargs: Any) -> Any:
    message = f"{func} on a lazy tensor: import trnconv.pytorch.lazy.mode, which runs operators"
    raise RuntimeError(message)


_dispatch: list[Callable[[Any, Any, Any], Any]] = [_no_dispatch]


def define_dispatch(dispatch: Callable[[Any, Any, Any], Any]) -> None:
    """Say what an operator on lazy tensors does; that needs this class, so it tells us."""
    _dispatch[0] = dispatch


class LazyTensor(torch.Tensor):
    """A tensor whose making is recorded."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment] # noqa: SLF001
    view_of: ViewOf
    becomes: Tensor | None = None  # the plain tensor that there are views of already

    @staticmethod
    def __new__(  # noqa: PYI034 (typing.Self arrives with Python 3.11)
        cls: type[LazyTensor], view_of: ViewOf, device: torch.device
    ) -> LazyTensor:
        """A tensor without data, of the meta tensor's sizes."""
        meta = view_of.meta
        self = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001 (torch's recipe for wrappers)
            cls,
            meta.shape,
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device=device,
        )
        # Else an extension in C++ would read a null pointer.
        torch._C._set_throw_on_mutable_data_ptr(self)  # noqa: SLF001
        made: LazyTensor = self
        made.show(view_of)
        _alive.tensors[id(made)] = made
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Outside of a patched model: on tensors."""
        del types
        return _dispatch[0](func, args, kwargs or {})

    def show(self, view_of: ViewOf) -> None:
        """From now on, this; the sizes are the caller's business."""
        self.view_of, self.becomes = view_of, None

    def lies_as(self, meta: Tensor) -> None:
        """All of a cell gets other strides, before anybody has a view of it."""
        self.view_of.cell.lies_as(meta)
        self.show(ViewOf(self.view_of.cell, meta))
        with unseen():
            self.as_strided_(meta.shape, meta.stride(), 0)

    def video(self) -> LazyVideo | None:
        """The frames it shows, if any."""
        return self.view_of.video()

    def solid(self) -> Tensor:
        """The tensor; its memory is made for good."""
        return self.view_of.solid()

    def value(self) -> Tensor:
        """The tensor, to look at."""
        return self.view_of.value()

    def elements(self) -> Tensor:
        """The tensor, to look at, with strides of its own."""
        return self.view_of.elements()

    @property
    def data(self) -> Tensor:
        """An alias, as of any tensor."""
        return self.detach()

    @data.setter
    def data(self, other: Tensor) -> None:
        other_view = other.view_of if isinstance(other, LazyTensor) else None
        view_of = other_view or ViewOf.of_tensor(other, self.view_of.cell.context)
        wrapper = LazyTensor(view_of, other.device)
        torch.Tensor.data.__set__(self, wrapper)  # type: ignore[attr-defined]
        self.show(view_of)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        del tensor_contents
        return f"LazyTensor({list(self.shape)}, {self.dtype}, {self.device})"

    def __format__(self, spec: str) -> str:
        return format(self.solid(), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        # Not a clone: torch keeps strides, and what shares memory shares that of the copies.
        copied: Tensor = memo.setdefault(id(self), copy.deepcopy(self.solid(), memo))
        return copied


def meta_of(x: Tensor) -> Tensor:
    """A tensor on the meta device that is laid out as this one."""
    if isinstance(x, LazyTensor):
        return x.view_of.meta
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def _of_the_tensor(name: str) -> Any:
    def method(self: LazyTensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.solid(), name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in _NOT_DISPATCHED:
    setattr(LazyTensor, _name, _of_the_tensor(_name))


def alive() -> list[int]:
    """Keys of the lazy tensors of this thread, oldest first."""
    return list(_alive.tensors.keys())


def known(key: int) -> LazyTensor | None:
    """One of them; None if it has died."""
    return _alive.tensors.get(key)


def taken_out(key: int) -> LazyTensor | None:
    """One of them, not known here any more; None if it has died."""
    return _alive.tensors.pop(key, None)
