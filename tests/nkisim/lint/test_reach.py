"""The checker follows whatever a kernel reaches, and nothing else."""

import pytest

from parser_lint import lint, lint_file, lint_source

BAD = "return [v for v in n]"  # one X13


def rules_found(report):
    return [finding.rule for finding in report.findings]


REACHED = {
    "a_call": f"def bad(n):\n    {BAD}\ndef kernel(n):\n    return bad(n)\n",
    "a_call_of_a_call": (
        f"def bad(n):\n    {BAD}\ndef middle(n):\n    return bad(n)\n"
        "def kernel(n):\n    return middle(n)\n"
    ),
    "a_function_as_value": (
        f"def bad(n):\n    {BAD}\ndef run(f, n):\n    return f(n)\n"
        "def kernel(n):\n    return run(bad, n)\n"
    ),
    "a_function_in_a_table": (
        f"def bad(n):\n    {BAD}\nTABLE = {{'bad': bad}}\n"
        "def kernel(n):\n    return TABLE['bad'](n)\n"
    ),
    "a_default_value": f"def bad(n):\n    {BAD}\ndef kernel(n, f=bad):\n    return f(n)\n",
    "another_name": f"def bad(n):\n    {BAD}\nalias = bad\ndef kernel(n):\n    return alias(n)\n",
    "a_method": (
        f"class Rows(nl.NKIObject):\n    def bad(self, n):\n        {BAD}\n"
        "def kernel(n):\n    return Rows().bad(n)\n"
    ),
    "a_static_method": (
        f"class Rows(nl.NKIObject):\n    @staticmethod\n    def bad(n):\n        {BAD}\n"
        "def kernel(n):\n    return Rows.bad(n)\n"
    ),
    "the_class_of_an_argument": (
        f"class Rows(nl.NKIObject):\n    def bad(self, n):\n        {BAD}\n"
        "def kernel(n: 'Rows | None'):\n    return n\n"
    ),
    "the_class_of_a_field": (
        f"class Rows(nl.NKIObject):\n    def bad(self, n):\n        {BAD}\n"
        "class Tiles(nl.NKIObject):\n    rows: Rows\n"
        "def kernel(n):\n    return Tiles(n)\n"
    ),
    "the_class_of_an_object": (
        f"class Rows(nl.NKIObject):\n    def bad(self, n):\n        {BAD}\n"
        "ROWS = Rows()\ndef kernel(n):\n    return ROWS.bad(n)\n"
    ),
    "a_loop_body": (
        "def bad(n):\n    [v for v in (1, 2)]\ndef kernel(n):\n    nl.fori_loop(0, n, bad)\n"
    ),
    "recursion": f"def kernel(n):\n    kernel(n)\n    {BAD}\n",
}


@pytest.mark.parametrize("source", REACHED.values(), ids=REACHED)
def test_what_a_kernel_reaches_is_checked_once(source, import_text):
    assert rules_found(lint_source(source, entry="kernel")) == ["X13"]
    assert rules_found(lint(import_text(source).kernel)) == ["X13"]


def test_what_a_kernel_does_not_reach_is_not_checked(import_text):
    source = f"def bad(n):\n    {BAD}\ndef kernel(n):\n    return n\n"
    assert lint_source(source, entry="kernel").findings == ()
    assert lint(import_text(source).kernel).findings == ()


def test_a_local_name_hides_a_global_one(import_text):
    source = f"def bad(n):\n    {BAD}\ndef kernel(n, bad, zip):\n    return bad(zip)\n"
    assert lint_source(source, entry="kernel").findings == ()
    assert lint(import_text(source).kernel).findings == ()


def test_a_jitted_kernel_is_unwrapped(import_text):
    module = import_text(f"@nki.jit\ndef kernel(n):\n    {BAD}\n")
    assert rules_found(lint(module.kernel)) == ["X13"]


def test_closures_are_followed(import_text):
    source = f"""
def make():
    def bad(n):
        {BAD}
    def kernel(n):
        return bad(n)
    return kernel
"""
    assert rules_found(lint(import_text(source).make())) == ["X13"]


def test_modules_are_followed(import_text):
    tiles = import_text(f"def bad(n):\n    {BAD}\n")
    module = import_text("def kernel(n):\n    return tiles.bad(n)\n")
    module.tiles = tiles
    report = lint(module.kernel)
    assert rules_found(report) == ["X13"]
    assert report.findings[0].file == tiles.__file__
    assert report.findings[0].function == "bad"


def test_text_starts_from_the_jitted_functions():
    source = f"def bad(n):\n    {BAD}\n@nki.jit\ndef kernel(n):\n    return n\n"
    assert lint_source(source).findings == ()
    applied = f"def bad(n):\n    {BAD}\ndef good(n):\n    return n\nkernel = nki.jit(bad)\n"
    assert rules_found(lint_source(applied)) == ["X13"]


def test_text_without_jit_starts_from_every_function():
    assert rules_found(lint_source(f"def a(n):\n    {BAD}\ndef b(n):\n    {BAD}\n")) == ["X13"] * 2


def test_files_are_followed_through_imports(tmp_path):
    package = tmp_path / "library" / "rows"
    package.mkdir(parents=True)
    (tmp_path / "library" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from .bands import bad as renamed\n")
    (package / "bands.py").write_text(
        f"from ..edges import *\ndef bad(n):\n    edge(n)\n    {BAD}\n"
    )
    (tmp_path / "library" / "edges.py").write_text("def edge(n):\n    return n is None\n")
    kernel = package / "kernel.py"
    for imported, use in (
        ("from . import renamed", "renamed(n)"),
        ("from .bands import bad", "bad(n)"),
        ("from ..rows import bands", "bands.bad(n)"),
        ("import library.rows.bands", "library.rows.bands.bad(n)"),
        ("import library.rows.bands as bands", "bands.bad(n)"),
    ):
        kernel.write_text(f"{imported}\ndef kernel(n):\n    return {use}\n")
        report = lint_file(kernel)
        found = {(finding.file.rpartition("/")[2], finding.rule) for finding in report.findings}
        assert found == {("bands.py", "X13"), ("edges.py", "X05")}, imported


def test_imports_in_a_circle_end(tmp_path):
    (tmp_path / "one.py").write_text("from two import thing\ndef kernel(n):\n    return thing(n)\n")
    (tmp_path / "two.py").write_text("from one import thing\n")
    assert rules_found(lint_file(tmp_path / "one.py")) == ["B10"]


def test_a_decorator_of_the_same_name_ends():
    source = "def same(f):\n    return f\n@same\ndef same(n):\n    return n\n"
    assert rules_found(lint_source(source)) == ["F05"]


def test_text_follows_no_file(tmp_path, monkeypatch):
    (tmp_path / "tiles.py").write_text(f"def bad(n):\n    {BAD}\n")
    monkeypatch.chdir(tmp_path)
    source = "from tiles import bad\ndef kernel(n):\n    return bad(n)\n"
    assert rules_found(lint_source(source)) == ["B10"]


def test_a_broken_import_is_a_warning(tmp_path):
    (tmp_path / "tiles.py").write_text("def broken(:\n")
    (tmp_path / "kernel.py").write_text("from tiles import f\ndef kernel(n):\n    return f(n)\n")
    report = lint_file(tmp_path / "kernel.py")
    assert rules_found(report) == ["B10"]
    assert report.ok


def test_what_cannot_be_linted_is_refused_in_words():
    with pytest.raises(TypeError, match=r"expected a Python function .* use lint_file"):
        lint(3)
    with pytest.raises(OSError, match="no source file holds this function"):
        lint(lambda n: n)
    with pytest.raises(ValueError, match="no module-level function 'k' to lint; there are: f"):
        lint_source("def f(n):\n    return n\n", entry="k")
    with pytest.raises(SyntaxError):
        lint_source("def f(:\n")
