"""What an expression holds, as far as a glance can tell.

A kind other than UNKNOWN is a claim that every assignment seen agrees with (None aside). Rules that
need types speak only about claims, so where the glance fails the checker is silent, not wrong.
"""

import ast
from collections.abc import Callable
from enum import Enum, auto

from nkisim.lint.analysis.vocabulary import (
    REGISTER_MAKERS,
    SCALAR_MAKERS,
    TENSOR_FUNCTIONS,
    TENSOR_VIEWS,
    nki_name,
)


class Kind(Enum):
    """What a name or an expression holds."""

    UNSEEN = auto()  # no assignment looked at yet
    UNKNOWN = auto()
    NONE = auto()
    STRING = auto()
    TUPLE = auto()
    LIST = auto()
    DICT = auto()
    TENSOR = auto()
    REGISTER = auto()
    SCALAR = auto()  # of NKI 0.7: a register with + - *


Look = Callable[[str], Kind]  # the kind of a name
Resolve = Callable[[ast.expr], str | None]  # the canonical path of a dotted name that is not local

KIND_OF_TYPE = {
    "str": Kind.STRING,
    "tuple": Kind.TUPLE,
    "Tuple": Kind.TUPLE,
    "list": Kind.LIST,
    "List": Kind.LIST,
    "dict": Kind.DICT,
    "Dict": Kind.DICT,
}
_KIND_OF_DISPLAY: dict[type[ast.expr], Kind] = {
    ast.JoinedStr: Kind.STRING,
    ast.Tuple: Kind.TUPLE,
    ast.List: Kind.LIST,
    ast.ListComp: Kind.LIST,
    ast.Dict: Kind.DICT,
    ast.DictComp: Kind.DICT,
}
_KIND_OF_CONSTANT = {type(None): Kind.NONE, str: Kind.STRING}
RUN_TIME = (Kind.REGISTER, Kind.SCALAR)  # what only the device knows
SCALAR_OPERATORS = (ast.Add, ast.Sub, ast.Mult)
_ABSENT = (Kind.UNSEEN, Kind.NONE)
_SEQUENCES = (Kind.STRING, Kind.TUPLE, Kind.LIST)


def join(kind: Kind, other: Kind) -> Kind:
    """The claim that holds for both; None may stand for an absent value of any kind."""
    if kind is other:
        return kind
    if kind in _ABSENT and other in _ABSENT:
        return Kind.NONE
    if kind in _ABSENT:
        return other
    return kind if other in _ABSENT else Kind.UNKNOWN


def kind_of(expression: ast.expr, look: Look, resolve: Resolve) -> Kind:
    """The kind of an expression, given the kinds of names."""
    kind = _KIND_OF_DISPLAY.get(type(expression), Kind.UNKNOWN)
    match expression:
        case ast.Name(id=name):
            kind = look(name)
        case ast.Constant(value=value):
            kind = _KIND_OF_CONSTANT.get(type(value), Kind.UNKNOWN)
        case ast.IfExp(body=one, orelse=other):
            kind = join(kind_of(one, look, resolve), kind_of(other, look, resolve))
        case ast.BinOp(left=left, op=operator, right=right):
            operands = (kind_of(left, look, resolve), kind_of(right, look, resolve))
            kind = _operation_kind(operator, *operands)
        case ast.Subscript(value=owner):
            kind = _part_kind(kind_of(owner, look, resolve))
        case ast.Attribute(value=owner, attr="shape"):
            part = _part_kind(kind_of(owner, look, resolve))
            kind = Kind.TUPLE if part is Kind.TENSOR else part
        case ast.Call():
            kind = _call_kind(expression, look, resolve)
    return kind


def _part_kind(owner: Kind) -> Kind:
    """A part or a view of a tensor is a tensor; nothing is known about parts of the rest."""
    return owner if owner in (Kind.TENSOR, Kind.UNSEEN) else Kind.UNKNOWN


def _operation_kind(operator: ast.operator, left: Kind, right: Kind) -> Kind:
    operands = (left, right)
    if Kind.SCALAR in operands and isinstance(operator, SCALAR_OPERATORS):
        return Kind.SCALAR
    for winner in (Kind.TENSOR, Kind.UNSEEN):
        if winner in operands:
            return winner
    if isinstance(operator, ast.Add) and left is right and left in _SEQUENCES:
        return left
    if isinstance(operator, ast.Mult) and left in _SEQUENCES:
        return left
    return Kind.UNKNOWN


def _call_kind(call: ast.Call, look: Look, resolve: Resolve) -> Kind:
    path = resolve(call.func)
    if path is None:
        match call.func:
            case ast.Attribute(value=owner, attr=method) if method in TENSOR_VIEWS:
                return _part_kind(kind_of(owner, look, resolve))
        return Kind.UNKNOWN
    name = nki_name(path)
    if name in TENSOR_FUNCTIONS:
        return Kind.TENSOR
    if name in REGISTER_MAKERS:
        return Kind.REGISTER
    if name in SCALAR_MAKERS:
        return Kind.SCALAR
    package, _, builtin = path.partition(".")
    return KIND_OF_TYPE.get(builtin, Kind.UNKNOWN) if package == "builtins" else Kind.UNKNOWN
