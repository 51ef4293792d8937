"""Names from outside the function: builtins, libraries (B01, B02, B07 to B11) and kernels (F07)."""

import ast
import builtins
from collections.abc import Iterator

from nkisim.lint.analysis.definition import Sight, Target
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.analysis.vocabulary import (
    BUILTIN_REMEDIES,
    BUILTINS,
    MATH_NAMES,
    SILENT_PACKAGES,
    is_standard_library,
    package_of,
)
from nkisim.lint.checks.check import Breach, check

# Plain floats: the parser takes the value over.
_NUMPY_CONSTANTS = frozenset({"numpy.inf", "numpy.nan", "numpy.pi", "numpy.e"})


@check(ast.Name, ast.Attribute)
def _reference(expression: ast.Name | ast.Attribute, scope: Scope) -> Iterator[Breach]:
    """Look at a whole dotted name, not at its parts."""
    if isinstance(scope.parent, ast.Attribute) or not isinstance(expression.ctx, ast.Load):
        return
    target = scope.resolve(expression)
    if target is None:
        return
    package = package_of(target.path)
    if package == "builtins":
        yield from _builtin(expression, target, scope)
    elif package == "math":
        yield from _math(expression, target)
    elif package not in SILENT_PACKAGES:
        yield from _library(expression, target)
    if target.is_jitted:
        yield Breach("F07", expression, f"`{ast.unparse(expression)}` is a kernel itself")


def _builtin(expression: ast.expr, target: Target, scope: Scope) -> Iterator[Breach]:
    name = target.path.split(".")[1]
    if name == "range":
        if not _is_loop_range(expression, scope):
            yield Breach("B02", expression, "`range` outside `for ... in range(...)`")
    elif name not in BUILTINS and not _is_exception(name):
        yield Breach("B01", expression, f"the builtin `{name}`", BUILTIN_REMEDIES.get(name))


def _is_exception(name: str) -> bool:
    """Exceptions appear under `raise` and `except`, which are reported already."""
    value = getattr(builtins, name, None)
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_loop_range(expression: ast.expr, scope: Scope) -> bool:
    match scope.ancestors[-2:]:
        case [ast.For(iter=iterable) | ast.comprehension(iter=iterable), ast.Call(func=function)]:
            return function is expression and iterable is scope.parent
        case _:
            return False


def _math(expression: ast.expr, target: Target) -> Iterator[Breach]:
    name = target.path.rpartition(".")[2]
    if name != "math" and name not in MATH_NAMES:
        yield Breach("B07", expression, f"`math.{name}`")


def _library(expression: ast.expr, target: Target) -> Iterator[Breach]:
    text, package = ast.unparse(expression), package_of(target.path)
    if package == "numpy":
        if target.path not in _NUMPY_CONSTANTS:
            yield Breach("B08", expression, f"`{text}` of numpy")
    elif package == "neuronxcc":
        yield Breach("B11", expression, f"`{text}` of the retired neuronxcc API")
    elif is_standard_library(target.path) and not target.definitions:
        yield Breach("B09", expression, f"`{text}` of the standard library ({package})")
    elif target.sight is Sight.NO_SOURCE:
        yield Breach("B09", expression, f"`{text}` is not defined by `def` or `class` in a file")
    elif target.sight is Sight.NOT_FOUND:
        yield Breach("B10", expression, f"`{text}` was not found")
