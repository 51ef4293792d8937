"""Algorithms are apart: none knows another, and only the planner's table knows one by its class."""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from source_imports import SOURCE, imports_of, nodes, source_files
from trnconv.algorithms.algorithm import Plan
from trnconv.planner.table import ALGORITHMS

MODULES = source_files()
FOLDERS = {
    name.split(".")[2]
    for name, path in MODULES.items()
    if name.startswith("trnconv.algorithms.") and path.name == "__init__.py"
}
CORE = ("trnconv.problem", "trnconv.algorithms", "trnconv.planner", "trnconv.runtime")
PLANS = {Plan.__name__, *(algorithm.plan_type.__name__ for algorithm in ALGORITHMS)}
OUTSIDE = [
    path
    for path in sorted((SOURCE / "trnconv").rglob("*.py"))
    if "algorithms" not in path.relative_to(SOURCE / "trnconv").parts
]


def folder_of(module):
    """The algorithm that a module is of; empty: none."""
    parts = module.split(".")
    inside = parts[:2] == ["trnconv", "algorithms"] and len(parts) > 2 and parts[2] in FOLDERS
    return parts[2] if inside else ""


def asked_for_class(nodes):
    """Lines that fork on the class of a plan: isinstance, issubclass, type(...) is, match."""
    return [node.lineno for node in nodes if named(classes_asked(node)) & PLANS]


def classes_asked(node):
    """Expressions that stand for the classes which a node compares with."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "issubclass"}:
        return node.args[1:]
    if isinstance(node, ast.Compare) and calls_type(node.left):
        return node.comparators
    return [node.cls] if isinstance(node, ast.MatchClass) else []


def calls_type(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type"


def named(expressions):
    """Every name in them, whatever module it is an attribute of."""
    nodes = [node for expression in expressions for node in ast.walk(expression)]
    return {getattr(node, "id", getattr(node, "attr", None)) for node in nodes}


def crossings(graph):
    """Imports of one algorithm by another."""
    return [
        f"{module} -> {target}"
        for module, targets in graph.items()
        for target in targets
        if folder_of(module) and folder_of(target) and folder_of(module) != folder_of(target)
    ]


def circle(graph):
    """Modules that import each other in a circle; none: an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def graph_of(prefixes):
    """Modules below these packages, and which of them each imports.

    The `__init__` of a package counts where a name is imported from it, not where a module is.
    """
    inside = [name for name in MODULES if name.startswith(prefixes)]
    return {name: imports_of(name, MODULES) & set(inside) for name in inside}


def test_nobody_outside_forms_asks_which_plan_it_has():
    found = {str(path.relative_to(SOURCE)): asked_for_class(nodes(path)) for path in OUTSIDE}
    assert len(found) > 150
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_every_algorithm_has_a_folder_of_its_own():
    folders = [folder_of(algorithm.plan_type.__module__) for algorithm in ALGORITHMS]
    assert sorted(folders) == sorted(FOLDERS)


def test_no_algorithm_imports_another():
    assert crossings(graph_of(("trnconv.algorithms",))) == []


def test_only_the_table_imports_algorithms():
    knowing = [
        module
        for module in MODULES
        if not module.startswith("trnconv.algorithms")
        and any(folder_of(target) for target in imports_of(module, MODULES))
    ]
    assert knowing == ["trnconv.planner.table"]


def test_there_is_no_circle_from_problems_to_launches():
    assert circle(graph_of(CORE)) == []


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(one, DirectPlan)",
        "isinstance(one, int | algorithms.direct.plan.WinogradPlan)",
        "issubclass(kind, (int, DepthwisePlan))",
        "type(one) is Plan",
        "match one:\n    case WeightGradientPlan():\n        pass",
    ],
)
def test_a_fork_on_a_plan_is_found(source):
    assert asked_for_class(ast.walk(ast.parse(source)))


@pytest.mark.parametrize("source", ["isinstance(one, ConvShape)", "plan: DirectPlan = one"])
def test_other_problems_are_not(source):
    assert asked_for_class(ast.walk(ast.parse(source))) == []


def test_crossings_and_circles_are_found():
    direct, winograd = "trnconv.algorithms.direct.cost", "trnconv.algorithms.winograd.cost"
    assert crossings({direct: {winograd}}) == [f"{direct} -> {winograd}"]
    assert crossings({direct: {"trnconv.algorithms.search"}}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
