"""LazyTensor: looks like a tensor to a model's code, and puts data movement off.

It is no subclass of torch.Tensor: torch hands every function with one among its arguments to
`__torch_function__`. Functions that move data (`movements`) are noted, convolutions
(`convolutions`) take over what was noted, and any other gets the tensors it would have got.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from trnconv.pytorch.lazy.context import Surroundings
from trnconv.pytorch.lazy.doing import done
from trnconv.pytorch.lazy.memory import same_memory
from trnconv.pytorch.lazy.pending import Pending
from trnconv.pytorch.lazy.video import Video

_alive: weakref.WeakValueDictionary[int, LazyTensor] = weakref.WeakValueDictionary()  # by id
_OPERATORS = """add radd sub rsub mul rmul truediv rtruediv floordiv pow rpow matmul rmatmul neg abs
mod eq ne lt le gt ge and or xor invert len bool float int iter contains""".split()
_IN_PLACE = "iadd isub imul itruediv".split()


@dataclass(frozen=True)
class Seen:
    """How a lazy tensor was made of another, by a function that gives torch's views."""

    of: LazyTensor
    func: Callable[..., Any]
    args: tuple[Any, ...]  # behind the tensor
    kwargs: dict[str, Any]
    part: int | None = None  # of several

    def again(self) -> torch.Tensor:
        """The same, of the tensor itself."""
        named = {key: real(value) for key, value in self.kwargs.items()}
        made: Any = self.func(self.of.real(), *real(self.args), **named)
        tensor: torch.Tensor = made if self.part is None else made[self.part]
        return tensor


class LazyTensor:
    """A tensor, or a video noted on paper."""

    def __init__(
        self, content: torch.Tensor | Video, around: Surroundings, seen: Seen | None = None
    ) -> None:
        self._content = content
        self.around = around
        self._seen = seen
        self._borrowed = False  # the tensor is somebody else's, where torch would have copied it
        _alive[id(self)] = self

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note it, convolve, or do it on the tensors."""
        del types
        given = kwargs or {}
        found = _first_lazy((*args, *given.values()))
        return found.around.call(func, args, given)

    def real(self) -> torch.Tensor:
        """The tensor, made the first time. To look at: who changes it needs `settle`."""
        if isinstance(self._content, Video):
            noted = self._content
            if self.around.spread is not None:
                self.around.spread.require_movable(noted)
            self._content = done(noted, self.around.book)
            self._borrowed = noted.copied and any(
                same_memory(base, self._content) for base in _read_by(noted)
            )
        return self._content

    def owned(self) -> torch.Tensor:
        """The tensor, and nobody else's that torch would have copied."""
        tensor = self.real()
        if self._borrowed:
            self.around.book.moved("cache", 2 * tensor.nbytes)
            self._content, self._borrowed = tensor.clone(), False
        return self._content  # type: ignore[return-value]

    def video(self) -> Video | None:
        """The frames, if it has any; 4 dimensions are images."""
        if not isinstance(self._content, Video):
            video = Video.of(self._content)
            if video is None:
                return None
            # kept, so that all that is cut from it knows it by one name
            self._content = replace(video, copied=self._borrowed)
        return self._content

    @property
    def root(self) -> LazyTensor:
        """The one that this is a view of, as torch has it; itself, if of none."""
        return self if self._seen is None else self._seen.of.root

    def as_view(self, made: Any, seen: Seen) -> Any:
        """What a function made of this tensor: a view of it, where it shares its memory."""
        if isinstance(made, torch.Tensor):
            if not same_memory(made, self.real()):
                return LazyTensor(made, self.around)
            view = LazyTensor(made, self.around, seen)
            view._borrowed = self._borrowed
            return view
        if type(made) in (list, tuple):
            parts = [self.as_view(each, replace(seen, part=at)) for at, each in enumerate(made)]
            return type(made)(parts)
        return made

    def become_view(self) -> None:
        """A view of the root's tensor, or what torch copies from it."""
        if self._seen is None:
            return
        self._seen.of.become_view()
        self._content, self._borrowed = self._seen.again(), False
        if not same_memory(self._content, self._seen.of.real()):
            self._seen = None

    def reads(self) -> list[torch.Tensor]:
        """Tensors that must not change before the movement is done."""
        if isinstance(self._content, Video):
            return _read_by(self._content)
        return [self._content] if self._borrowed else []

    @property
    def shape(self) -> torch.Size:
        """As a tensor's."""
        return self._content.shape

    @property
    def dtype(self) -> torch.dtype:
        """As a tensor's."""
        return self._content.dtype

    @property
    def device(self) -> torch.device:
        """As a tensor's."""
        return self._content.device

    @property
    def ndim(self) -> int:
        """As a tensor's."""
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        """Lazy tensors are for inference."""
        return False

    def size(self, dim: int | None = None) -> Any:
        """As a tensor's."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """As a tensor's."""
        return len(self.shape)

    def numel(self) -> int:
        """As a tensor's."""
        return self.shape.numel()

    def __getattr__(self, name: str) -> Any:
        """Methods go the way of functions; other attributes are the tensor's."""
        if name.startswith("__"):
            raise AttributeError(name)
        known = getattr(torch.Tensor, name)
        if not callable(known):
            return getattr(self.real(), name)
        return lambda *args, **kwargs: self.around.call(known, (self, *args), kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.around.call(torch.Tensor.__getitem__, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.around.call(torch.Tensor.__setitem__, (self, key, value), {})

    def __repr__(self) -> str:
        return f"LazyTensor({list(self.shape)}, {self.dtype}, {self.device})"

    __hash__ = object.__hash__


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(torch.Tensor, f"__{name}__")

    def operator(self: LazyTensor, *args: Any) -> Any:
        return self.around.call(function, (self, *args), {})

    return operator


for _name in (*_OPERATORS, *_IN_PLACE):
    setattr(LazyTensor, f"__{_name}__", _operator(_name))


def _first_lazy(values: Any) -> LazyTensor:
    for value in values:
        if isinstance(value, LazyTensor):
            return value
        if isinstance(value, (list, tuple)) and any(isinstance(e, LazyTensor) for e in value):
            return _first_lazy(value)
    raise AssertionError("torch found a lazy tensor where we do not")


def lazy(value: Any, around: Surroundings) -> Any:
    """A tensor as a lazy one, in lists and tuples too; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return LazyTensor(value, around)
    if type(value) in (list, tuple):
        return type(value)(lazy(each, around) for each in value)
    return value


def real(value: Any) -> Any:
    """A lazy tensor as a tensor; lists and tuples of them too."""
    if isinstance(value, LazyTensor):
        return value.real()
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        changed = [real(each) for each in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return value


def _read_by(video: Video) -> list[torch.Tensor]:
    bases = [run.base for run in video.runs]
    waiting = [base.reads() for base in bases if isinstance(base, Pending)]
    lying = [base for base in bases if isinstance(base, torch.Tensor)]
    return [*lying, *(tensor for each in waiting for tensor in each)]


def settle(changed: Any) -> None:
    """Before a tensor is changed in place: what would read it is done, and its views are views.

    A view that was looked at before its origin was made is a tensor of its own until then.
    """
    alive = list(_alive.values())
    root = changed.root if isinstance(changed, LazyTensor) else None
    relatives = [each for each in alive if root is not None and each.root is root]
    if root is not None:
        root.owned()
    for each in relatives:
        each.become_view()
    tensor = real(changed)
    for each in alive:
        if each.root is not root and any(same_memory(read, tensor) for read in each.reads()):
            each.owned()
