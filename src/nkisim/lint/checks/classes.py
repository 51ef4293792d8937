"""Classes a kernel reaches: rules C01 to C04."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.definition import Definition, dotted_names
from nkisim.lint.analysis.vocabulary import nki_name
from nkisim.lint.checks.check import Breach
from nkisim.lint.checks.signatures import decorator_breaches, is_allowed_on_class


def class_breaches(node: ast.ClassDef, definition: Definition) -> Iterator[Breach]:
    """Every rule broken by a class itself; its methods are functions like others."""
    yield from decorator_breaches(node, definition, is_allowed_on_class)
    yield from _bases(node, definition)
    for keyword in node.keywords:
        yield Breach("C02", keyword, f"the class keyword `{keyword.arg}=`")
    for parameter in getattr(node, "type_params", ()):  # since Python 3.12
        yield Breach("C02", parameter, f"`{node.name}` has type parameters")
    yield from _slots(node)
    for member in node.body:
        if not _is_member(member):
            first_line = ast.unparse(member).partition("\n")[0]
            yield Breach("C03", member, f"`{first_line}` in the body of `{node.name}`")


def _bases(node: ast.ClassDef, definition: Definition) -> Iterator[Breach]:
    if not (len(node.bases) == 1 and is_base(node.bases[0], definition)):
        bases = ", ".join(ast.unparse(base) for base in node.bases) or "nothing"
        yield Breach("C01", node, f"`{node.name}` derives from {bases}")


def is_base(base: ast.expr, definition: Definition) -> bool:
    """Whether an expression names nl.NKIObject or Enum."""
    names = dotted_names(base)
    path = definition.namespace.resolve(names).path if names else ""
    return nki_name(path) == "NKIObject" or path == "enum.Enum"


def _slots(node: ast.ClassDef) -> Iterator[Breach]:
    for decorator in node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "slots":
                yield Breach("C04", keyword, f"`{node.name}` asks for slots")
    for member in node.body:
        targets = member.targets if isinstance(member, ast.Assign) else ()
        if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in targets):
            yield Breach("C04", member, f"`{node.name}` has slots")


def _is_member(member: ast.stmt) -> bool:
    match member:
        case ast.Pass() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return True
        case ast.Expr(value=ast.Constant()) | ast.AnnAssign(target=ast.Name()):
            return True
        case ast.Assign(targets=[ast.Name()]):
            return True
        case _:
            return False
