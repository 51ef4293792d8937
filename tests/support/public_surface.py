"""The public names of a module as text: signatures of functions, fields and methods of classes."""

import enum
import inspect
import re
from dataclasses import is_dataclass


def surface_of(module):
    """One line for each public name, in order; members of classes are indented."""
    lines = [f"# {module.__name__}"]
    for name in sorted(_public(module)):
        lines += _lines(name, getattr(module, name))
    return "\n".join(lines) + "\n"


def _public(module):
    if hasattr(module, "__all__"):
        return module.__all__
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _lines(name, value):
    if inspect.isclass(value):
        return [_class(name, value), *(f"  {line}" for line in _members(value))]
    if callable(value):
        return [f"{name}{_signature(value)}"]
    return [f"{name}: {type(value).__name__}"]


def _class(name, value):
    if issubclass(value, enum.Enum):
        return f"enum {name}: {', '.join(one.name for one in value)}"
    if issubclass(value, Exception):
        return f"error {name}({', '.join(base.__name__ for base in value.__bases__)})"
    return f"class {name}{_signature(value)}"


def _members(value):
    if issubclass(value, (enum.Enum, Exception)):
        return
    for name, member in sorted(vars(value).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f".{name}"
        elif isinstance(member, (classmethod, staticmethod)):
            yield f".{name}{_signature(member.__func__)}"
        elif inspect.isfunction(member):
            yield f".{name}{_signature(member)}"


class _Record:
    """Stands for a default that is a record: its fields are told where its class is."""

    def __init__(self, default):
        self.name = type(default).__name__

    def __repr__(self):
        return f"{self.name}(...)"


def _with_short_defaults(signature):
    parameters = [
        one.replace(default=_Record(one.default)) if is_dataclass(one.default) else one
        for one in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _signature(value):
    try:
        text = str(_with_short_defaults(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)
