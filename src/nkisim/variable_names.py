"""The variable a tensor was assigned to, read from the source of the kernel that made it."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import CodeType

    from nkisim.source_lines import CallSite

_UNIT_BYTES: Final = 2  # of bytecode: `f_lasti` counts bytes, `co_positions` instructions
_RETURNED: Final = "return"


def assigned_name(sites: tuple[CallSite, ...]) -> str | None:
    """The variable that the result of a call went to: `acc = nl.ndarray(...)` is "acc".

    A helper that returns the result passes the question on to its caller. None if there is no
    variable, or no source.
    """
    for site in sites:
        name = _assigned(site.code, site.lasti, site.line)
        if name != _RETURNED:
            return name
    return None


@lru_cache(maxsize=4096)
def _assigned(code: CodeType, lasti: int, line: int) -> str | None:
    node = _call_at(code, lasti, line)
    for parent in _parents(code.co_filename, node):
        match parent:
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                return ast.unparse(target)
            case ast.NamedExpr(target=target):
                return target.id
            case ast.Return():
                return _RETURNED
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
                return name
            case ast.ListComp() | ast.List() | ast.Tuple() | ast.IfExp() | ast.Dict():
                continue
            case _:
                return None
    return None


def _parents(file: str, node: ast.AST | None) -> list[ast.AST]:
    """What a node stands in, innermost first, up to its statement."""
    above = _tree(file)[1]
    found: list[ast.AST] = []
    while node is not None and not isinstance(node, ast.stmt):
        node = above.get(node)
        if node is not None:
            found.append(node)
    return found


def _call_at(code: CodeType, lasti: int, line: int) -> ast.Call | None:
    """The call that a place in the bytecode belongs to."""
    calls = _tree(code.co_filename)[0].get(line, [])
    if not hasattr(code, "co_positions"):  # Python 3.10 knows the line only
        return calls[0] if len(calls) == 1 else None
    position = list(code.co_positions())[lasti // _UNIT_BYTES]
    for call in calls:
        if position == (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset):
            return call
    return None


@lru_cache(maxsize=64)
def _tree(file: str) -> tuple[dict[int, list[ast.Call]], dict[ast.AST, ast.AST]]:
    """The calls of a file by the line they begin on, and what every node stands in."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a file that has changed since, or is no Python: then names are not known
        return {}, {}
    calls: dict[int, list[ast.Call]] = {}
    above: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            above[child] = node
        if isinstance(node, ast.Call):
            calls.setdefault(node.lineno, []).append(node)
    return calls, above
