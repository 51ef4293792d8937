"""Calls: unpacking (X14), builtins (B03, B04) and methods (B05, B06, B12)."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.kinds import Kind
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.analysis.vocabulary import DICT_METHODS, LIST_METHODS, LIST_TRAPS
from nkisim.lint.checks.check import Breach, check

_METHODS = {Kind.LIST: ("list", LIST_METHODS), Kind.DICT: ("dict", DICT_METHODS)}


@check(ast.Call)
def _unpacking(call: ast.Call, _: Scope) -> Iterator[Breach]:
    for argument in call.args:
        if isinstance(argument, ast.Starred):
            yield Breach("X14", argument, f"`{ast.unparse(argument)}` in a call")
    for keyword in call.keywords:
        if keyword.arg is None:
            yield Breach("X14", keyword, f"`**{ast.unparse(keyword.value)}` in a call")


@check(ast.Call)
def _isinstance(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    if scope.builtin_call(call) == "isinstance" and len(call.args) == 2:
        classes = call.args[1]
        if isinstance(classes, ast.Tuple | ast.BinOp):
            yield Breach("B03", call, f"isinstance with `{ast.unparse(classes)}`")


@check(ast.Call)
def _least_and_greatest(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    name = scope.builtin_call(call)
    if name not in {"min", "max"}:
        return
    if call.keywords:
        words = ", ".join(f"`{keyword.arg}=`" for keyword in call.keywords)
        yield Breach("B04", call, f"{name} with {words}", "write it out with a loop")
    elif len(call.args) > 2:
        message = f"{name} of {len(call.args)} values"
        yield Breach("B04", call, message, f"nest the calls: `{name}(a, {name}(b, c))`")


@check(ast.Call)
def _method(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    if not isinstance(call.func, ast.Attribute):
        return
    method, owner = call.func.attr, scope.kind(call.func.value)
    if owner in _METHODS:
        noun, known = _METHODS[owner]
        if method not in known:
            yield Breach("B05", call, f"{noun} method `{method}`")
        elif owner is Kind.LIST:
            yield from _list_method(call, method)
    elif owner is Kind.STRING:
        yield Breach("B12", call, f"string method `{method}`")


def _list_method(call: ast.Call, method: str) -> Iterator[Breach]:
    if method == "pop" and (call.args or call.keywords):
        yield Breach("B05", call, "`pop` with a position", "pop from the end: `xs.pop()`")
    elif method in LIST_TRAPS:
        yield Breach("B06", call, f"list method `{method}` {LIST_TRAPS[method]}")
