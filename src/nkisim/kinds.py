"""Kinds of arguments: does a value fit what a parameter is annotated with, and both in words."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from inspect import Parameter, Signature
from typing import Any, Final, ForwardRef, Union, get_args, get_origin, get_type_hints

import numpy as np

_WORDS: Final = {
    "NkiTensor": "a tensor",
    "VirtualRegister": "a register",
    "MemoryRegion": "nl.sbuf, nl.psum, nl.shared_hbm or nl.private_hbm",
    "Operator": "an operator of nki.language, such as nl.add",
    "ReplicaGroup": "a ReplicaGroup",
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "str": "a string",
    "NoneType": "None",
    "Any": "anything",
}
_GENERIC_WORDS: Final[dict[Any, str]] = {Callable: "a function", dict: "a dictionary"}
_PLURALS: Final = {"int": "integers", "float": "numbers", "NkiTensor": "tensors", "str": "strings"}
_DTYPE: Final[Any] = str | type | np.dtype | None  # dtypes refuse the rest of these in better words
_UNANNOTATED: Final[dict[str, Any]] = {
    "axis": int | tuple[int, ...] | list[int],
    "keepdims": bool,
}  # of operators, whose signatures are made from names
_UNIONS: Final = (Union, types.UnionType)


def annotated_kinds(signature: Signature, names: Mapping[str, Any]) -> dict[str, Any]:
    """What each parameter is annotated with; `Any` where an annotation names what is not known."""
    return {name: _evaluated(parameter, names) for name, parameter in signature.parameters.items()}


def _evaluated(parameter: Parameter, names: Mapping[str, Any]) -> Any:
    annotation = parameter.annotation
    if parameter.name == "dtype":
        return _DTYPE
    if annotation is Parameter.empty or parameter.kind is Parameter.VAR_KEYWORD:
        return _UNANNOTATED.get(parameter.name, Any)
    holder = type("holder", (), {"__annotations__": {"value": annotation}})
    try:
        return get_type_hints(holder, dict(names))["value"]
    except (NameError, TypeError, AttributeError):
        return Any  # names that only a type checker imports


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind. Kinds that nobody can check at run time fit everything."""
    if kind is Any or isinstance(kind, ForwardRef):
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    origin = get_origin(kind)
    if origin in _UNIONS:
        return any(fits(value, alternative) for alternative in get_args(kind))
    if origin is not None:
        return _fits_generic(value, origin, get_args(kind))
    return _fits_class(value, kind) if isinstance(kind, type) else True


def _fits_class(value: Any, kind: type) -> bool:
    if kind is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float, np.number, np.bool_))
    if kind is bool:
        return isinstance(value, (int, np.bool_))
    return isinstance(value, kind)


def _fits_generic(value: Any, origin: Any, inside: tuple[Any, ...]) -> bool:
    if origin is Callable:
        return callable(value)
    if origin is dict:
        return isinstance(value, Mapping)
    if origin in (list, tuple, Sequence):  # NKI takes a list for a tuple, and the reverse
        every = inside[0] if inside else Any
        return isinstance(value, (list, tuple, range)) and all(
            fits(member, every) for member in value
        )
    return not isinstance(origin, type) or isinstance(value, origin)


def in_words(kind: Any) -> str:
    """A kind as a message says it: "a tuple of integers or None"."""
    if kind is _DTYPE:
        return "a dtype of nki.language, such as nl.float32"
    origin = get_origin(kind)
    if origin in _UNIONS:
        words = list(dict.fromkeys(in_words(alternative) for alternative in get_args(kind)))
        return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    if origin in _GENERIC_WORDS:
        return _GENERIC_WORDS[origin]
    if origin in (list, tuple, Sequence):
        return _sequence_in_words(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum) and kind.__name__ not in _WORDS:
        return f"a member of nisa.{kind.__name__}"
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(name, name)


def _sequence_in_words(inside: tuple[Any, ...]) -> str:
    first = inside[0] if inside else Any
    if get_origin(first) in (list, tuple, Sequence):
        return "a list of lists: [[...], [...]]"
    return f"a tuple of {_PLURALS.get(getattr(first, '__name__', ''), 'values')}"


def value_in_words(value: Any) -> str:
    """A value that did not fit: "the float 0.5", "None", "an array of shape (3,)"."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    if isinstance(value, (int, float, str, tuple, list)):
        return f"the {type(value).__name__} {value!r}"
    shown = repr(value)
    return f"{shown} ({type(value).__name__})" if len(shown) < 60 else type(value).__name__


def remedy_for(value: Any, kind: Any) -> str:
    """What to write instead of a value that is not of a kind."""
    wanted = in_words(kind)
    if isinstance(value, float) and fits(1, kind):
        return "divide with //, or round it with int(...)"
    if isinstance(value, (int, np.integer)) and fits((1,), kind) and not fits(1, kind):
        return f"write ({value},) for one dimension, or give all of them"
    if isinstance(value, (list, tuple)) and any(isinstance(member, float) for member in value):
        return "divide with //: sizes, steps and counts are integers"
    if fits([[1, 1]], kind) and not fits([1], kind):
        return "write one [step, count] pair per dimension: [[step, count], ...]"
    if "a tensor" in wanted and isinstance(value, (int, float, np.number)):
        return "fill a tile with the number: nl.full(shape, number, dtype=...) or nisa.memset"
    return f"pass {wanted}"
