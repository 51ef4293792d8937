"""What the source files of both packages import, read from their text."""

import ast
import importlib.util
import sys
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


def executed(node):
    """The nodes below this one, without what stands under `if TYPE_CHECKING:`."""
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
        children = node.orelse
    for child in children:
        yield child
        yield from executed(child)


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
    statements = executed(ast.parse(path.read_text()))
    names = imported_names(statements, module, is_package=path.name == "__init__.py")
    targets = {target_of(name, modules) for name in names}
    return {target for target in targets if target and not target.startswith("+")}
