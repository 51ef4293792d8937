"""Signatures and decorators: rules F01 to F06."""

import ast
from collections.abc import Callable, Iterator

from nkisim.lint.analysis.definition import Definition, DefinitionNode, FunctionNode, dotted_names
from nkisim.lint.analysis.vocabulary import is_jit
from nkisim.lint.checks.check import Breach

_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def signature_breaches(function: FunctionNode, definition: Definition) -> Iterator[Breach]:
    """Every rule broken by a function's decorators and parameters."""
    yield from decorator_breaches(function, definition, is_allowed_on_function)
    if isinstance(function, ast.AsyncFunctionDef):
        yield Breach("S10", function, "`async def` is not read by NKI", "write `def`")
    arguments = function.args
    if arguments.vararg:
        yield Breach("F01", arguments.vararg, f"`*{arguments.vararg.arg}` takes any arguments")
    if arguments.kwarg:
        yield Breach("F02", arguments.kwarg, f"`**{arguments.kwarg.arg}` takes any keywords")
    for parameter in arguments.kwonlyargs[:1]:
        yield Breach("F03", parameter, f"`{parameter.arg}` and what follows are keyword-only")
    for parameter in arguments.posonlyargs[:1]:
        yield Breach("F04", parameter, f"`{parameter.arg}` is position-only")
    for default in (*arguments.defaults, *arguments.kw_defaults):
        if isinstance(default, _MUTABLE):
            yield Breach("F06", default, f"the default value `{ast.unparse(default)}` is mutable")


def is_allowed_on_function(path: str) -> bool:
    """Whether the decorator of this path may stand on a function or method."""
    return is_jit(path) or path == "builtins.staticmethod"


def is_allowed_on_class(path: str) -> bool:
    """Whether the decorator of this path may stand on a class."""
    return path == "dataclasses.dataclass"


def decorator_breaches(
    node: DefinitionNode, definition: Definition, is_allowed: Callable[[str], bool]
) -> Iterator[Breach]:
    """A breach for each decorator that is not allowed."""
    for decorator in node.decorator_list:
        names = dotted_names(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if names is None or not is_allowed(definition.namespace.resolve(names).path):
            yield Breach("F05", decorator, f"the decorator `@{ast.unparse(decorator)}`")
