"""Names and sources of functions and classes read from text, without importing anything."""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from nkisim.lint.analysis.definition import (
    FUNCTION_NODES,
    Definition,
    DefinitionNode,
    Sight,
    Target,
    dotted_names,
)
from nkisim.lint.analysis.vocabulary import CONVENTIONAL_NAMES, is_jit, is_library
from nkisim.lint.import_paths import find_module, locate
from nkisim.lint.source_tree import parsed


@dataclass(frozen=True)
class _Import:
    """What an import statement binds to a name."""

    module: tuple[str, ...]
    level: int  # dots of a relative import
    name: str | None  # None: the module itself


_Names: TypeAlias = tuple[str, ...]
_Binding: TypeAlias = DefinitionNode | ast.expr | _Import
_OPAQUE = ast.Constant(None)  # stands for a value of which nothing is known
_Seen: TypeAlias = frozenset[tuple[str, _Names]]  # guards against imports in a circle
_Loaded: TypeAlias = dict[Path, "TextNamespace | None"]


class TextNamespace:
    """The module-level names of one source text."""

    def __init__(
        self, text: str, file: str, directory: Path | None = None, loaded: _Loaded | None = None
    ) -> None:
        """`directory` is where imports start from; without it none is followed."""
        self._file = file
        self._directory = directory
        self._loaded: _Loaded = {} if loaded is None else loaded
        self._bindings: dict[str, _Binding] = {}
        self._star_imports: list[_Import] = []
        self._bind(parsed(text, file).body, is_certain=True)

    def functions(self) -> list[Definition]:
        """Every module-level function."""
        found = (self._definition(name) for name in self._bindings)
        return [
            definition
            for definition in found
            if definition and isinstance(definition.node, FUNCTION_NODES)
        ]

    def kernels(self) -> list[Definition]:
        """The functions that nki.jit is applied to."""
        targets = [self.resolve((name,)) for name in self._own_names()]
        return [
            definition
            for target in targets
            if target.is_jitted
            for definition in target.definitions
        ]

    def binds(self, name: str) -> bool:
        """Whether the text itself gives the name a meaning."""
        return name in self._bindings

    def _own_names(self) -> list[str]:
        return [
            name for name, binding in self._bindings.items() if not isinstance(binding, _Import)
        ]

    def _definition(self, name: str) -> Definition | None:
        node = self._bindings.get(name)
        if isinstance(node, (*FUNCTION_NODES, ast.ClassDef)):
            return Definition(node, self._file, name, self)
        return None

    def _path(self, name: str) -> str:
        # The dot keeps a module of the user apart from a library of the same name.
        return f".{Path(self._file).stem}.{name}"

    def _bind(self, statements: list[ast.stmt], *, is_certain: bool) -> None:
        for statement in statements:
            for name, binding in _bindings_of(statement):
                if name == "*" and isinstance(binding, _Import):
                    self._star_imports.append(binding)
                elif is_certain or name not in self._bindings:
                    self._bindings[name] = binding
            for block in _blocks_of(statement):
                self._bind(block, is_certain=False)

    def resolve(self, names: _Names, seen: _Seen = frozenset()) -> Target:
        """What a dotted name refers to at the end of this text."""
        key = (self._file, names)
        if key in seen:
            return Target(".".join(names), sight=Sight.NOT_FOUND)
        seen |= {key}
        binding = self._bindings.get(names[0])
        if binding is None:
            return self._unbound(names, seen)
        if isinstance(binding, _Import):
            return self._imported(binding, names[1:], seen)
        if isinstance(binding, ast.expr):
            return self._value(binding, names, seen)
        definition = Definition(binding, self._file, names[0], self)
        is_jitted = self._is_jitted(binding, seen)
        return Target(self._path(names[0]), (definition,), is_jitted=is_jitted)

    def _unbound(self, names: _Names, seen: _Seen) -> Target:
        if hasattr(builtins, names[0]):
            return Target(f"builtins.{names[0]}")
        for star in self._star_imports:
            target = self._imported(star, names, seen)
            if target.sight is Sight.CLEAR:
                return target
        if names[0] in CONVENTIONAL_NAMES:
            return Target(".".join((CONVENTIONAL_NAMES[names[0]], *names[1:])))
        return Target(".".join(names), sight=Sight.NOT_FOUND)

    def _imported(self, origin: _Import, names: _Names, seen: _Seen) -> Target:
        inside = names if origin.name is None else (origin.name, *names)
        path = ".".join((*origin.module, *inside))
        if origin.level == 0 and is_library(path):
            return Target(path)
        here = self._directory
        place = find_module(here, origin.module, origin.level) if here else None
        return self._look_into(place, inside, seen) or Target(path, sight=Sight.NOT_FOUND)

    def _look_into(self, place: Path | None, names: _Names, seen: _Seen) -> Target | None:
        """What `names` refers to in the module at `place`; None if that cannot be read."""
        if place is None:
            return None
        package = place.parent if place.name == "__init__.py" else place
        namespace = self._load(place) if place.is_file() else None
        if not names:
            return Target(self._path(place.stem))
        if package.is_dir() and not (namespace and namespace.binds(names[0])):
            submodule = locate(package, names[:1])
            if submodule:
                return self._look_into(submodule, names[1:], seen)
        return namespace.resolve(names, seen) if namespace else None

    def _load(self, file: Path) -> "TextNamespace | None":
        file = file.resolve()
        if file not in self._loaded:
            self._loaded[file] = None
            try:
                text = file.read_text(encoding="utf-8")
                self._loaded[file] = TextNamespace(text, str(file), file.parent, self._loaded)
            except (OSError, SyntaxError, UnicodeDecodeError):
                return None  # the finding at the import says that nothing could be read
        return self._loaded[file]

    def _value(self, value: ast.expr, names: _Names, seen: _Seen) -> Target:
        """What a module-level assignment makes a name refer to."""
        alias = dotted_names(value)
        if alias:
            return self.resolve((*alias, *names[1:]), seen)
        if isinstance(value, ast.Call):
            return self._called_value(value, names, seen)
        if isinstance(value, ast.Lambda):
            return Target(self._path(names[0]), sight=Sight.NO_SOURCE)
        held = (dotted_names(expression) for expression in _items_of(value))
        targets = [self.resolve(dotted, seen) for dotted in held if dotted]
        return Target(
            self._path(names[0]), tuple(d for target in targets for d in target.definitions)
        )

    def _called_value(self, call: ast.Call, names: _Names, seen: _Seen) -> Target:
        """`k = nki.jit(f)` is a kernel; `x = Class(...)` brings the methods of the class."""
        function = dotted_names(call.func)
        maker = self.resolve(function, seen) if function else Target("")
        wrapped = dotted_names(call.args[0]) if call.args else None
        if is_jit(maker.path) and wrapped:
            return replace(self.resolve(wrapped, seen), is_jitted=True)
        made = tuple(
            definition
            for definition in maker.definitions
            if isinstance(definition.node, ast.ClassDef)
        )
        return Target(self._path(names[0]), made)

    def _is_jitted(self, node: DefinitionNode, seen: _Seen) -> bool:
        calls = (
            decorator.func if isinstance(decorator, ast.Call) else decorator
            for decorator in node.decorator_list
        )
        names = (dotted_names(call) for call in calls)
        return any(is_jit(self.resolve(name, seen).path) for name in names if name)


def _bindings_of(statement: ast.stmt) -> Iterator[tuple[str, _Binding]]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, statement
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, value)
        case ast.For(target=target):
            yield from _assigned(target, _OPAQUE)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Import(names=aliases):
            for alias in aliases:
                module = tuple(alias.name.split("."))
                yield (
                    alias.asname or module[0],
                    _Import(module if alias.asname else module[:1], 0, None),
                )
        case ast.ImportFrom(module=module, names=aliases, level=level):
            parts = tuple(module.split(".")) if module else ()
            for alias in aliases:
                imported = None if alias.name == "*" else alias.name
                yield alias.asname or alias.name, _Import(parts, level, imported)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, _Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _assigned(element, _OPAQUE)


def _blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statements inside a module-level `if`, `try`, `with` or loop."""
    if isinstance(statement, (*FUNCTION_NODES, ast.ClassDef)):
        return
    for owner in (statement, *getattr(statement, "handlers", ())):
        for field in ("body", "orelse", "finalbody"):
            yield getattr(owner, field, [])


def _items_of(display: ast.expr) -> list[ast.expr]:
    match display:
        case ast.Dict(values=values):
            return values
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return items
        case _:
            return []
