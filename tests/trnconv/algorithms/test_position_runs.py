"""Runs of positions, against sources listed by hand."""

from trnconv.algorithms.position_runs import PositionRun, repeated, runs_of


def test_neighbours_in_step_are_a_run():
    assert runs_of([(0, 4), (1, 6), (2, 8)]) == [PositionRun(0, 3, 4, 2)]


def test_a_gap_or_a_step_back_ends_a_run():
    reflected = [1, 0, 1, 2, 1]
    assert [(run.at, run.end, run.first) for run in runs_of(enumerate(reflected))] == [
        (0, 1, 1),
        (1, 4, 0),
        (4, 5, 1),
    ]
    assert len(runs_of([(0, 0), (2, 2)])) == 2


def test_borders_are_copies_of_what_the_longest_run_holds():
    assert repeated([1, 0, 1, 2, 1]) == [(0, 2), (4, 2)]
    assert repeated([9, 0, 1, 2]) == []  # 9 is not there
    assert repeated([]) == []
