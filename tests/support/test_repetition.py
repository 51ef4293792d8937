"""Cases that a default run leaves out carry `slow`; those that it keeps differ."""

from types import SimpleNamespace

import pytest

from repetition import few, slow_beyond, thin


class Case:
    """What `thin` looks at of a collected test."""

    def __init__(self, test, indices, *marks):
        self.parent, self.originalname = "module", test
        self.marks = [mark.mark for mark in marks]
        if indices:
            self.callspec = SimpleNamespace(indices=indices)

    def get_closest_marker(self, name):
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark):
        self.marks.append(mark.mark)


def grid(some, rows=3, columns=4, test="test_a"):
    return [
        Case(test, {"row": row, "column": column}, few(some))
        for row in range(rows)
        for column in range(columns)
    ]


def kept(cases):
    thin(cases)
    return [
        tuple(case.callspec.indices.values())
        for case in cases
        if not case.get_closest_marker("slow")
    ]


@pytest.mark.parametrize("some", [1, 3, 4, 12, 20])
def test_so_many_run_by_default(some):
    assert len(kept(grid(some))) == min(some, 12)


def test_those_that_run_have_every_value():
    found = kept(grid(4))
    assert {row for row, _ in found} == {0, 1, 2}
    assert {column for _, column in found} == {0, 1, 2, 3}


def test_each_test_of_a_module_has_so_many():
    assert len(kept([*grid(2), *grid(2, test="test_b")])) == 4


def test_a_case_that_is_slow_anyway_takes_no_place():
    slow = Case("test_a", {"row": 9, "column": 9}, few(2), pytest.mark.slow)
    assert kept([slow, *grid(2)]) == [(0, 0), (1, 1)]


def test_a_test_without_parameters_or_without_the_mark_stays():
    alone, unmarked = Case("test_c", None, few(1)), Case("test_d", {"row": 1})
    thin([alone, unmarked])
    assert not alone.get_closest_marker("slow")
    assert not unmarked.get_closest_marker("slow")


def test_values_after_the_first_are_slow():
    assert [bool(one.marks) for one in slow_beyond(2, range(4))] == [False, False, True, True]
