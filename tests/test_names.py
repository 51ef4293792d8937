"""Names that say the thing: no class twice in a folder, no loop over `it`, no participles."""

import ast
from collections import defaultdict
from pathlib import Path

from source_imports import nodes, source_files

ROOT = Path(__file__).parents[1]
MODULES = source_files()
FOLDERS = ("src", "benchmarks", "validation", "manual")
LOOPS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PRONOUNS = {"one", "it", "each", "this", "that", "them", "these", "those"}
# What the field calls a thing by. Other files that end so would say what happens, not what it is.
NOUNS = {
    "aliasing", "batching", "binding", "blocking", "buffering", "caching", "casting", "encoding",
    "indexing", "interleaving", "listing", "loading", "logging", "lowering", "mapping", "masking",
    "packing", "padding", "patching", "pe_packing", "pipelining", "pooling", "prefetching",
    "pricing", "printing", "profiling", "recording", "rounding", "scheduling", "sharding",
    "slicing", "splitting", "storing", "streaming", "swizzling", "tiling", "timing", "tracing",
    "training", "tuning", "typing", "unrolling", "upsampling",
}  # fmt: skip


def class_names(nodes):
    return [node.name for node in nodes if isinstance(node, ast.ClassDef)]


def pronouns_of_loops(nodes):
    """(line, name) of each loop variable that says nothing of what it holds."""
    loops = (ast.For, ast.AsyncFor, ast.comprehension)
    targets = (node.target for node in nodes if isinstance(node, loops))
    return [
        (name.lineno, name.id)
        for target in targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and name.id in PRONOUNS
    ]


def test_no_class_name_is_used_twice_in_a_folder():
    """A folder is a namespace: every algorithm has its Plan, none has two."""
    places = defaultdict(list)
    for module, path in MODULES.items():
        for name in class_names(nodes(path)):
            places[path.parent, name.lstrip("_")].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_loop_variables_name_what_they_hold():
    found = {str(path.relative_to(ROOT)): pronouns_of_loops(nodes(path)) for path in LOOPS}
    assert {path: loops for path, loops in found.items() if loops} == {}


def test_modules_are_called_by_what_they_hold():
    files = [path for path in MODULES.values() if path.name != "__init__.py"]
    names = {path.stem for path in files}
    assert {name for name in names - NOUNS if name.endswith(("ing", "ed"))} == set()


def test_the_checks_can_fail():
    assert class_names(ast.walk(ast.parse("class A:\n    class _B: pass"))) == ["A", "_B"]
    loops = ast.walk(ast.parse("for a, it in x: pass\ny = [f(one) for one in z]"))
    assert pronouns_of_loops(loops) == [(1, "it"), (2, "one")]
    assert len(LOOPS) > 600
