"""Which set a row is in; predictions before comparisons."""

import json

import pytest

from nkisim.machine import CONSTANTS_VERSION
from validation import draw
from validation.predictions import (
    NotPredictedError,
    Prediction,
    read_record,
    require_predicted,
    unpredicted,
    write_record,
)
from validation.rows import ROWS
from validation.sets import FITTED, HELD, OLD, SEEN_BEFORE, read_sets, set_of
from validation.summary import set_lines, summarise
from validation_rows import modelled_of, outcome_of, row_of

DRAWN = min(draw.HELD_OUT)
NOT_DRAWN = min(set(draw.NEVER_COMPARED) - draw.HELD_OUT)


def test_the_lists_do_not_overlap_and_a_third_is_held_out():
    lists = (OLD, draw.EVIDENCE, frozenset(draw.NEVER_COMPARED), draw.SEEN)
    assert sum(map(len, lists)) == len(frozenset().union(*lists))
    assert len(OLD) == 37
    assert len(draw.HELD_OUT) == len(draw.NEVER_COMPARED) // 3


def test_the_draw_is_the_one_that_was_committed():
    assert (
        set(
            "18b 32b 32e 32f 37c 37d 37f 37g 37h 37k 37o 37p 45c V15 V17 V20 V26b V26c V28a".split()
        )
        | set("V29c V29e V58a V61 V62 V66 V67 V72".split())
        == draw.HELD_OUT
    )


@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("17", FITTED),
        ("V7", FITTED),  # evidence
        (NOT_DRAWN, FITTED),
        ("V49", SEEN_BEFORE),
        ("37i", SEEN_BEFORE),
        (DRAWN, HELD),
        ("V999", HELD),  # a row that nobody has thought of yet
    ],
)
def test_the_set_of_a_row(number, name):
    assert set_of(row_of(1, number=number)) == name


def test_the_old_rows_are_still_there():
    assert {row.number for row in ROWS} >= OLD


def test_sets_are_read_from_words():
    assert read_sets("seen, fitted") == (FITTED, SEEN_BEFORE)
    assert read_sets("held-out") == read_sets("held out") == (HELD,)
    with pytest.raises(ValueError, match="unknown set fit; sets are fitted, seen, held out"):
        read_sets("fit,seen")


def test_the_line_counts():
    outcomes = [
        outcome_of(100, 90, 110, 120),  # 10 % off, inside
        outcome_of(100, 95, 80, 70),  # 20 % off, outside
        outcome_of(100, 150, 150, 150),  # 50 % off, outside
    ]
    assert str(summarise(outcomes)) == (
        "median |error| 20.0 %, within 15 %: 1/3, within 40 %: 2/3, inside interval: 1/3"
    )


def test_each_set_has_its_line():
    outcomes = [outcome_of(100, 90, 110, 120), outcome_of(100, 90, 130, 135, number="V49")]
    rows = [outcome.row for outcome in outcomes]
    assert list(set_lines(outcomes, rows)) == [
        "fitted: median |error| 10.0 %, within 15 %: 1/1, within 40 %: 1/1, inside interval: 1/1",
        "seen: median |error| 30.0 %, within 15 %: 0/1, within 40 %: 1/1, inside interval: 1/1",
        "held out: no rows",
    ]
    *_, last = set_lines(outcomes, [*rows, row_of(1, number=DRAWN)])
    assert last == "held out: not looked at"


# Predictions


def prediction(*times, date="2026-11-15"):
    return Prediction.of(modelled_of(*times), date)


def test_a_prediction_agrees_with_the_same_times_only():
    said = prediction(1, 2, 3)
    assert said.agrees(modelled_of(1, 2 * (1 + 1e-9), 3))
    assert not said.agrees(modelled_of(1, 2.001, 3))
    assert not said.agrees(modelled_of(1, 2, 3.001))
    assert not said.agrees(modelled_of(1.001, 2, 3))


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "predictions.json"
    assert read_record(path) == {}
    record = {"2": {"V2": prediction(1, 2, 3)}, "3": {"V2": prediction(2, 3, 4)}}
    write_record(record, path)
    assert read_record(path) == record
    assert json.loads(path.read_text())["3"]["V2"]["default_us"] == 3


def test_rows_without_a_prediction_under_these_constants_are_found():
    rows = [row_of(1, number="17"), row_of(1, number=DRAWN)]
    other = {"another version": {DRAWN: prediction(1, 2, 3)}}
    assert [row.number for row in unpredicted(rows, other)] == ["17", DRAWN]
    record = {CONSTANTS_VERSION: {DRAWN: prediction(1, 2, 3)}}
    assert [row.number for row in unpredicted(rows, record)] == ["17"]


def test_a_held_out_row_is_not_compared_before_it_is_predicted():
    rows = [row_of(1, number="17"), row_of(1, number="V49"), row_of(1, number=DRAWN)]
    with pytest.raises(NotPredictedError) as refused:
        require_predicted(rows, {"another version": {DRAWN: prediction(1, 2, 3)}})
    assert f"constants {CONSTANTS_VERSION}: {DRAWN}." in str(refused.value)
    assert "python -m validation predict --date" in str(refused.value)
    require_predicted(rows[:2], {})
    require_predicted(rows, {CONSTANTS_VERSION: {DRAWN: prediction(1, 2, 3)}})


def test_the_held_out_rows_that_are_there_were_predicted():
    held = [row for row in ROWS if set_of(row) == HELD]
    require_predicted(held, read_record())
