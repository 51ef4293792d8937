"""Expressions: rules X01 to X19."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.kinds import Kind
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.checks.check import Breach, check

_INT32_MAX = 2**31 - 1
_ALWAYS_TRUE = {Kind.DICT: "a dict", Kind.TENSOR: "a tensor"}
_UNREAD = {
    ast.ListComp: "a list comprehension",
    ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension",
    ast.GeneratorExp: "a generator expression",
    ast.Lambda: "a lambda",
    ast.NamedExpr: "an assignment inside an expression",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield from`",
    ast.Await: "`await`",
}
_UNREAD_REMEDIES = {
    ast.GeneratorExp: "append to a list in a `for` loop",
    ast.ListComp: "append to a list in a `for` loop",
    ast.Lambda: "define a function at module level",
    ast.NamedExpr: "assign in a statement of its own",
}


@check(*_UNREAD)
def _unread(expression: ast.expr, _: Scope) -> Iterator[Breach]:
    kind = type(expression)
    yield Breach("X13", expression, f"{_UNREAD[kind]}", _UNREAD_REMEDIES.get(kind))


@check(ast.Constant)
def _literal(constant: ast.Constant, _: Scope) -> Iterator[Breach]:
    if type(constant.value) is int and constant.value > _INT32_MAX:
        yield Breach("X01", constant, f"{constant.value} does not fit int32")
    elif isinstance(constant.value, bytes | complex):
        kind = type(constant.value).__name__
        yield Breach("X01", constant, f"the {kind} literal {constant.value!r}", "use str or float")


@check(ast.BinOp)
def _operator(operation: ast.BinOp, scope: Scope) -> Iterator[Breach]:
    if isinstance(operation.op, ast.MatMult):
        yield Breach("X03", operation, "the `@` operator")
    else:
        yield from _operands(operation, [operation.left, operation.right], scope)


@check(ast.AugAssign)
def _operator_in_place(statement: ast.AugAssign, scope: Scope) -> Iterator[Breach]:
    if isinstance(statement.op, ast.MatMult):
        yield Breach("X03", statement, "the `@=` operator")
    else:
        yield from _operands(statement, [statement.target, statement.value], scope)


@check(ast.UnaryOp)
def _sign(operation: ast.UnaryOp, scope: Scope) -> Iterator[Breach]:
    if isinstance(operation.op, ast.Not):
        yield from _condition(operation.operand, scope)
    else:
        yield from _operands(operation, [operation.operand], scope)


@check(ast.Compare)
def _order(comparison: ast.Compare, scope: Scope) -> Iterator[Breach]:
    if any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in comparison.ops):
        yield from _operands(comparison, [comparison.left, *comparison.comparators], scope)


def _operands(
    place: ast.expr | ast.stmt, operands: list[ast.expr], scope: Scope
) -> Iterator[Breach]:
    tensors = [operand for operand in operands if scope.kind(operand) is Kind.TENSOR]
    if tensors:
        text = ast.unparse(tensors[0])
        yield Breach("X04", place, f"a Python operator on the tensor `{text}`")


@check(ast.Compare)
def _identity(comparison: ast.Compare, _: Scope) -> Iterator[Breach]:
    left = comparison.left
    for operator, right in zip(comparison.ops, comparison.comparators, strict=True):
        if isinstance(operator, ast.Is | ast.IsNot):
            word, same = ("is", "==") if isinstance(operator, ast.Is) else ("is not", "!=")
            has_none = any(isinstance(e, ast.Constant) and e.value is None for e in (left, right))
            message = f"`{word} None`" if has_none else f"`{word}` compares by value in NKI"
            remedy = f"write `{same} None`" if has_none else f"write `{same}`"
            yield Breach("X05" if has_none else "X06", comparison, message, remedy)
        left = right


@check(ast.Compare)
def _membership(comparison: ast.Compare, scope: Scope) -> Iterator[Breach]:
    for operator, container in zip(comparison.ops, comparison.comparators, strict=True):
        if isinstance(operator, ast.In | ast.NotIn) and scope.kind(container) is Kind.DICT:
            text = ast.unparse(container)
            yield Breach("X07", comparison, f"`in` on the dict `{text}`")


@check(ast.FormattedValue)
def _format(value: ast.FormattedValue, scope: Scope) -> Iterator[Breach]:
    if value.format_spec is not None:
        text = ast.unparse(value.value)
        # Before Python 3.12 the parts of an f-string have no usable position of their own.
        yield Breach("X09", scope.parent, f"`{text}` is formatted by a specification")


@check(ast.Set)
def _set(display: ast.Set, _: Scope) -> Iterator[Breach]:
    yield Breach("X10", display, "a set", "use a list or a tuple")


@check(ast.Dict)
def _keys(display: ast.Dict, _: Scope) -> Iterator[Breach]:
    for key in display.keys:
        if key is None:
            yield Breach("X10", display, "`**` inside a dict", "set the entries one by one")
        elif not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            text = ast.unparse(key)
            yield Breach("X10", key, f"the dict key `{text}` is not a string literal")


@check(ast.Subscript)
def _subscript(subscript: ast.Subscript, scope: Scope) -> Iterator[Breach]:
    owner = scope.kind(subscript.value)
    if owner is Kind.STRING:
        text = ast.unparse(subscript.value)
        yield Breach("X11", subscript, f"a part of the string `{text}`")
    elif owner is not Kind.DICT and _is_nested(subscript.slice, is_tensor=owner is Kind.TENSOR):
        text = ast.unparse(subscript)
        yield Breach("X19", subscript, f"a tuple or list inside the index of `{text}`")


def _is_nested(index: ast.expr, *, is_tensor: bool) -> bool:
    if isinstance(index, ast.Tuple):
        return any(isinstance(element, ast.Tuple | ast.List) for element in index.elts)
    return is_tensor and isinstance(index, ast.List)


@check(ast.Slice)
def _slice_step(part: ast.Slice, _: Scope) -> Iterator[Breach]:
    match part.step:
        case ast.UnaryOp(op=ast.USub()) | ast.Constant(value=0):
            text = ast.unparse(part.step)
            yield Breach("X12", part, f"a slice with step {text}")


@check(ast.If, ast.While, ast.IfExp, ast.Assert)
def _test(node: ast.If | ast.While | ast.IfExp | ast.Assert, scope: Scope) -> Iterator[Breach]:
    yield from _condition(node.test, scope)


@check(ast.BoolOp)
def _boolean(operation: ast.BoolOp, scope: Scope) -> Iterator[Breach]:
    for value in operation.values:
        yield from _condition(value, scope)


def _condition(expression: ast.expr, scope: Scope) -> Iterator[Breach]:
    kind = scope.kind(expression)
    if kind in _ALWAYS_TRUE:
        text = ast.unparse(expression)
        yield Breach("X17", expression, f"`{text}` is {_ALWAYS_TRUE[kind]}: always true")
