"""What NKI 0.7 keys its compiled kernels by is the repr of their arguments: rules K01 and K02."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.annotations import annotated_types
from nkisim.lint.analysis.bindings import parameters
from nkisim.lint.analysis.definition import FUNCTION_NODES, Definition, dotted_names
from nkisim.lint.checks.check import Breach
from nkisim.lint.checks.classes import is_base


def key_breaches(kernel: Definition) -> Iterator[tuple[Breach, Definition]]:
    """Parameters of a kernel whose classes or defaults make no complete key."""
    if not isinstance(kernel.node, FUNCTION_NODES):
        return
    for default in (*kernel.node.args.defaults, *kernel.node.args.kw_defaults):
        if isinstance(default, ast.Lambda):
            message = "a lambda as default value: its repr is an address"
            yield Breach("K01", default, message), kernel
    for parameter in parameters(kernel.node.args):
        for annotated in annotated_types(parameter.annotation):
            names = dotted_names(annotated)
            for found in kernel.namespace.resolve(names).definitions if names else ():
                if isinstance(found.node, ast.ClassDef):
                    for breach in _class_breaches(found.node, found):
                        yield breach, found


def _class_breaches(node: ast.ClassDef, definition: Definition) -> Iterator[Breach]:
    if _is_enum(node, definition) or _defines(node, "__repr__"):
        return
    record = next(
        (decorator for decorator in node.decorator_list if _is_dataclass(decorator, definition)),
        None,
    )
    if record is None or _says(record, "repr", value=False):
        message = f"`{node.name}` has Python's default repr, which is an address"
        yield Breach("K01", node, message)
        return
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and _says(member.value, "repr", value=False):
            message = f"`{ast.unparse(member.target)}` is left out of the repr of `{node.name}`"
            yield Breach("K01", member, message)
    hashable = _says(record, "frozen", value=True) or _defines(node, "__hash__")
    own = any(is_base(base, definition) for base in node.bases)
    if not hashable and not own:
        message = f"`{node.name}` is not hashable: calls with it are compiled anew each time"
        yield Breach("K02", node, message)


def _is_enum(node: ast.ClassDef, definition: Definition) -> bool:
    paths = (dotted_names(base) for base in node.bases)
    known = (definition.namespace.resolve(names).path for names in paths if names)
    return any(path.startswith("enum.") for path in known)


def _is_dataclass(decorator: ast.expr, definition: Definition) -> bool:
    names = dotted_names(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return names is not None and definition.namespace.resolve(names).path == "dataclasses.dataclass"


def _says(call: ast.expr | None, option: str, *, value: bool) -> bool:
    """Whether a call has the option with this value."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    given = [keyword.value for keyword in keywords if keyword.arg == option]
    return any(
        isinstance(expression, ast.Constant) and expression.value is value for expression in given
    )


def _defines(node: ast.ClassDef, method: str) -> bool:
    return any(isinstance(member, FUNCTION_NODES) and member.name == method for member in node.body)
