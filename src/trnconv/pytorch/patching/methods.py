"""The methods a patched instance gets in place of its class's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from trnconv.pytorch import functional
from trnconv.pytorch.lazy.context import Surroundings, active, running
from trnconv.pytorch.lazy.convolutions import Filters, convolved
from trnconv.pytorch.lazy.noting import note_forward, note_transposed
from trnconv.pytorch.lazy.tensor import LazyTensor, lazy, real

Tensor = torch.Tensor
ATTRIBUTE = "_trnconv"


@dataclass
class Patch:
    """What a patched module carries."""

    name: str  # dotted
    around: Surroundings
    before: dict[str, Any]  # attributes of the instance that ours replaced
    methods: list[str]  # ours
    reason: str = ""  # why it is kept; empty if it is taken


@dataclass(frozen=True, eq=False)
class Bound:
    """A function as a method of an instance. Unlike Python's bound methods, it can be pickled."""

    function: Callable[..., Any]
    module: torch.nn.Module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function, with the instance first."""
        return self.function(self.module, *args, **kwargs)


def module_forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module's own forward, on lazy tensors. Only the outermost of a model makes them."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    own = original(self, "forward")
    if torch.compiler.is_compiling() or wants_gradient(self, args, kwargs):
        return own(*args, **kwargs)
    outermost = not active()
    with running(), patch.around.book.inside(patch.name):
        if outermost:
            args = tuple(_entering(each, patch.around) for each in args)
            kwargs = {key: _entering(each, patch.around) for key, each in kwargs.items()}
        result = own(*args, **kwargs)
        return _leaving(result) if outermost else result


def original(module: torch.nn.Module, method: str) -> Callable[..., Any]:
    """What the method was before the patch."""
    patch: Patch = module.__dict__[ATTRIBUTE]
    if method in patch.before:
        own: Callable[..., Any] = patch.before[method]
        return own
    bound: Callable[..., Any] = getattr(type(module), method).__get__(module)
    return bound


def wants_gradient(module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
    """Then the model runs as it is, on convolutions that have gradients."""
    if not torch.is_grad_enabled() or active():
        return False
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    return any(each.requires_grad for each in (*given, *module.parameters()))


def _entering(value: Any, around: Surroundings) -> Any:
    """Tensors become lazy. Lists stay the model's own: it may keep its cache in one."""
    return lazy(value, around) if isinstance(value, Tensor) else value


def _leaving(value: Any) -> Any:
    """Results become tensors, also in records and dictionaries.

    A dictionary beside a result stays as it is: it is a cache, and frames noted in it cost nothing.
    """
    if type(value) is dict:
        return {key: _as_tensors(each) for key, each in value.items()}
    return _as_tensors(value)


def _as_tensors(value: Any) -> Any:
    if isinstance(value, LazyTensor):
        return value.owned()
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value, {f.name: _as_tensors(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        changed = [_as_tensors(each) for each in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return value


def _record(value: Any, changed: dict[str, Any]) -> Any:
    if value.__dataclass_params__.frozen:
        return replace(value, **changed)
    for name, each in changed.items():
        setattr(value, name, each)
    return value


def convolution_forward(
    self: Any, x: Any, weight: Tensor, bias: Tensor | None
) -> Tensor | LazyTensor:
    """In place of `_conv_forward` of torch's convolutions."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    own_mode = "zeros" if self.padding_mode == "constant" else self.padding_mode
    if torch.compiler.is_compiling() or (isinstance(x, Tensor) and _wants(x, weight, bias)):
        return _eager(self, x, weight, bias)
    given = x if isinstance(x, LazyTensor) else LazyTensor(x, patch.around)
    filters = Filters(
        weight,
        bias,
        stride=self.stride,
        padding=self.padding,
        dilation=self.dilation,
        groups=self.groups,
        mode=own_mode,
        module=patch.name,
    )
    found = convolved(given, filters)
    if found is None:
        found = LazyTensor(_eager(self, given.real(), weight, bias), patch.around)
        policy = patch.around.policy_for(patch.name)
        note_forward(patch.around.book, patch.name, given.real(), filters, policy)
    return found if given is x else found.real()


def unsplit_forward(self: torch.nn.Conv3d, x: Any) -> Any:
    """torch's own forward, for a subclass that would split the input first."""
    return torch.nn.Conv3d.forward(self, x)


def _wants(*tensors: Tensor | None) -> bool:
    asked = any(each is not None and each.requires_grad for each in tensors)
    return torch.is_grad_enabled() and asked


def _eager(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """At once, with gradients, in one graph."""
    rank = weight.dim() - 2
    convolve = getattr(functional, f"conv{rank}d")
    patch: Patch = module.__dict__[ATTRIBUTE]
    y: Tensor = convolve(
        x,
        weight,
        bias,
        module.stride,
        module.padding,
        module.dilation,
        module.groups,
        padding_mode=module.padding_mode,
        accuracy=patch.around.policy_for(patch.name),
        backend=patch.around.backend,
    )
    return y


def kept_forward(self: Any, x: Any, weight: Tensor, bias: Tensor | None) -> Tensor | LazyTensor:
    """torch's own convolution, on the tensor it would have got."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    patch.around.book.kept[patch.name, patch.reason] += 1
    y: Tensor = original(self, "_conv_forward")(real(x), weight, bias)
    return LazyTensor(y, patch.around) if isinstance(x, LazyTensor) else y


def kept_transposed_forward(self: Any, x: Any, *args: Any, **kwargs: Any) -> Tensor | LazyTensor:
    """torch's own transposed convolution, on the tensor it would have got."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    patch.around.book.kept[patch.name, patch.reason] += 1
    y: Tensor = original(self, "forward")(real(x), *args, **kwargs)
    return LazyTensor(y, patch.around) if isinstance(x, LazyTensor) else y


def transposed_forward(
    self: Any, x: Any, output_size: list[int] | None = None
) -> Tensor | LazyTensor:
    """In place of `forward` of torch's transposed convolutions."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    tensor: Tensor = real(x)
    rank = self.weight.dim() - 2
    added = self._output_padding(
        tensor, output_size, self.stride, self.padding, self.kernel_size, rank, self.dilation
    )
    options = (self.stride, self.padding, added, self.groups, self.dilation)
    convolve = getattr(functional, f"conv_transpose{rank}d")
    y: Tensor = convolve(tensor, self.weight, self.bias, *options, backend=patch.around.backend)
    if not torch.compiler.is_compiling():
        note_transposed(patch.around.book, patch.name, tensor, self.weight, None, *options)
    return LazyTensor(y, patch.around) if isinstance(x, LazyTensor) else y
