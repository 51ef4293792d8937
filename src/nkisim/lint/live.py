"""Names and sources of functions and classes that are imported already."""

import ast
import builtins
import inspect
import linecache
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

from nkisim.lint.analysis.definition import (
    FUNCTION_NODES,
    Definition,
    DefinitionNode,
    Sight,
    Target,
)
from nkisim.lint.analysis.vocabulary import NKI_PACKAGES, is_library, package_of
from nkisim.lint.source_tree import definitions_in, first_line, parsed


class LiveNamespace:
    """The names a function can see in the running process."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def resolve(self, names: tuple[str, ...]) -> Target:
        """What a dotted name refers to in the running process."""
        path = names[0]
        if path not in self._names:
            known = hasattr(builtins, path)
            return Target(f"builtins.{path}") if known else _not_found(".".join(names))
        value = self._names[path]
        for name in names[1:]:
            if not isinstance(value, ModuleType):
                break
            path = f"{value.__name__}.{name}"
            if not hasattr(value, name):
                return _not_found(path)
            value = getattr(value, name)
        return _target(value, path)


def function_definition(function: FunctionType) -> Definition | None:
    """The source of a function; None if there is no file to read it from."""
    function = inspect.unwrap(function)
    code = function.__code__
    names = {**function.__globals__, **_closure(function)}
    for name, node in _read(code.co_filename, function.__globals__):
        if isinstance(node, FUNCTION_NODES) and first_line(node) == code.co_firstlineno:
            return Definition(node, code.co_filename, name, LiveNamespace(names))
    return None


def class_definition(cls: type) -> Definition | None:
    """The source of a class; None if there is no file to read it from."""
    names = dict(vars(inspect.getmodule(cls) or builtins))
    file = str(names.get("__file__", ""))
    wanted = cls.__qualname__.replace("<locals>.", "")
    for name, node in _read(file, names):
        if isinstance(node, ast.ClassDef) and name == wanted:
            methods = (member for member in vars(cls).values() if isinstance(member, FunctionType))
            for method in methods:
                names |= _closure(method)
            return Definition(node, file, name, LiveNamespace(names))
    return None


def jitted_function(value: object) -> FunctionType | None:
    """The function inside what nki.jit made; None for anything else."""
    if isinstance(value, type) or package_of(type(value).__module__) == "functools":
        return None
    function = getattr(value, "func", None)
    return function if isinstance(function, FunctionType) else None


def _read(file: str, names: Mapping[str, Any]) -> tuple[tuple[str, DefinitionNode], ...]:
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file, dict(names)))
    return definitions_in(parsed(text, file))


def _closure(function: FunctionType) -> dict[str, Any]:
    """The variables a function takes from functions around it, those that have a value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is empty
            found[name] = cell.cell_contents
    return found


def _not_found(path: str) -> Target:
    return Target(path, sight=Sight.NOT_FOUND)


def _target(value: Any, path: str) -> Target:
    """What a value found by following `path` is."""
    if isinstance(value, ModuleType):
        return Target(value.__name__)
    if package_of(path) in NKI_PACKAGES:
        return Target(path)
    if function := jitted_function(value):
        definition = function_definition(function)
        return Target(f".{path}", (definition,) if definition else (), is_jitted=True)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        return _defined_target(value, f"{module}.{name}")
    if package_of(type(value).__module__) in NKI_PACKAGES:
        return Target(f"nki.{path}")
    # The dot keeps a plain value apart from a library of the same name.
    return Target(f".{path}", tuple(_definitions_held_by(value)))


def _defined_target(value: Any, path: str) -> Target:
    if is_library(path):
        return Target(path)
    definition = _definition(value)
    return Target(path, (definition,)) if definition else Target(path, sight=Sight.NO_SOURCE)


def _definition(value: Any) -> Definition | None:
    value = inspect.unwrap(value)
    if isinstance(value, FunctionType):
        return function_definition(value)
    return class_definition(value) if isinstance(value, type) else None


def _definitions_held_by(value: object) -> Iterator[Definition]:
    """Functions and classes in a container, or the class of an object."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    for held in value if isinstance(value, tuple | list) else (type(value),):
        if isinstance(held, FunctionType | type) and not is_library(held.__module__):
            definition = _definition(held)
            if definition:
                yield definition
