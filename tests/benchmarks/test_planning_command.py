"""`python -m benchmarks planning`: what takes how long, and whether it may."""

import re

import pytest

from benchmarks import planning
from benchmarks.__main__ import main
from benchmarks.drawn_shapes import is_small
from trnconv.algorithms.search import search
from trnconv.runtime.pricing import price

SMALL = "ltx-video-0.9.0"
LAST_LINE = r"single calls: worst (\S+)(?: s)?, models: worst (\S+) s"


def timed(monkeypatch, capsys, seconds, *options):
    """The exit code and what is printed, if every model took so long."""
    monkeypatch.setattr(
        planning, "run", lambda _, tasks, __: [planning.Timed("x", seconds) for _ in tasks]
    )
    code = main(["planning", "--calls", "0", "--model", SMALL, *options])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("seconds", "code"), [(14.9, 0), (15.1, 1)])
def test_models_that_take_too_long_fail_the_command(monkeypatch, capsys, seconds, code):
    found, lines = timed(monkeypatch, capsys, seconds)
    assert found == code
    assert lines[0].startswith("2 models: ")
    assert re.fullmatch(LAST_LINE, lines[-1]).groups() == ("-", f"{seconds:.2f}")


@pytest.mark.parametrize(("seconds", "code"), [(1.9, 0), (2.1, 1)])
def test_a_call_that_takes_too_long_fails_the_command(monkeypatch, capsys, seconds, code):
    found, lines = timed(monkeypatch, capsys, seconds, "--calls", "3")
    assert found == code
    assert lines[-1].startswith(f"single calls: worst {seconds:.2f} s, models: ")


def test_what_was_planned_is_forgotten():
    problem = planning.call_number(20)
    price(problem)
    assert search.cache_info().currsize
    planning.forget()
    assert not search.cache_info().currsize


def test_calls_are_large_kernels_and_then_drawn_shapes_that_are_not_small():
    first = len(planning._LARGEST_KERNELS) + len(planning._GRADIENTS)
    drawn = [planning.call_number(first + number) for number in range(4)]
    expected = [planning.drawn_shape(number).problem() for number in (1, 2, 4, 5)]
    assert drawn == expected
    assert not any(map(is_small, (1, 2, 4, 5)))


def test_a_call_is_timed_by_its_name():
    done = planning.time_call(20)
    assert done.seconds > 0
    assert "input [" in done.name
