"""Statements: rules S02 to S11."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.kinds import Kind
from nkisim.lint.analysis.loop_bodies import loop_body_names
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.analysis.vocabulary import NO_REORDER
from nkisim.lint.checks.check import Breach, check

_UNREAD = {
    ast.ClassDef: "`class` inside a function",
    ast.Delete: "`del`",
    ast.Try: "`try`",
    ast.Raise: "`raise`",
    ast.Import: "`import`",
    ast.ImportFrom: "`import`",
    ast.Global: "`global`",
    ast.Nonlocal: "`nonlocal`",
    ast.Match: "`match`",
    ast.AsyncFor: "`async for`",
    ast.AsyncWith: "`async with`",
}
# Statements that younger Pythons have and 3.10 has not.
_UNREAD_LATER = {"TryStar": "`try`", "TypeAlias": "`type`"}
_UNREAD |= {getattr(ast, name): text for name, text in _UNREAD_LATER.items() if hasattr(ast, name)}

_UNREAD_REMEDIES = {
    ast.ClassDef: "define the class at module level",
    ast.Delete: "drop it; a tensor ends with its last use",
    ast.Raise: 'write `assert condition, "message"`',
    ast.Import: "import at module level",
    ast.ImportFrom: "import at module level",
    ast.Global: "pass the value as an argument and return the new one",
    ast.Nonlocal: "keep what a loop body changes in SBUF or HBM",
    ast.Match: "write if / elif",
}


@check(*_UNREAD)
def _unread(statement: ast.stmt, _: Scope) -> Iterator[Breach]:
    kind = type(statement)
    message = f"{_UNREAD[kind]} is not read by NKI"
    yield Breach("S10", statement, message, _UNREAD_REMEDIES.get(kind))


@check(ast.Assign)
def _assignment_form(statement: ast.Assign, _: Scope) -> Iterator[Breach]:
    mutated = [
        target for target in statement.targets if isinstance(target, ast.Subscript | ast.Attribute)
    ]
    if len(mutated) > 1:
        yield Breach("S02", statement, "one statement changes two containers or objects")
    for target in statement.targets:
        if isinstance(target, ast.Tuple):
            yield from _pattern(target)


def _pattern(target: ast.Tuple) -> Iterator[Breach]:
    for element in target.elts:
        if isinstance(element, ast.Tuple):
            yield from _pattern(element)
        elif not isinstance(element, ast.Name):
            text = ast.unparse(element)
            remedy = "unpack into plain names, then assign them one by one"
            yield Breach("S02", element, f"`{text}` among unpacked names", remedy)


@check(ast.Assign, ast.AnnAssign)
def _tensor_assignment(statement: ast.Assign | ast.AnnAssign, scope: Scope) -> Iterator[Breach]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        if isinstance(target, ast.Subscript) and scope.kind(target.value) is Kind.TENSOR:
            text = ast.unparse(target.value)
            yield Breach("S11", target, f"assignment to a part of the tensor `{text}`")


@check(ast.For, ast.While)
def _loop_else(loop: ast.For | ast.While, _: Scope) -> Iterator[Breach]:
    if loop.orelse:
        word = "for" if isinstance(loop, ast.For) else "while"
        yield Breach("S05", loop, f"`{word}` with an `else`")


@check(ast.For)
def _loop_target(loop: ast.For, _: Scope) -> Iterator[Breach]:
    if not isinstance(loop.target, ast.Name):
        yield Breach("S06", loop.target, f"loop target `{ast.unparse(loop.target)}` is not a name")


@check(ast.With)
def _with_context(statement: ast.With, scope: Scope) -> Iterator[Breach]:
    if not is_no_reorder(statement, scope):
        contexts = ", ".join(ast.unparse(item) for item in statement.items)
        yield Breach("S08", statement, f"`with {contexts}`")


def is_no_reorder(statement: ast.AST, scope: Scope) -> bool:
    """Whether a statement is exactly `with nl.no_reorder():`."""
    match statement:
        case ast.With(items=[ast.withitem(ast.Call(args=[], keywords=[]) as call, None)]):
            return scope.nki_call(call) == NO_REORDER
        case _:
            return False


@check(ast.FunctionDef)
def _inner_function(function: ast.FunctionDef, scope: Scope) -> Iterator[Breach]:
    if function.name not in loop_body_names(scope.function, scope.path):
        yield Breach("S09", function, f"`{function.name}` is defined inside a function")
