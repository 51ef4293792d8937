"""What a compiled kernel is known by: a digest of its recipe and of the sources that obey it.

NKI 0.7 keys compiled kernels by the `repr` of their arguments, and works it out at every call. A
recipe has thousands of parts, and no argument says what the code of its kernel is: so the `repr` of
a recipe is a digest of both, worked out once for each recipe.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_BYTES = 16  # of a digest
_KEPT = "_digest"  # the attribute of a recipe that has it


def digest_of(recipe: Any) -> str:
    """The digest of a recipe (a frozen dataclass) and of the sources of its folder's kernel."""
    known = recipe.__dict__.get(_KEPT)
    if known is None:
        kind = type(recipe)
        folder, _, _ = kind.__module__.rpartition(".")
        content = [f"{field.name}={getattr(recipe, field.name)!r}" for field in fields(recipe)]
        text = "\n".join([kind.__qualname__, sources_digest(f"{folder}.kernel"), *content])
        known = _hashed(text)
        object.__setattr__(recipe, _KEPT, known)
    return str(known)


@lru_cache(maxsize=64)
def sources_digest(module: str) -> str:
    """The digest of a module's source and of all it imports from its package, as first read."""
    files = {name: path.read_text(encoding="utf-8") for name, path in sorted(sources_of(module))}
    return _hashed("\n".join(f"{name}\n{text}" for name, text in files.items()))


def sources_of(module: str) -> set[tuple[str, Path]]:
    """Names and files of a module and of what it imports, down to the last."""
    package = module.partition(".")[0]
    sources: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if name not in sources and path is not None:
            sources[name] = path
            waiting += [
                imported for imported in _imported(path) if imported.partition(".")[0] == package
            ]
    return set(sources.items())


def _file_of(module: str) -> Path | None:
    """Where a module's source is; None for a name inside a module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, and names that may be modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_BYTES).hexdigest()
