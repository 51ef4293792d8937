"""What the schema of an ATen operator says: what it writes, what it aliases, what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

_HIDDEN_VIEWS = ("aten::_unsafe_view", "aten::_reshape_alias")  # their schemas do not say so
# Kernels of other operators expect elements in order, and random numbers are dealt in the order of
# memory. Older versions of torch have no tag of reductions: they get copies in order.
_ANY_ORDER = frozenset(
    getattr(torch.Tag, name) for name in ("pointwise", "reduction") if hasattr(torch.Tag, name)
)
_UNTAGGED = ("aten::_to_copy",)
_SEEDED = torch.Tag.nondeterministic_seeded
_DECOMPOSED = "CompositeImplicitAutograd"


@dataclass(frozen=True)
class Traits:
    """Of one overload."""

    name: str  # aten::add_: shared by all overloads of an operator
    overload: str  # aten::add_.Tensor
    composite: bool  # made of others; inference mode shows these whole
    written: tuple[tuple[int, str], ...]  # places and names of arguments that it changes
    counted: bool  # autograd counts these changes, before a mode sees the operator
    view: bool  # its results are views of its first argument
    reshapes: bool  # it changes sizes and strides of its first argument
    any_order: bool  # torch reads elements wherever they lie, and values do not depend on it


@lru_cache(None)
def traits_of(func: Any) -> Traits:
    """Read once for each operator."""
    schema = func._schema  # noqa: SLF001 (torch's only name for it)
    infos = [
        (at, argument.name, argument.alias_info) for at, argument in enumerate(schema.arguments)
    ]
    written = tuple((at, name) for at, name, info in infos if info is not None and info.is_write)
    aliases = [
        returned.alias_info for returned in schema.returns if returned.alias_info is not None
    ]
    name = func.name()
    return Traits(
        name=schema.name,
        overload=name,
        composite=_has_kernel(name, _DECOMPOSED) and not _has_kernel(name, "CPU"),
        written=written,
        counted=_has_kernel(name, "ADInplaceOrView"),
        view=schema.name in _HIDDEN_VIEWS or (bool(aliases) and not written),
        reshapes=torch.Tag.inplace_view in func.tags,
        any_order=_takes_any_order(func),
    )


def _takes_any_order(func: Any) -> bool:
    tagged = func.name() in _UNTAGGED or not _ANY_ORDER.isdisjoint(func.tags)
    return tagged and _SEEDED not in func.tags


def _has_kernel(name: str, key: str) -> bool:
    found: bool = torch._C._dispatch_has_kernel_for_dispatch_key(name, key)  # noqa: SLF001
    return found


def parts(func: Any, *args: Any, **kwargs: Any) -> Any:
    """A composite operator, by its parts.

    Not `func.decompose()`: it prefers decompositions in Python, which make of nearest upsampling
    an index.
    """
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001
    return func._op_dk(key, *args, **kwargs)  # noqa: SLF001 (no public way)


def mapped(kind: type, change: Callable[[Any], Any], value: Any) -> Any:
    """Arguments, changed where they are of a kind. torch's pytree takes ten times as long."""
    if isinstance(value, kind):
        return change(value)
    if type(value) is tuple or type(value) is list:
        return type(value)([mapped(kind, change, inner) for inner in value])
    if type(value) is dict:
        return {key: mapped(kind, change, inner) for key, inner in value.items()}
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors among the arguments of an operator."""
    if isinstance(value, torch.Tensor):
        yield value
    elif type(value) in (tuple, list):
        for inner in value:
            yield from tensors_in(inner)
    elif type(value) is dict:
        for inner in value.values():
            yield from tensors_in(inner)
