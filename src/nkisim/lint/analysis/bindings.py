"""The names a function binds, and the kinds its assignments give them."""

import ast
from collections.abc import Iterator
from typing import TypeAlias

from nkisim.lint.analysis.annotations import annotated_kind
from nkisim.lint.analysis.definition import FUNCTION_NODES, FunctionNode, Role
from nkisim.lint.analysis.kinds import Kind, Look, Resolve, join, kind_of
from nkisim.lint.analysis.vocabulary import DYNAMIC_RANGE, TENSOR_OPERANDS, nki_name

Binding: TypeAlias = tuple[str, ast.expr | Kind]  # a name, and a value or the kind of one


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter of a signature, in order."""
    starred = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred]


def own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    """The nodes of a function's body, in order, without the insides of inner definitions."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FUNCTION_NODES, ast.ClassDef)):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def bound_names(function: FunctionNode) -> frozenset[str]:
    """The names that are local to the function."""
    names = {name for name, _ in _body_bindings(function, _unresolved)}
    return frozenset(names.union(parameter.arg for parameter in parameters(function.args)))


def infer_kinds(
    function: FunctionNode, role: Role, outer: Look, resolve: Resolve
) -> dict[str, Kind]:
    """The kind of every name the function binds, its parameters included."""
    bindings = [*_parameter_bindings(function, role, resolve), *_body_bindings(function, resolve)]
    kinds = dict.fromkeys((name for name, _ in bindings), Kind.UNSEEN)

    def look(name: str) -> Kind:
        return kinds[name] if name in kinds else outer(name)

    before: dict[str, Kind] = {}
    while kinds != before:  # a kind only climbs, UNSEEN to claim to UNKNOWN, so this ends
        before = dict(kinds)
        for name, value in bindings:
            found = value if isinstance(value, Kind) else kind_of(value, look, resolve)
            kinds[name] = join(kinds[name], found)
    return {name: Kind.UNKNOWN if kind is Kind.UNSEEN else kind for name, kind in kinds.items()}


def _parameter_bindings(function: FunctionNode, role: Role, resolve: Resolve) -> Iterator[Binding]:
    operands = set(_tensor_operands(function, resolve))
    counted = function.args.args[:1] if role is not Role.CALLED else []
    for parameter in parameters(function.args):
        if parameter in counted:
            yield parameter.arg, Kind.SCALAR if role is Role.FORI_BODY else Kind.REGISTER
        elif parameter.arg in operands:
            yield parameter.arg, Kind.TENSOR
        else:
            yield parameter.arg, annotated_kind(parameter.annotation, resolve)


def _tensor_operands(function: FunctionNode, resolve: Resolve) -> Iterator[str]:
    """Names given to an instruction where only a tensor can stand."""
    for node in own_nodes(function):
        if not isinstance(node, ast.Call):
            continue
        instruction = nki_name(resolve(node.func) or "")
        if instruction is None or instruction.startswith("register_"):
            continue
        for keyword in node.keywords:
            if keyword.arg in TENSOR_OPERANDS and isinstance(keyword.value, ast.Name):
                yield keyword.value.id


def _body_bindings(function: FunctionNode, resolve: Resolve) -> Iterator[Binding]:
    for node in own_nodes(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _unpack(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _unpack(target, value)
            case ast.NamedExpr(target=target, value=value):
                yield from _unpack(target, value)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                yield name, ast.BinOp(ast.Name(name, ast.Load()), operator, value)
            case ast.For(target=target, iter=iterable):
                yield from _unpack(target, _item_kind(iterable, resolve))
            case ast.comprehension(target=target):
                yield from _unpack(target, Kind.UNKNOWN)
            case ast.withitem(optional_vars=ast.expr() as target):
                yield from _unpack(target, Kind.UNKNOWN)
            case _:
                yield from ((name, Kind.UNKNOWN) for name in _names_declared_by(node))


def _names_declared_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
        case ast.Lambda(args=arguments):
            yield from (parameter.arg for parameter in parameters(arguments))


def _unpack(target: ast.expr, value: ast.expr | Kind) -> Iterator[Binding]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Starred(value=inner), _:
            yield from _unpack(inner, Kind.UNKNOWN)
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one_target, one_value in zip(targets, values, strict=True):
                yield from _unpack(one_target, one_value)
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), _):
            for one_target in targets:
                yield from _unpack(one_target, Kind.UNKNOWN)


def _unresolved(_: ast.expr) -> None:
    """For those who ask only which names are bound, not what they hold."""


def _item_kind(iterable: ast.expr, resolve: Resolve) -> Kind:
    path = resolve(iterable.func) if isinstance(iterable, ast.Call) else None
    return Kind.REGISTER if nki_name(path or "") == DYNAMIC_RANGE else Kind.UNKNOWN
