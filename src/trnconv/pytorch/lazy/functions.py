"""LazyFunctions: functions of torch that are seen before they become operators.

- `tensor.data = lazy` gives the tensor real memory. torch hands a tensor another's memory without
  asking the dispatcher, and the memory of a lazy tensor is empty: whoever then looks at the tensor
  without the dispatcher (f-strings, `deepcopy`, `tolist`) would read nothing, or crash.
- `group_norm` is recorded. Its operator of ATen has the statistics for results too, which nobody
  looks at.
- `scaled_dot_product_attention` is a kernel of ours where there is one. Its operators of ATen
  differ from device to device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trnconv.pytorch.lazy.attention.scaled_dot_product import AttentionCall, attention
from trnconv.pytorch.lazy.base.bypass import is_passing
from trnconv.pytorch.lazy.base.traits import tensors_in
from trnconv.pytorch.lazy.exits import settle
from trnconv.pytorch.lazy.norms.recognition import group_normed
from trnconv.pytorch.lazy.tensors.autograd import autograd_records, is_differentiating
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_GROUP_NORMS = (torch.nn.functional.group_norm, torch.group_norm)
_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_OURS = (torch.Tensor, torch.nn.Parameter, LazyTensor)


class LazyFunctions(TorchFunctionMode):
    """On while a patched model runs in this thread."""

    def __init__(self, context: PatchContext) -> None:
        super().__init__()
        self.context = context

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As it is, but for those."""
        del types
        options = kwargs or {}
        if autograd_records((args, options)):  # then autograd keeps plain tensors
            settle((args, options))
        if func == _SET_DATA and isinstance(args[1], LazyTensor):
            tensor, lazy = args
            if not isinstance(tensor, LazyTensor):
                args = (tensor, lazy.solid().detach())
        elif func in _GROUP_NORMS and _may_record((args, options)):
            recorded = self._group_normed(func, args, options)
            if recorded is not NotImplemented:
                return recorded
        elif func is _ATTENTION and _may_record((args, options)):
            done = attention(self.context, AttentionCall(*args, **options))
            if done is not NotImplemented:
                return done
        return func(*args, **options)

    def _group_normed(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.group_norm:
            args, kwargs = args[:5], {key: kwargs[key] for key in kwargs if key != "cudnn_enabled"}
        names = {"input": "x", "num_groups": "groups"}
        named = {names.get(key, key): value for key, value in kwargs.items()}
        return group_normed(self.context, *args, **named)


def _may_record(given: Any) -> bool:
    """Not what autograd records or runs, nor where autocast would choose the type of the result."""
    by_autograd = autograd_records(given) or is_differentiating()
    by_torch = by_autograd or torch._C._is_any_autocast_enabled()  # noqa: SLF001 (no public problem)
    return not by_torch and not is_passing() and _are_ours(given)


def _are_ours(given: Any) -> bool:
    """Whether no tensor is of a subclass with rules of its own."""
    return all(type(tensor) in _OURS for tensor in tensors_in(given))
