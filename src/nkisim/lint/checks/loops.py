"""Loops that run on the device, and registers: rules S07 and L01 to L08."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.bindings import own_nodes
from nkisim.lint.analysis.definition import FunctionNode, Role
from nkisim.lint.analysis.kinds import RUN_TIME, SCALAR_OPERATORS, Kind
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.analysis.vocabulary import (
    DYNAMIC_RANGE,
    LOOP_BODY_POSITION,
    REGISTER_WRITERS,
    UNROLLED_RANGES,
)
from nkisim.lint.checks.check import Breach, check
from nkisim.lint.checks.statements import is_no_reorder

_NUMBER_BUILTINS = frozenset({"bool", "int", "float", "range", "abs", "min", "max", "divmod"})
_DEVICE_LOOPS = frozenset({DYNAMIC_RANGE, *LOOP_BODY_POSITION})


def is_device_loop(node: ast.AST, scope: Scope) -> bool:
    """Whether a statement is a loop that the device, not the compiler, runs."""
    if isinstance(node, ast.For):
        return scope.nki_call(node.iter) == DYNAMIC_RANGE
    return isinstance(node, ast.While) and scope.kind(node.test) in RUN_TIME


def starts_device_loop(call: ast.Call, scope: Scope) -> bool:
    """Whether a call is one of NKI's loop functions."""
    return scope.nki_call(call) in _DEVICE_LOOPS


def is_ordered(scope: Scope) -> bool:
    """Whether the node now visited stands inside `with nl.no_reorder()`."""
    inside = any(is_no_reorder(node, scope) for node in scope.ancestors)
    return inside or (scope.outer is not None and is_ordered(scope.outer))


@check(ast.Break, ast.Continue)
def _jump(statement: ast.Break | ast.Continue, scope: Scope) -> Iterator[Breach]:
    loops = [node for node in scope.ancestors if isinstance(node, ast.For | ast.While)]
    if loops and is_device_loop(loops[-1], scope):
        word = type(statement).__name__.lower()
        yield Breach("S07", statement, f"`{word}` in a loop on the device")


@check(ast.Return)
def _return(statement: ast.Return, scope: Scope) -> Iterator[Breach]:
    if any(is_device_loop(node, scope) for node in scope.ancestors):
        yield Breach("S07", statement, "`return` in a loop on the device")


@check(ast.Call)
def _deprecated(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    name = scope.nki_call(call)
    if name in UNROLLED_RANGES:
        yield Breach("L01", call, f"`{name}` is an old name of `range`")
    elif name == DYNAMIC_RANGE:
        yield Breach("L02", call, f"`{name}` is deprecated")


@check(ast.Call)
def _loop_call(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    if not starts_device_loop(call, scope):
        return
    name = scope.nki_call(call)
    if is_ordered(scope):
        yield Breach("L05", call, f"`{name}` inside `nl.no_reorder()`")
    position = 3 if name == "fori_loop" else 2
    steps = [keyword.value for keyword in call.keywords if keyword.arg == "step"]
    for step in (*steps, *call.args[position : position + 1]):
        if _is_not_positive(step):
            yield Breach("L06", step, f"step {ast.unparse(step)} of `{name}`")


def _is_not_positive(step: ast.expr) -> bool:
    match step:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Constant(value=value):
            return not (type(value) is int and value > 0)
        case _:
            return False


@check(ast.If, ast.While, ast.IfExp, ast.Assert)
def _test(node: ast.If | ast.While | ast.IfExp | ast.Assert, scope: Scope) -> Iterator[Breach]:
    yield from _value_needed([node.test], scope, "a condition")


@check(ast.BoolOp)
def _boolean(operation: ast.BoolOp, scope: Scope) -> Iterator[Breach]:
    yield from _value_needed(operation.values, scope, "a condition")


@check(ast.Call)
def _number(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    name = scope.builtin_call(call)
    if name in _NUMBER_BUILTINS:
        yield from _value_needed(call.args, scope, f"`{name}()`")


def _value_needed(expressions: list[ast.expr], scope: Scope, where: str) -> Iterator[Breach]:
    for expression in expressions:
        if scope.kind(expression) in RUN_TIME:
            yield Breach(
                "L03",
                expression,
                f"{where} needs the value of register `{ast.unparse(expression)}`",
            )


@check(ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Compare)
def _arithmetic(
    node: ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.Compare, scope: Scope
) -> Iterator[Breach]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _value_needed([node.operand], scope, "`not`")
        return
    registers = [operand for operand in _operands(node) if scope.kind(operand) in RUN_TIME]
    if registers:
        text = ast.unparse(registers[0])
        scalar = all(scope.kind(register) is Kind.SCALAR for register in registers)
        refused = not (scalar and _is_scalar_arithmetic(node))
        message = f"a Python operator on the register `{text}`"
        yield Breach("L04", node, message, traced=refused)


def _is_scalar_arithmetic(node: ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.Compare) -> bool:
    """Whether NKI 0.7 has the operator for scalars: + - * and the sign."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub)
    return isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, SCALAR_OPERATORS)


def _operands(node: ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.Compare) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.AugAssign(target=target, value=value):
            return [target, value]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Compare(left=left, comparators=others):
            operands = [left, *others]
            with_none = any(isinstance(e, ast.Constant) and e.value is None for e in operands)
            return [] if with_none else operands


@check(ast.Call)
def _counter_write(call: ast.Call, scope: Scope) -> Iterator[Breach]:
    if scope.nki_call(call) not in REGISTER_WRITERS:
        return
    given = [keyword.value for keyword in call.keywords if keyword.arg == "dst"]
    for destination in (*given, *call.args[:1]):
        if isinstance(destination, ast.Name) and destination.id in _counters(scope):
            yield Breach("L08", call, f"`{destination.id}` counts a loop and cannot be written")


def _counters(scope: Scope) -> set[str]:
    """The registers that count the loops around the node now visited."""
    counters = set() if scope.outer is None else _counters(scope.outer)
    if scope.role is Role.FORI_BODY:
        counters.update(parameter.arg for parameter in scope.function.args.args[:1])
    loops = (node for node in scope.ancestors if isinstance(node, ast.For))
    dynamic = (loop.target for loop in loops if is_device_loop(loop, scope))
    return counters.union(target.id for target in dynamic if isinstance(target, ast.Name))


def loop_body_breaches(function: FunctionNode, role: Role) -> Iterator[Breach]:
    """Rule L07, for a function that is the body of a device loop."""
    if role is Role.CALLED:
        return
    arguments = function.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    if required != 1:
        message = f"the loop body `{function.name}` takes {required} arguments instead of 1"
        yield Breach("L07", function, message)
    results = [node for node in own_nodes(function) if _returns_value(node)]
    if role is Role.FORI_BODY:
        for node in results:
            yield Breach("L07", node, f"the fori_loop body `{function.name}` returns a value")
    elif not results:
        yield Breach("L07", function, f"the while_loop body `{function.name}` returns no register")


def _returns_value(node: ast.AST) -> bool:
    match node:
        case ast.Return(value=None | ast.Constant(value=None)):
            return False
        case _:
            return isinstance(node, ast.Return)
