"""Sizes and numbers that no linter checks (CONTRIBUTING.md, "Taste")."""

import ast
from pathlib import Path

from source_imports import nodes

SRC = Path(__file__).parents[1] / "src"
MACHINE = SRC / "nkisim" / "machine.py"
FILES = sorted(SRC.rglob("*.py"))

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_PUBLIC_PARAMETERS = 6  # ruff holds all functions to 8
# Whose parameters others dictate: NKI, torch, nki-library, a command's options, a kernel's tensors.
DICTATED = (
    "nkisim/isa/", "nkisim/language/", "nkisim/collectives.py", "trnconv/cli/", "trnconv/nkilib/",
    "trnconv/runtime/", "trnconv/pytorch/functional/convolutions.py", "trnconv/pytorch/operators/",
    "trnconv/pytorch/lazy/convolutions/counts.py", "trnconv/pytorch/causal.py",
    "trnconv/export/template/", "trnconv/geometry.py", "/kernel.py",
)  # fmt: skip
# Each parameter is a decision of the caller's, which has nothing to do with the others.
INDEPENDENT = {"trnconv/pytorch/patching/patch.py": ["patch_"]}
# Partitions, fp32 values and bytes of a PSUM bank, bytes of PSUM, of SBUF, and clock rates.
HARDWARE_NUMBERS = {128, 512, 2048, 16384, 180224, 196608, 212984, 229376, 245752, 262144}
CLOCKS_HZ = {0.96e9, 1.12e9, 1.2e9, 1.4e9, 2.4e9, 2.8e9}


def function_lines(function):
    """Lines of a function's body; signature and docstring are the API's, not the author's."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def long_functions(nodes):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for node in nodes
        if isinstance(node, functions) and function_lines(node) > MAX_FUNCTION_LINES
    ]


def parameters(function):
    signature = function.args
    named = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    return [each.arg for each in named if each.arg not in {"self", "cls"}]


def wide_functions(nodes):
    """Public functions of more parameters than a caller can keep apart."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for node in nodes
        if isinstance(node, functions)
        and not node.name.startswith("_")
        and len(parameters(node)) > MAX_PUBLIC_PARAMETERS
    ]


def hardware_numbers(nodes):
    """(line, number) of each literal that restates a property of the machine."""
    return [
        (node.lineno, node.value)
        for node in nodes
        if isinstance(node, ast.Constant)
        and type(node.value) in {int, float}
        and node.value in HARDWARE_NUMBERS | CLOCKS_HZ
    ]


def relative(path):
    return str(path.relative_to(SRC))


def findings(check, files=FILES):
    """What a check finds, by file."""
    return {relative(path): found for path in files if (found := check(nodes(path)))}


def test_a_file_is_short_enough_to_read():
    lengths = {relative(path): len(path.read_text().splitlines()) for path in FILES}
    assert {path: count for path, count in lengths.items() if count > MAX_FILE_LINES} == {}


def test_a_function_fits_on_a_screen():
    assert findings(long_functions) == {}


def test_public_functions_have_few_parameters():
    wide = findings(wide_functions)
    ours = {path: names for path, names in wide.items() if not any(d in path for d in DICTATED)}
    assert ours == INDEPENDENT


def test_only_the_machine_file_states_hardware_numbers():
    assert findings(hardware_numbers, [path for path in FILES if path != MACHINE]) == {}


def test_the_checks_can_fail():
    assert hardware_numbers(ast.walk(ast.parse("x = 2\nif rows > 128: pass"))) == [(2, 128)]
    long = "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES + 1)
    assert long_functions(ast.walk(ast.parse(long))) == ["f"]
    assert long_functions(ast.walk(ast.parse(long.replace("    x = 1\n", "", 1)))) == []
    wide = "def f(self, a, b, c, d, e, g, *, h): pass\ndef _f(a, b, c, d, e, g, h): pass"
    assert wide_functions(ast.walk(ast.parse(wide))) == ["f"]
    assert len(FILES) > 500
    assert len(findings(lambda nodes: nodes[1:])) > 400
