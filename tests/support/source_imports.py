"""What the source files of both packages import, read from their text."""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = ("nkisim", "trnconv")
BASE_DEPENDENCIES = {"numpy", "ml_dtypes"}
TYPE_CHECKING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def source_files():
    """Every module of both packages and its file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def syntax(path):
    """The syntax tree of a file, parsed once a process."""
    return ast.parse(path.read_text())


def executed(node):
    """The nodes below this one, without what stands under `if TYPE_CHECKING:`."""
    waiting, found = [node], []
    while waiting:
        last = waiting.pop()
        found.append(last)
        waiting += reversed(last.orelse if _for_types(last) else [*ast.iter_child_nodes(last)])
    return found[1:]


def _for_types(node):
    named = isinstance(node, ast.If) and isinstance(node.test, (ast.Name, ast.Attribute))
    return named and ast.unparse(node.test) in TYPE_CHECKING


@cache
def nodes(path):
    """Every node of a file, in no order; walked once a process."""
    return tuple(ast.walk(syntax(path)))


@cache
def executed_imports(path):
    """The nodes of a file that may import something when it runs."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call)
    return tuple(node for node in executed(syntax(path)) if isinstance(node, kinds))


def imported_names(statements, module, *, is_package):
    """Dotted names that statements import; `from a import b` gives `a.b`."""
    package = module if is_package else module.rpartition(".")[0]
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            relative = "." * statement.level + (statement.module or "")
            origin = importlib.util.resolve_name(relative, package)
            yield from (f"{origin}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.Call):
            yield from named_by_string(statement)


def named_by_string(call):
    """The module in `import_module("a.b")` and `__import__("a.b")`."""
    function = getattr(call.func, "attr", getattr(call.func, "id", None))
    if function in {"import_module", "__import__"} and call.args:
        name = getattr(call.args[0], "value", None)
        if isinstance(name, str):
            yield name


def target_of(name, modules):
    """What an import needs: a module of ours, "+package" from outside, None if always there."""
    top = name.partition(".")[0]
    if top in PACKAGES:
        while name not in modules:
            name = name.rpartition(".")[0]
            assert name, f"{top} has no source file"
        return name
    always_there = top in sys.stdlib_module_names or top in BASE_DEPENDENCIES
    return None if always_there else f"+{top}"


def imports_of(module, modules):
    """The modules of ours that a module imports, those inside functions too."""
    path = modules[module]
    names = imported_names(executed_imports(path), module, is_package=path.name == "__init__.py")
    targets = {target_of(name, modules) for name in names}
    return {machine for machine in targets if machine and not machine.startswith("+")}
