"""Cases that repeat each other: enough to find defects in every run, all of them with `-m slow`."""

import pytest

IN_ALL = 500  # random problems of a suite
BY_DEFAULT = 200
CHUNK = 25  # random problems of one test, so that processes share them


def slow_beyond(some, values):
    """Values as parameters, of which those after the first `some` are slow."""
    return [
        pytest.param(value, marks=pytest.mark.slow if number >= some else ())
        for number, value in enumerate(values)
    ]


def parametrize_numbers(metafunc):
    """Numbers of random problems, in chunks; with --random-shapes N, the first N in every run."""
    if "numbers" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption("random_shapes")
    total, by_default = (IN_ALL, BY_DEFAULT) if asked is None else (asked, asked)
    chunks = [range(first, min(first + CHUNK, total)) for first in range(0, total, CHUNK)]
    ids = [f"{chunk.start}..{chunk.stop - 1}" for chunk in chunks]
    metafunc.parametrize("numbers", slow_beyond(-(-by_default // CHUNK), chunks), ids=ids)
