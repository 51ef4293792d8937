"""Cases that repeat each other: enough to find defects in every run, all of them with `-m slow`."""

import os

import pytest
from hypothesis import settings

IN_ALL = 500  # random problems of a suite
BY_DEFAULT = 20
CHUNK = 20  # random problems of one test, so that processes share them


def slow_beyond(some, values):
    """Values as parameters, of which those after the first `some` are slow."""
    return [
        pytest.param(value, marks=pytest.mark.slow if number >= some else ())
        for number, value in enumerate(values)
    ]


def examples(count):
    """Settings of hypothesis: a quarter of so many examples, all of them with EVERY_EXAMPLE=1."""
    some = count if os.environ.get("EVERY_EXAMPLE") else count // 4
    return settings(max_examples=some, deadline=None)


def few(some):
    """A mark: of the cases of a test `some` run by default, and the others are slow.

    Those that run differ as much as so many can: a value of a parameter comes a second time only
    after all the others came once. Of a whole module (`pytestmark`), so many of each test.
    """
    return pytest.mark.few(some)


def thin(items):
    """Mark as slow what `few` leaves out of the default run."""
    tests = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            tests.setdefault((item.parent, item.originalname), []).append(item)
    for cases in tests.values():
        (some,) = cases[0].get_closest_marker("few").args
        for case in _different(cases, some):
            cases.remove(case)
        for case in cases:
            case.add_marker(pytest.mark.slow)


def _different(cases, some):
    """The first so many cases, each with as many values as possible that none before it has."""
    left, met, chosen = list(cases), set(), []
    while left and len(chosen) < some:
        chosen.append(max(left, key=lambda case: len(_values(case) - met)))
        left.remove(chosen[-1])
        met |= _values(chosen[-1])
    return chosen


def _values(case):
    return set(case.callspec.indices.items()) if hasattr(case, "callspec") else set()


def parametrize_numbers(metafunc):
    """Numbers of random problems, in chunks; with --random-shapes N, the first N in every run."""
    if "numbers" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption("random_shapes")
    total, by_default = (IN_ALL, BY_DEFAULT) if asked is None else (asked, asked)
    chunks = [range(first, min(first + CHUNK, total)) for first in range(0, total, CHUNK)]
    ids = [f"{chunk.start}..{chunk.stop - 1}" for chunk in chunks]
    metafunc.parametrize("numbers", slow_beyond(-(-by_default // CHUNK), chunks), ids=ids)
