"""Imports obey the drawing in ARCHITECTURE.md, and every module imports without torch.

The drawing is the ```layers block; how to read it is said right above it, on that page.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from source_imports import (
    PACKAGES,
    executed,
    executed_imports,
    imported_names,
    nodes,
    source_files,
    target_of,
)
from yardstick import limit_s

ROOT = Path(__file__).parents[1]


class Line(NamedTuple):
    """One line of the drawing."""

    node: str
    allowed: frozenset[str]  # nodes, and "+package" for a package from outside
    planned: bool


def read_layers(page):
    block = re.search(r"^```layers\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block, "ARCHITECTURE.md has no ```layers block"
    return [read_line(text) for text in block[1].splitlines() if text.strip()]


def read_line(text):
    drawn, _, note = text.partition("#")
    node, arrow, targets = (part.strip() for part in drawn.partition("->"))
    assert arrow, f"no arrow in the line {text!r}"
    package = node.partition(".")[0]
    names = [name.strip() for name in targets.split(",") if name.strip()]
    return Line(node, frozenset(absolute(name, package) for name in names), "planned" in note)


def absolute(name, package):
    """A bare name is a module of the package the line is about."""
    inside = not name.startswith("+") and name.partition(".")[0] not in PACKAGES
    return f"{package}.{name}" if inside else name


def node_of(module, nodes):
    """The drawn node a module belongs to: itself or its nearest drawn parent, or None.

    The line of a whole package (`nkisim`) speaks of its `__init__.py` only.
    """
    while module not in nodes:
        module = module.rpartition(".")[0]
        if "." not in module:
            return None
    return module


def undrawn_arrows(module, statements, *, is_package, layers, modules):
    """The imports of a module that its line does not allow, as `from -> to`."""
    lines = {line.node: line for line in layers}
    node = node_of(module, lines)
    assert node, f"{module} is not drawn"
    for name in imported_names(statements, module, is_package=is_package):
        target = target_of(name, modules)
        if target is None:
            continue
        reached = target if target.startswith("+") else node_of(target, lines)
        if reached != node and reached not in lines[node].allowed:
            yield f"{module} -> {target}"


LAYERS = read_layers((ROOT / "ARCHITECTURE.md").read_text())
MODULES = source_files()


def test_every_module_is_drawn():
    nodes = {line.node for line in LAYERS}
    assert [module for module in MODULES if node_of(module, nodes) is None] == []


def test_everything_drawn_exists_unless_planned():
    missing = [line.node for line in LAYERS if line.node not in MODULES and not line.planned]
    assert missing == []


def test_nothing_that_exists_is_called_planned():
    assert [line.node for line in LAYERS if line.node in MODULES and line.planned] == []


def test_arrows_point_only_at_lines_above_so_there_are_no_cycles():
    above = set()
    for line in LAYERS:
        assert line.node not in above, f"{line.node} is drawn twice"
        below = {name for name in line.allowed - above if not name.startswith("+")}
        assert not below, f"{line.node} points at {sorted(below)}, not drawn above it"
        above.add(line.node)


def test_nkisim_does_not_even_name_a_type_of_trnconv():
    simulator = [module for module in MODULES if module.startswith("nkisim")]
    named = {module: [*filter(_of_trnconv, all_names(module))] for module in simulator}
    assert len(named) > 150
    assert {module: names for module, names in named.items() if names} == {}


def _of_trnconv(name):
    return name.startswith("trnconv")


def all_names(module):
    """What a file imports, those for types included."""
    path = MODULES[module]
    return imported_names(nodes(path), module, is_package=path.name == "__init__.py")


def test_a_module_imports_only_what_its_line_allows():
    arrows = [
        arrow
        for module, path in MODULES.items()
        for arrow in undrawn_arrows(
            module,
            executed_imports(path),
            is_package=path.name == "__init__.py",
            layers=LAYERS,
            modules=MODULES,
        )
    ]
    assert arrows == []


def test_no_arrow_is_drawn_that_nothing_needs():
    """What `host` asks for by name, it does not import."""
    nodes_drawn = {line.node: line for line in LAYERS}
    reached = {line.node: set() for line in LAYERS}
    for module, path in MODULES.items():
        statements = executed_imports(path)
        for name in imported_names(statements, module, is_package=path.name == "__init__.py"):
            target = target_of(name, MODULES) or module
            known = target if target.startswith("+") else node_of(target, nodes_drawn)
            reached[node_of(module, nodes_drawn)].add(known)
    unused = {line.node: line.allowed - reached[line.node] for line in LAYERS if not line.planned}
    assert {node for node, targets in unused.items() if targets} == {"trnconv.host"}


# The front end, its way over several ranks and into servers, and what is exported need torch.
TORCHLESS = [
    name
    for name in MODULES
    if not name.startswith(
        ("trnconv.pytorch", "trnconv.parallel", "trnconv.integrations", "trnconv.export.template")
    )
]


def test_every_module_imports_without_torch_and_has_what_it_exports():
    program = f"""
import importlib, sys, traceback
sys.modules["torch"] = None
failed = False
for name in {TORCHLESS}:
    try:
        module = importlib.import_module(name)
        absent = [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)]
        assert not absent, f"{{name}}.__all__ names {{absent}}, which do not exist"
    except Exception:
        failed = True
        traceback.print_exc()
sys.exit(failed)
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert result.returncode == 0, result.stderr


TOY_PAGE = """
```layers
nkisim.errors -> # no arrows
nkisim.dtypes -> errors
nkisim.isa    -> dtypes, +torch
nkisim.timing -> isa # planned
nkisim        -> isa
```
"""
TOY_MODULES = ("nkisim", "nkisim.errors", "nkisim.dtypes", "nkisim.isa", "nkisim.isa.enums")


@pytest.mark.parametrize(
    ("module", "source", "arrows"),
    [
        ("nkisim.dtypes", "import numpy, json\nfrom nkisim.errors import E", []),
        ("nkisim.dtypes", "def f():\n    from nkisim.isa.enums import x", ["nkisim.isa.enums"]),
        ("nkisim.dtypes", "from . import isa", ["nkisim.isa"]),
        ("nkisim.dtypes", "from nkisim import VERSION", ["nkisim"]),
        ("nkisim.dtypes", "import torch.nn", ["+torch"]),
        ("nkisim.dtypes", "importlib.import_module('nkisim.isa')", ["nkisim.isa"]),
        ("nkisim.isa.enums", "import torch\nfrom nkisim.isa import a", []),
        ("nkisim.isa.enums", "from ..errors import E", ["nkisim.errors"]),
        ("nkisim.dtypes", "if TYPE_CHECKING:\n    import nkisim.isa", []),
        ("nkisim.dtypes", "if TYPE_CHECKING:\n    pass\nelse:\n    import torch", ["+torch"]),
        ("nkisim.dtypes", "if not TYPE_CHECKING:\n    import nkisim.isa", ["nkisim.isa"]),
    ],
)
def test_the_checker_finds_undrawn_arrows(module, source, arrows):
    found = undrawn_arrows(
        module,
        executed(ast.parse(source)),
        is_package=False,
        layers=read_layers(TOY_PAGE),
        modules=TOY_MODULES,
    )
    assert list(found) == [f"{module} -> {target}" for target in arrows]


def test_the_checker_reads_the_notes_and_finds_undrawn_modules():
    layers = read_layers(TOY_PAGE)
    assert [line.node for line in layers if line.planned] == ["nkisim.timing"]
    assert node_of("nkisim.bench", {line.node for line in layers}) is None


def named_files(module):
    """Which modules of ours a file names in its imports, those for types included."""
    return {target_of(name, MODULES) for name in all_names(module)}


def circles(arrows):
    """Modules that lead to a circle: what is left when those that lead nowhere are taken away."""
    left = {module: set(targets) for module, targets in arrows.items()}
    while ends := [module for module, targets in left.items() if not targets]:
        for module in ends:
            del left[module]
        for targets in left.values():
            targets.difference_update(ends)
    return sorted(left)


def test_no_files_name_each_other_in_a_circle():
    """Packages aside: an `__init__` gathers what its files have."""
    files = {name for name, path in MODULES.items() if path.name != "__init__.py"}
    assert circles({file: named_files(file) & files - {file} for file in files}) == []


# Folders that name each other today. A pair that is gone leaves this list; none is added.
ENTANGLED = {
    ("trnconv.algorithms.direct", "trnconv.algorithms.direct.array"),
}


def folder_of(module):
    return module.rpartition(".")[0]


def folder_arrows(files):
    """Which folders the files of each folder name; the roots of packages hold both ends."""
    arrows = {folder_of(file): set() for file in files}
    for file in files:
        arrows[folder_of(file)].update(folder_of(named) for named in named_files(file) & files)
    for folder, targets in arrows.items():
        targets.difference_update({folder, *PACKAGES})
    return {folder: targets for folder, targets in arrows.items() if folder not in PACKAGES}


def test_no_folders_name_each_other_in_a_circle():
    files = {name for name, path in MODULES.items() if path.name != "__init__.py"}
    arrows = folder_arrows(files)
    pairs = {
        (folder, target)
        for folder, targets in arrows.items()
        for target in targets
        if folder < target and folder in arrows[target]
    }
    assert pairs == ENTANGLED
    for low, high in ENTANGLED:
        arrows[low].discard(high)
        arrows[high].discard(low)
    assert circles(arrows) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
