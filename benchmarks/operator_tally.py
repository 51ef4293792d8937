"""What torch runs, recorded: problems of our kernels, bytes and products of all other operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trnconv.geometry import ConvShape
from trnconv.pytorch.backends.conv_call import numbered
from trnconv.pytorch.lazy.base.traits import parts, traits_of
from trnconv.pytorch.lazy.movements import bytes_read
from trnconv.pytorch.operators.norm_call import worded_norm

_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
_NOTHING = ("aten::empty", "aten::new_empty", "aten::detach")  # no values are moved


def _conv(args: tuple[Any, ...]) -> ConvShape:
    x, w, numbers = args[:3]
    return numbered(numbers).shape([x.shape], w.shape)


def _input(args: tuple[Any, ...]) -> ConvShape:
    _, w, x_shape, numbers = args[:4]
    return numbered(numbers).shape([x_shape], w.shape)


def _filter(args: tuple[Any, ...]) -> ConvShape:
    x, dy, kernel, numbers = args[:4]
    spec = numbered(numbers)
    return spec.shape([x.shape], (dy.shape[1], x.shape[1] // spec.groups, *kernel))


def _norm(args: tuple[Any, ...]) -> tuple[tuple[int, ...], str]:
    return tuple(args[0].shape), worded_norm(args[3]).activation


def _norm_gradient(args: tuple[Any, ...]) -> tuple[tuple[int, ...], str]:
    return tuple(args[0].shape), worded_norm(args[4]).activation


_OURS: dict[str, tuple[str, Callable[[tuple[Any, ...]], Any]]] = {
    "trnconv::convolution": ("convolutions", _conv),
    "trnconv::input_gradient": ("input gradients", _input),
    "trnconv::weight_gradient": ("weight gradients", _filter),
    "trnconv::norm": ("norms and SiLU", _norm),
    "trnconv::norm_gradient": ("gradients of norms and SiLU", _norm_gradient),
}


class OperatorTally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs inside of it, by `when`, which its user sets."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.when = ""
        self.kernels: Counter[tuple[str, tuple[str, Any]]] = Counter()
        self.others: dict[str, Counter[tuple[int, int]]] = {}  # bytes and multiply-adds, by when
        self.by_name: Counter[tuple[str, str]] = Counter()  # bytes of the others

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator, and note it unless it is a view."""
        del types
        keywords = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001 (no public name)
            return func(*args, **keywords)
        traits = traits_of(func)
        if traits.composite:
            with self:
                return parts(func, *args, **keywords)
        result = func(*args, **keywords)
        if traits.name in _OURS:
            kind, problem_of = _OURS[traits.name]
            self.kernels[self.when, (kind, problem_of(args))] += 1
        elif not traits.view and not traits.name.startswith(_NOTHING):
            self._note(traits.name, (args, keywords), result)
        return result

    def _note(self, name: str, tensors: Any, result: Any) -> None:
        if name.startswith("trnconv::"):
            raise ValueError(f"{name}: no price here for this kernel of ours.")
        read = sum(bytes_read(tensor) for tensor in _tensors(tensors))
        written = sum(tensor.nbytes for tensor in _tensors(result))
        macs = _macs(tensors[0]) if name in _PRODUCTS else 0
        self.others.setdefault(self.when, Counter())[read + written, macs] += 1
        self.by_name[self.when, name] += read + written


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _macs(args: tuple[Any, ...]) -> int:
    """Of the last two operands, [..., rows, summed] and [..., summed, columns]."""
    first, second = args[-2:]
    return int(prod(first.shape) * second.shape[-1])
