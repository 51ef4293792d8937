"""Where checking starts: a kernel object, a text or a file."""

from pathlib import Path
from types import FunctionType

from nkisim.lint.examine import examine
from nkisim.lint.front_ends import DEFAULT, require_version
from nkisim.lint.live import function_definition, jitted_function
from nkisim.lint.report import Report
from nkisim.lint.text import TextNamespace


def lint(kernel: object, nki: str = DEFAULT) -> Report:
    """Check a function, or what nki.jit made of one, and everything it reaches.

    `nki` is whose front end judges: "0.7" traces Python, "0.6" parses a subset of it. Raises
    TypeError for anything else and OSError where the source cannot be found.
    """
    function = kernel if isinstance(kernel, FunctionType) else jitted_function(kernel)
    if function is None:
        raise TypeError(
            f"lint({kernel!r}): expected a Python function or a kernel made by nki.jit; "
            "use lint_file or lint_source for text"
        )
    definition = function_definition(function)
    if definition is None:
        raise OSError(
            f"lint({function.__qualname__}): no source file holds this function; define it with "
            "`def` in a file, or give its text to lint_source"
        )
    return examine([definition], require_version(nki))


def lint_source(
    source: str, filename: str = "<string>", entry: str | None = None, nki: str = DEFAULT
) -> Report:
    """Check a source text without importing it or what it imports.

    Starts from `entry`, else from every function under nki.jit, else from every function. Raises
    SyntaxError for text that is not Python and ValueError when there is no function `entry`.
    """
    return _lint_text(TextNamespace(source, filename), entry, nki)


def lint_file(path: str | Path, entry: str | None = None, nki: str = DEFAULT) -> Report:
    """Check a file as `lint_source` does, and follow its imports to files around it."""
    file = Path(path)
    text = file.read_text(encoding="utf-8")
    return _lint_text(TextNamespace(text, str(file), file.resolve().parent), entry, nki)


def count_kernels(path: str | Path) -> tuple[int, int]:
    """How many functions of a file are under nki.jit, and how many it has in all.

    Raises as `lint_file` does.
    """
    file = Path(path)
    text = file.read_text(encoding="utf-8")
    names = TextNamespace(text, str(file), file.resolve().parent)
    return len(names.kernels()), len(names.functions())


def _lint_text(namespace: TextNamespace, entry: str | None, nki: str) -> Report:
    version = require_version(nki)
    functions = namespace.functions()
    if entry is None:
        return examine(namespace.kernels() or functions, version)
    wanted = [function for function in functions if function.name == entry]
    if not wanted:
        names = ", ".join(function.name for function in functions) or "none"
        raise ValueError(f"no module-level function {entry!r} to lint; there are: {names}")
    return examine(wanted, version)
