"""The table of published rows."""

import re

import pytest

from validation.differences import DIFFERENCES, difference
from validation.draw import EVIDENCE, NEVER_COMPARED, NOT_RECREATED, SEEN
from validation.outcome import Outcome, model
from validation.row import GROUPS, us_from_mfu
from validation.rows import ROWS

REQUIRED = {*range(1, 12), 17, 18, 23, *range(27, 32), 36}


def number(row):
    """The number of a row of the first collection; 0 for those after a V."""
    return int((re.match(r"\d+", row.number) or "0")[0])


def test_the_required_rows_are_there():
    assert {number(row) for row in ROWS} >= REQUIRED
    assert len(ROWS) >= 20


def test_the_variants_of_a_row_are_there():
    counts = {n: sum(number(row) == n for row in ROWS) for n in (10, 11, 23, 36)}
    assert counts == {10: 3, 11: 2, 23: 4, 36: 2}


def test_row_numbers_are_unique_and_in_order():
    numbers = [row.number for row in ROWS]
    assert len(set(numbers)) == len(numbers)
    first = [number(row) for row in ROWS if number(row)]
    later = [int(re.match(r"V(\d+)", row.number)[1]) for row in ROWS[len(first) :]]
    assert first == sorted(first)
    assert later == sorted(later)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_is_complete(row):
    assert row.published_us > 0
    assert row.group in GROUPS
    assert row.title
    assert row.source
    assert row.stream.endswith(".")
    assert not row.note or row.note.endswith(".")
    assert not row.chosen_after or row.chosen_after.endswith(".")
    assert row.dtype == row.arguments[0].dtype


def test_what_is_not_re_created_says_why():
    known = {*NEVER_COMPARED, *SEEN, *EVIDENCE}
    assert set(NOT_RECREATED) <= known - {row.number for row in ROWS}
    assert all(reason.endswith(".") for reason in NOT_RECREATED.values())


def test_mfu_becomes_time():
    flops = 2 * 128 * 128 * 2400  # what trn2's array does in a microsecond
    assert us_from_mfu(100, "trn2", flops) == pytest.approx(1)
    assert us_from_mfu(50, "trn2", 10 * flops) == pytest.approx(20)


@pytest.mark.slow
def test_every_row_that_is_far_off_says_why():
    quiet = [row for row in ROWS if not difference(row)]
    assert [row.number for row in quiet if Outcome(row, model(row)).error > 0.15] == []


def test_differences_are_of_rows_and_are_sentences():
    assert set(DIFFERENCES) <= {row.number for row in ROWS}
    assert all(text.endswith(".") for text in DIFFERENCES.values())
