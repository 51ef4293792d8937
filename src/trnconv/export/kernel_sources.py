"""Sources of kernels as a package of their own: the files they need, with relative imports."""

from __future__ import annotations

import ast
from pathlib import Path

from trnconv.algorithms.digest import sources_digest, sources_of
from trnconv.errors import UnsupportedError

_PACKAGE = "trnconv"
_NKI = '''"""The one place that imports NKI."""

import nki.isa as nisa
import nki.language as nl
from nki.language import NKIObject

__all__ = ["NKIObject", "nisa", "nl"]
'''
_DIGEST = '''"""What a compiled kernel is known by: a digest of its recipe and of these sources."""

import hashlib
from dataclasses import fields

SOURCES = "{digest}"  # of the files of this package, when they were exported


def digest_of(recipe):
    """The digest, worked out once for each recipe."""
    known = recipe.__dict__.get("_digest")
    if known is None:
        content = [f"{{field.name}}={{getattr(recipe, field.name)!r}}" for field in fields(recipe)]
        text = "\\n".join([type(recipe).__qualname__, SOURCES, *content])
        known = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        object.__setattr__(recipe, "_digest", known)
    return known
'''


def kernel_package(module: str) -> dict[str, str]:
    """Paths and texts of a module and of all it needs, below a package of any name."""
    sources = {name: path for name, path in sources_of(module) if name != _PACKAGE}
    digest = _DIGEST.format(digest=sources_digest(module))
    replaced = {f"{_PACKAGE}._nki": _NKI, f"{_PACKAGE}.algorithms.digest": digest}
    texts: dict[str, str] = {}
    for name, path in sorted(sources.items()):
        parts = name.split(".")[1:]
        text = replaced.get(name) or relative(path.read_text(encoding="utf-8"), parts)
        texts["/".join(parts) + ".py"] = text
    for path_text in list(texts):
        for folder in Path(path_text).parents:
            texts.setdefault(str(folder / "__init__.py"), '"""Exported sources of trnconv."""\n')
    return texts


def relative(source: str, parts: list[str]) -> str:
    """A module's text without imports of this package's name, nor those that are for types."""
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if _for_types(node):
            del lines[node.lineno - 1 : node.end_lineno]
        elif isinstance(node, ast.ImportFrom) and node.module:
            top, _, rest = node.module.partition(".")
            if top == _PACKAGE:
                first = node.lineno - 1
                lines[first] = lines[first].replace(
                    f"from {node.module} ", f"from {'.' * len(parts)}{rest} ", 1
                )
            elif top == "nkisim":
                raise UnsupportedError(f"{'.'.join(parts)} imports {node.module}: it stays here.")
    return "".join(lines)


def _for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
