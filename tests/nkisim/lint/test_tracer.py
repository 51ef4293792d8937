"""What the lint says of kernels for NKI 0.7, which runs their Python and records."""

import re
from dataclasses import dataclass, field
from enum import Enum
from textwrap import dedent

import numpy as np
import pytest

from nkisim.lint import argument_key_problems, lint_source

FULL_PYTHON = """
import itertools
from dataclasses import dataclass


class Shape:
    def __init__(self, rows):
        self.rows = rows

    @property
    def blocks(self):
        return self.rows // 128


def parts(n):
    yield from range(n)


@nki.jit
def kernel(x: nl.ndarray, n):
    table = {1: "a", Shape: 2}
    for i, part in enumerate(parts(n)):
        if part in table and x is not None:
            print(f"{i:>3}", *[table])
    with open("log") as log:
        log.write("x"[::-1])
    try:
        total = sum(itertools.accumulate((1, 2)))
    finally:
        table.update(a=total)

    def body(i):
        row = i * 4 + 1
        nisa.dma_copy(dst=x.ap([[1, 1]], scalar_offset=-row), src=x)

    nl.fori_loop(0, n, body)
    return x
"""


def found(text, nki="0.7"):
    report = lint_source(dedent(text), nki=nki)
    return {(finding.rule, finding.level) for finding in report.findings}


def test_the_tracer_takes_all_of_python_but_warns_where_reports_conflict():
    assert found(FULL_PYTHON) == {("X13", "warning")}
    assert len({rule for rule, level in found(FULL_PYTHON, "0.6") if level == "error"}) > 10


def body_of_loop(statement):
    return f"""
    @nki.jit
    def kernel(x: nl.ndarray, n):
        def body(i):
            j = i + 1
            {statement}
        nl.fori_loop(0, n, body)
    """


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("x[i // 2]", "L04"),
        ("k = j % 2", "L04"),
        ("k = i < 3", "L04"),
        ("k = j << 1", "L04"),
        ("k = 1 if i else 2", "L03"),
        ("k = int(j)", "L03"),
        ("range(i)", "L03"),
        ("return i", "L07"),
    ],
)
def test_run_time_values_have_no_python_value(statement, rule):
    assert (rule, "error") in found(body_of_loop(statement))
    assert not found(body_of_loop("k = 2 * j - i"))
    assert found(body_of_loop("k = 2 * j - i"), "0.6") == {("L04", "error")}


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("y = x + x", ("X04", "error")),
        ("for i in nl.dynamic_range(n): pass", ("L02", "error")),
        ("for i in nl.affine_range(n): pass", ("L01", "warning")),
        ("r = nisa.register_alloc(1) + 1", ("L04", "error")),
        ("k = nisa.scalar_load(x) / 2", ("L04", "error")),
        ("while nisa.scalar_load(x): pass", ("L03", "error")),
    ],
)
def test_rules_that_hold_for_the_tracer_too(statement, finding):
    assert found(f"@nki.jit\ndef kernel(x: nl.ndarray, n):\n    {statement}\n") == {finding}


def test_keyword_only_parameters_are_a_warning():
    assert found("@nki.jit\ndef kernel(x, *, n=1):\n    return x\n") == {("F03", "warning")}


CLASSES = """
from dataclasses import dataclass, field
from enum import Enum

class Plain(nl.NKIObject):
    def __init__(self, rows):
        self.rows = rows

class Shown(nl.NKIObject):
    def __repr__(self):
        return "Shown"

class Choice(Enum):
    ONE = 1

@dataclass(frozen=True)
class Whole:
    rows: int

@dataclass(frozen=True)
class Partial:
    rows: int
    hidden: int = field(default=0, repr=False)

@dataclass
class Mutable:
    rows: int

@dataclass
class MutableObject(nl.NKIObject):
    rows: int

@dataclass(repr=False, frozen=True)
class Silent:
    rows: int

@nki.jit
def kernel(x: nl.ndarray, recipe: {kind} = None{default}):
    return x
"""


@pytest.mark.parametrize(
    ("kind", "rule", "word"),
    [
        ("Plain", "K01", "default repr"),
        ("'Plain | None'", "K01", "default repr"),
        ("Silent", "K01", "default repr"),
        ("Partial", "K01", "`hidden` is left out"),
        ("Mutable", "K02", "not hashable"),
    ],
)
def test_arguments_that_make_no_key(kind, rule, word):
    text = CLASSES.format(kind=kind, default="")
    (finding,) = lint_source(text).findings
    assert (finding.rule, finding.level) == (rule, "warning")
    assert word in finding.message
    assert not any(each.rule.startswith("K") for each in lint_source(text, nki="0.6").findings)


@pytest.mark.parametrize("kind", ["Whole", "Shown", "Choice", "MutableObject", "int", "nl.ndarray"])
def test_arguments_that_make_a_key(kind):
    assert lint_source(CLASSES.format(kind=kind, default="")).findings == ()


def test_a_lambda_makes_no_key():
    text = CLASSES.format(kind="int", default=", pick=lambda n: n")
    assert ("K01", "warning") in {(each.rule, each.level) for each in lint_source(text).findings}


class Choice(Enum):
    ONE = 1


@dataclass(frozen=True)
class Node:
    name: str
    children: tuple = ()
    note: str = field(default="", repr=False)


@dataclass
class Mutable:
    rows: int


class Default:
    pass


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Default(), "recipe: Default has Python's default repr"),
        ((1, (Default(),)), r"recipe\[1\]\[0\]: Default has"),
        ({"a": len}, r"recipe\['a'\]: the repr of a function"),
        (lambda: 1, "recipe: the repr of a function is an address"),
        (Mutable(1), "recipe: Mutable is not hashable"),
        (Node("a", (Node("b"),)), r"recipe\.children\[0\]\.note: left out of the repr"),
    ],
)
def test_values_that_make_no_key(value, problem):
    problems = argument_key_problems({"recipe": value})
    assert re.match(problem, problems[0])


@pytest.mark.parametrize("value", [1, 2.5, "a", None, Choice.ONE, (1, ("b",)), np.zeros(3)])
def test_values_that_make_a_key(value):
    assert argument_key_problems({"recipe": value}) == ()


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match=r"the lint knows 0\.6, 0\.7"):
        lint_source("def kernel(): pass", nki="0.5")
