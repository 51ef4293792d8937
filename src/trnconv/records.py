"""Frozen dataclasses as JSON and back: what is read is equal to what was written, or refused.

A record is an object of its fields; those that have their default are left out. Tuples are lists.
Where a field may hold one of several classes, or a subclass of an abstract one, the object says
which in `is`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from inspect import isabstract
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from trnconv.errors import TrnconvError

Record = TypeVar("Record")
_CLASS = "is"
_NOTHING: Mapping[str, Any] = {}


class RecordError(TrnconvError, ValueError):
    """JSON that is not the record it should be."""


def to_json(record: Any, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The record as an object that `json.dumps` takes, without the fields named by `but`."""
    kind: Any = type(record)
    hints = _hints(kind)
    return {
        field.name: _written(hints[field.name], getattr(record, field.name))
        for field in fields(record)
        if field.name not in but and not _has_default(field, getattr(record, field.name))
    }


def fields_as_json(kind: Any, **values: Any) -> dict[str, Any]:
    """Some fields of a record of this class."""
    return {name: _written(_hints(kind)[name], value) for name, value in values.items()}


def from_json(kind: type[Record], document: Any, **known: Any) -> Record:
    """The record of this class; a RecordError says which part of the document does not fit.

    Fields that are `known` need not be in the document, which comes before them.
    """
    read: Record = _record(kind, document, kind.__name__, known)
    return read


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def _has_default(field: Field[Any], value: Any) -> bool:
    default = field.default
    return default is not MISSING and type(default) is type(value) and bool(default == value)


def _classes(hint: Any) -> tuple[type[Any], ...]:
    """The dataclasses that a hint allows."""
    origin, arguments = _parts(hint)
    options = arguments if origin in (Union, types.UnionType) else (hint,)
    classes = [option for option in options if is_dataclass(option) and isinstance(option, type)]
    return tuple(cls for named in classes for cls in _concrete(named))


def _concrete(kind: type[Any]) -> tuple[type[Any], ...]:
    """A class; an abstract one stands for its concrete subclasses."""
    if not isabstract(kind):
        return (kind,)
    return tuple(cls for named in kind.__subclasses__() for cls in _concrete(named))


@cache
def _is_named_in(hint: Any) -> bool:
    """Whether a record says its class, as it may be of several."""
    return len(_classes(hint)) > 1 or isabstract(hint)


def _written(hint: Any, value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        document = to_json(value)
        return {_CLASS: type(value).__name__, **document} if _is_named_in(hint) else document
    if isinstance(value, tuple):
        return [
            _written(inner_hint, inner)
            for inner_hint, inner in zip(_items(hint, value), value, strict=True)
        ]
    return value


def _items(hint: Any, values: Any) -> tuple[Any, ...]:
    """The hint of each item of a tuple, which may also be None."""
    origin, arguments = _parts(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (argument for argument in arguments if argument is not type(None))
        _, arguments = _parts(hint)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return (arguments[0],) * len(values)
    return arguments


@cache
def _reader(hint: Any) -> Callable[[Any, str], Any]:
    """What reads a value of this hint. Decided once a hint: a cache is read value by value."""
    origin, arguments = _parts(hint)
    if origin in (Union, types.UnionType):
        return partial(_one_of, hint, arguments)
    if isabstract(hint):
        return partial(_named, hint)
    if origin is tuple:
        return partial(_tuple, hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return partial(_record, hint)
    return partial(_plain, hint)


def _plain(hint: Any, value: Any, where: str) -> Any:
    """A number, a flag or a text."""
    if type(value) is hint:
        return value
    if hint is float and type(value) is int:
        return float(value)
    raise _misfit(where, getattr(hint, "__name__", str(hint)), value)


def _one_of(hint: Any, options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    given = [option for option in options if option is not type(None)]
    if len(given) == 1:
        return _reader(given[0])(value, where)
    return _named(hint, value, where)


def _named(hint: Any, value: Any, where: str) -> Any:
    """A record of the class that it names."""
    classes = _classes(hint)
    named = value.get(_CLASS) if isinstance(value, Mapping) else None
    for cls in classes:
        if cls.__name__ == named:
            rest = {name: inner for name, inner in value.items() if name != _CLASS}
            return _record(cls, rest, where)
    raise _misfit(where, " or ".join(cls.__name__ for cls in classes), value)


def _tuple(hint: Any, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _misfit(where, "list", value)
    items = _items(hint, value)
    if len(items) != len(value):
        raise _misfit(where, f"list of {len(items)}", value)
    if tuple(map(type, value)) == items:  # numbers, flags and texts
        return tuple(value)
    return tuple(
        _reader(inner_hint)(inner, where) for inner_hint, inner in zip(items, value, strict=True)
    )


@cache
def _field_readers(kind: Any) -> dict[str, Callable[[Any, str], Any]]:
    hints = _hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


@cache
def _needed(kind: Any) -> tuple[str, ...]:
    """The fields that have no default."""
    return tuple(
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    )


def _record(kind: Any, document: Any, where: str, known: Mapping[str, Any] = _NOTHING) -> Any:
    if not isinstance(document, Mapping):
        raise _misfit(where, kind.__name__, document)
    readers = _field_readers(kind)
    unknown = [name for name in document if name not in readers]
    missing = [name for name in _needed(kind) if name not in document and name not in known]
    if unknown or missing:
        raise RecordError(f"{where}: fields unknown {unknown}, missing {missing}.")
    values = {name: readers[name](value, f"{where}.{name}") for name, value in document.items()}
    return kind(**{**known, **values})


def _misfit(where: str, expected: str, value: Any) -> RecordError:
    shown = repr(value)
    return RecordError(f"{where}: {expected} expected, not {shown[:60]}.")
