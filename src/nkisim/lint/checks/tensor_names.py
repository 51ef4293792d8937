"""Names of tensors: rules N01 and N02."""

import ast
from collections.abc import Iterator
from typing import TypeAlias

from nkisim.lint.analysis.definition import FUNCTION_NODES
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.analysis.vocabulary import ALLOCATORS
from nkisim.lint.checks.check import Breach, check
from nkisim.lint.checks.loops import is_device_loop

Branch: TypeAlias = tuple[tuple[int, bool], ...]  # line of each `if` around, and which arm


@check(ast.Call)
def _name_in_loop(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    name = _tensor_name(call, scope)
    loops = (node for node in scope.ancestors if isinstance(node, ast.For | ast.While))
    if name and any(not is_device_loop(loop, scope) for loop in loops):
        yield Breach("N02", call, f"every iteration of the loop names its tensor {name!r}")


def repeated_name_breaches(scope: Scope) -> Iterator[Breach]:
    """Rule N01, between allocations of one function that stand in the same branch."""
    first_lines: dict[tuple[Branch, str], int] = {}
    for branch, call, name in _named_allocations(scope.function, (), scope):
        line = first_lines.setdefault((branch, name), call.lineno)
        if line != call.lineno:
            yield Breach("N01", call, f"the tensor name {name!r} is taken since line {line}")


def _named_allocations(
    node: ast.AST, branch: Branch, scope: Scope
) -> Iterator[tuple[Branch, ast.Call, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTION_NODES, ast.ClassDef)):
            continue
        arm = branch
        if isinstance(node, ast.If):
            arm = (*branch, (node.lineno, child in node.orelse))
        yield from _named_allocations(child, arm, scope)
        if isinstance(child, ast.Call) and (name := _tensor_name(child, scope)):
            yield arm, child, name


def _tensor_name(call: ast.Call, scope: Scope) -> str | None:
    """The literal `name=` of a call that allocates a tensor."""
    if scope.nki_call(call) not in ALLOCATORS:
        return None
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="name", value=ast.Constant(value=str() as name)):
                return name
    return None
