"""Names that say the thing: no class twice, no loop over `it`, no module called a participle."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from source_imports import PACKAGES, source_files

ROOT = Path(__file__).parents[1]
MODULES = source_files()
FOLDERS = ("src", "benchmarks", "validation", "manual")
LOOPS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PRONOUNS = {"one", "it", "each", "this", "that", "them", "these", "those"}
# What the field calls a thing by. Other files that end so would say what happens, not what it is.
NOUNS = {
    "aliasing",
    "encoding",
    "indexing",
    "listing",
    "pricing",
    "printing",
    "rounding",
    "streaming",
    "timing",
    "tuning",
    "typing",
}


def class_names(source):
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def pronouns_of_loops(source):
    """(line, name) of each loop variable that says nothing of what it holds."""
    loops = (ast.For, ast.AsyncFor, ast.comprehension)
    targets = (node.target for node in ast.walk(ast.parse(source)) if isinstance(node, loops))
    return [
        (name.lineno, name.id)
        for target in targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and name.id in PRONOUNS
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_name_is_used_twice(package):
    places = defaultdict(list)
    for module, path in MODULES.items():
        if module.partition(".")[0] == package:
            for name in class_names(path.read_text()):
                places[name.lstrip("_")].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", LOOPS, ids=lambda path: str(path.relative_to(ROOT)))
def test_loop_variables_name_what_they_hold(path):
    assert pronouns_of_loops(path.read_text()) == []


def test_modules_are_called_by_what_they_hold():
    files = [path for path in MODULES.values() if path.name != "__init__.py"]
    names = {path.stem for path in files}
    assert {name for name in names - NOUNS if name.endswith(("ing", "ed"))} == set()


def test_the_checks_can_fail():
    assert class_names("class A:\n    class _B: pass") == ["A", "_B"]
    assert pronouns_of_loops("for a, it in x: pass\ny = [f(one) for one in z]") == [
        (1, "it"),
        (2, "one"),
    ]
