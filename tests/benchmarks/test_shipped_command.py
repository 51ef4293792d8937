"""`python -m benchmarks shipped`: ratios, from comparisons made up by hand and a real one."""

from dataclasses import replace

import pytest

from benchmarks.shipped import Compared, compared, is_slower, stored_problems, summary

EQUAL = Compared("trn2", 2, 1.0, 1.0)


def test_a_row_has_the_mean_the_best_and_the_worst():
    every = [replace(EQUAL, cost_model=0.5, schedule=None), replace(EQUAL, cost_model=2.0)]
    lines = summary([*every, replace(EQUAL, cores=1, schedule=None)]).splitlines()
    assert lines[-2].split() == ["trn2", "2", "2", "1.0000", "0.5000", "2.0000", *["1.0000"] * 3]
    assert lines[-1].split() == ["trn2", "1", "1", *["1.0000"] * 3, *["-"] * 3]


@pytest.mark.parametrize(
    ("cost_model", "schedule", "expected"),
    [(1.0, None, False), (1.01, None, True), (1.01, 0.99, False), (0.99, 1.01, True)],
)
def test_the_judge_is_the_schedule_if_there_is_one(cost_model, schedule, expected):
    assert is_slower(Compared("trn2", 2, cost_model, schedule)) is expected


def test_a_shipped_plan_is_compared():
    problem = stored_problems("trn2", 2, "sdxl")[0]
    assert not is_slower(compared(problem, 2))
