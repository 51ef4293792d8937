"""The table of published rows, the line of statistics and the page made of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nkisim import Spec
from nkisim.machine import CONSTANTS_VERSION, TRN2
from validation import page
from validation.__main__ import library_record
from validation.draw import EVIDENCE, NEVER_COMPARED, NOT_RECREATED, SEEN
from validation.kernels import vector_add
from validation.outcome import Outcome, evaluate
from validation.row import Row, us_from_mfu
from validation.rows import ROWS
from validation.summary import summarise

ROOT = Path(__file__).parents[2]
LINE = re.compile(
    r"median \|error\| \d+\.\d %, within 15 %: \d+/\d+, within 40 %: \d+/\d+,"
    r" inside interval: \d+/\d+"
)
REQUIRED = {*range(1, 12), 17, 18, 23, *range(27, 32), 36}


def number(row):
    """The number of a row of the first collection; 0 for those after a V."""
    return int((re.match(r"\d+", row.number) or "0")[0])


def row_of(published_us, **changes):
    fields = {
        "number": "1",
        "title": "a kernel",
        "target": "trn2",
        "dtype": "float32",
        "published_us": published_us,
        "source": "a document",
        "stream": "It adds.",
        "kernel": vector_add.by_columns,
        "arguments": (Spec((512,), "float32"), Spec((512,), "float32")),
        "options": {"columns": 4},
    }
    return Row(**{**fields, **changes})


def outcome_of(published, optimistic, modelled, pessimistic, **changes):
    return Outcome(
        row=row_of(published, **changes),
        optimistic_us=optimistic,
        modelled_us=modelled,
        pessimistic_us=pessimistic,
        bound="dma",
    )


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
    assert row.title
    assert row.source
    assert row.stream.endswith(".")
    assert not row.note or row.note.endswith(".")
    assert row.dtype == row.arguments[0].dtype


def test_what_is_not_re_created_says_why():
    known = {*NEVER_COMPARED, *SEEN, *EVIDENCE}
    assert set(NOT_RECREATED) <= known - {row.number for row in ROWS}
    assert all(reason.endswith(".") for reason in NOT_RECREATED.values())


def test_mfu_becomes_time():
    flops = 2 * 128 * 128 * 2400  # what trn2's array does in a microsecond
    assert us_from_mfu(100, "trn2", flops) == pytest.approx(1)
    assert us_from_mfu(50, "trn2", 10 * flops) == pytest.approx(20)


def test_the_line_counts():
    outcomes = [
        outcome_of(100, 90, 110, 120),  # 10 % off, inside
        outcome_of(100, 95, 80, 70),  # 20 % off, outside
        outcome_of(100, 150, 150, 150),  # 50 % off, outside
    ]
    line = str(summarise(outcomes))
    assert line == (
        "median |error| 20.0 %, within 15 %: 1/3, within 40 %: 2/3, inside interval: 1/3"
    )
    assert LINE.fullmatch(line)


def test_an_interval_is_sorted_and_holds_the_default():
    assert outcome_of(1, 5, 3, 4).interval_us == (3, 5)


def test_a_row_is_timed_in_three_readings():
    outcome = evaluate(row_of(20))
    assert outcome.optimistic_us < outcome.modelled_us < outcome.pessimistic_us
    without = evaluate(row_of(20, includes_launch=False))
    launch_us = TRN2.timing.launch_ns / 1e3
    assert outcome.modelled_us - without.modelled_us == pytest.approx(launch_us)


def test_the_page_shows_each_row_once():
    text = page.render([outcome_of(1500, 1200, 1600, 1700, note="A sentence.", number="7b")])
    cells = "| 7b | a kernel | trn2 float32 | 1.50 ms | 1.60 ms | 1.07 | 1.20 ms to 1.70 ms |"
    assert text.count(cells) == 1
    assert "| dma | A sentence. |" in text
    assert "- **7b** It adds. Source: a document; with launch." in text
    assert f"constants version {CONSTANTS_VERSION}" in text
    assert "measured" not in text.replace("what their authors measured", "")
    assert "Other people's kernels" not in text


def test_the_page_marks_a_published_time_outside_of_the_interval():
    assert "(outside)" in page.render([outcome_of(100, 110, 120, 130)])
    assert "(outside)" not in page.render([outcome_of(100, 90, 120, 130)])


def test_the_page_lists_kernels_of_libraries():
    entry = {
        "kernel": "softmax",
        "target": "trn2",
        "commit": "abcdef0123",
        "cases": 3,
        "max_error": 1e-6,
        "tolerance": 1e-5,
        "note": "",
    }
    refused = {**entry, "kernel": "top", "max_error": None, "tolerance": None, "note": "refused"}
    text = page.render([outcome_of(100, 90, 120, 130)], [entry, refused])
    assert "| softmax | trn2 | abcdef0 | 3 | 1e-06 | 1e-05 |  |" in text
    assert "| top | trn2 | abcdef0 | 3 | - | - | refused |" in text


def test_the_record_of_library_kernels_has_the_columns_of_the_page():
    for entry in library_record():
        assert {"kernel", "commit", "cases", "max_error", "tolerance", "note"} <= set(entry)


def test_the_assumptions_named_on_the_page_exist():
    named = set(re.findall(r"`(\w+)`", page.BOUNDS))
    assert named
    assert named <= set(TRN2.timing.assumptions())


@pytest.mark.xfail(
    strict=True,
    reason="rows of two cores and slopes are registered; the page follows with their evaluation",
)
def test_the_page_on_disk_was_made_of_these_rows_with_these_constants():
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert f"constants version {CONSTANTS_VERSION}," in text
    table = re.findall(r"^\| (V?\d+[a-z]?) \|", text, re.MULTILINE)
    assert table == [row.number for row in ROWS]
    assert LINE.search(text)


def test_the_command_prints_the_line_last():
    result = subprocess.run(
        [sys.executable, "-m", "validation", "23d", "24a"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": "src"},
    )
    assert LINE.fullmatch(result.stdout.splitlines()[-1])


def test_an_unknown_row_is_refused():
    result = subprocess.run(
        [sys.executable, "-m", "validation", "999"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": "src"},
    )
    assert result.returncode == 1
    assert "unknown row in 999" in result.stderr


@pytest.mark.slow
def test_every_row_that_is_far_off_says_why():
    silent = [row.number for row in ROWS if not row.note and evaluate(row).error > 0.15]
    assert silent == []
