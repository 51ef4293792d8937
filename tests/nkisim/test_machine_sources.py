"""Every open point of a machine says where its values come from."""

import ast
import inspect
import re

import pytest

from nkisim import machine as numbers

SOURCE = inspect.getsource(numbers)
NOT_PUBLISHED = "not published"


def source_keys(page):
    """The keys of the list at the top: before two blanks, a comma, or a colon."""
    return set(re.findall(r"\b([A-Z][A-Z0-9]+)(?=,|:| {2})", page))


def unsourced(source, keys):
    """Names given an Assumption without a comment that has a key or says `not published`.

    A machine that states the values of a field may leave the comment to the field.
    """
    lines = source.splitlines()
    comments: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.keyword) and isinstance(node.value, ast.Call):
            name = node.arg
        else:
            continue
        last = lines[(node.end_lineno or node.lineno) - 1]
        comments.setdefault(name, []).append(last.partition("  # ")[2])
    return sorted(
        name for name in assumed(source) if not any(says(c, keys) for c in comments[name])
    )


def says(comment, keys):
    return NOT_PUBLISHED in comment or bool(keys & set(re.findall(r"[A-Z][A-Z0-9]+", comment)))


def assumed(source):
    """The names of fields and arguments whose value is an Assumption."""
    for node in ast.walk(ast.parse(source)):
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "Assumption":
            if isinstance(node, ast.AnnAssign):
                yield node.target.id
            elif isinstance(node, ast.keyword):
                yield node.arg


def test_the_list_of_sources_is_read():
    keys = source_keys(numbers.__doc__)
    assert {"A1", "A3", "ISA", "I26", "KO", "DGE", "DIN", "CCO", "XG", "HW"} <= keys


def test_every_open_point_says_where_its_values_come_from():
    assert len(set(assumed(SOURCE))) >= 25
    assert unsourced(SOURCE, source_keys(numbers.__doc__)) == []


def test_no_other_open_points_exist():
    """Those of the machines, found as objects, are those found in the text."""
    named = {name for one in numbers.MACHINES.values() for name in one.timing.assumptions()}
    assert named <= set(assumed(SOURCE))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("gap: float = Assumption(1, 2, 3)  # KO 2", []),
        ("gap: float = Assumption(1, 2, 3)  # not published", []),
        ("gap: float = Assumption(1, 2, 3)  # a guess", ["gap"]),
        ("gap: float = Assumption(1, 2, 3)", ["gap"]),
        ("gap: float  # KO\nTRN = Timing(\n    gap=Assumption(1, 2, 3),\n)", []),
        ("gap: float\nTRN = Timing(\n    gap=Assumption(1, 2, 3),  # KO\n)", []),
        ("gap: float\nTRN = Timing(\n    gap=Assumption(1, 2, 3),\n)", ["gap"]),
    ],
)
def test_a_missing_source_is_noticed(line, names):
    assert unsourced(line, {"KO"}) == names
