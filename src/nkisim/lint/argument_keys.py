"""Arguments of a kernel as NKI 0.7 keys compiled kernels by them: the repr of every value.

A value with Python's default repr makes equal arguments compile twice, and after garbage collection
a different one can have the same address and get the wrong kernel.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any


def argument_key_problems(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """What is wrong with the arguments as a key, a line for each; nothing if it is complete."""
    return tuple(line for name, value in arguments.items() for line in _problems(name, value))


def _problems(name: str, value: Any) -> Iterator[str]:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return  # a tensor is keyed by both
    if isinstance(value, tuple | list):
        for position, item in enumerate(value):
            yield from _problems(f"{name}[{position}]", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _problems(f"{name}[{key!r}]", item)
    elif isinstance(value, FunctionType | BuiltinFunctionType):
        yield f"{name}: the repr of a function is an address; pass a name or an enum member"
    elif _has_default_repr(value):
        yield f"{name}: {type(value).__name__} has Python's default repr; make it a dataclass"
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _record_problems(name, value)


def _record_problems(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, Hashable) and not _is_nki_object(value):
        kind = type(value).__name__
        yield f"{name}: {kind} is not hashable, so nothing is cached; make it frozen"
    for field in fields(value):
        if not field.repr:
            yield f"{name}.{field.name}: left out of the repr; drop repr=False"
        else:
            yield from _problems(f"{name}.{field.name}", getattr(value, field.name))


def _has_default_repr(value: object) -> bool:
    owner = next(cls for cls in type(value).__mro__ if "__repr__" in vars(cls))
    return owner is object


def _is_nki_object(value: object) -> bool:
    return any(cls.__name__ == "NKIObject" for cls in type(value).__mro__)
