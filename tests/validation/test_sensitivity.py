"""Which constants the rows depend on."""

from dataclasses import fields, replace

import pytest

from nkisim.machine import CONSTANTS_VERSION, TRN1, TRN2, Reading, Timing
from validation import __main__ as command
from validation.rows import ROWS
from validation.sensitivity import (
    alternatives,
    constant_found,
    found_for,
    read_sensitivity,
    row_moves,
    varied,
    watched,
)
from validation.sets import HELD, set_of
from validation.stream import stream_of
from validation_rows import row_of

NAMES = {field.name for field in fields(Timing)}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pe_gap_cycles", (7, 27)),  # the ends of an open point
        ("dma_partition_bound", (None, 1)),  # one of whose ends is the default
        ("pe_ghz", (0.75 * 2.4, 1.25 * 2.4)),
        ("dma_engines", (12, 20)),
        ("pe_fp32_passes", (1, 3)),
        ("vector_wide_16bit", (None, False)),
        ("dma_issue_queues", (None, 2)),
        ("dma_done_ns", (200, None)),
        ("dma_default_mode", (None, "none")),
    ],
)
def test_what_a_constant_is_tried_with(name, values):
    assert alternatives(TRN2.timing, name) == values


def test_every_constant_has_an_alternative_on_every_machine():
    for machine in (TRN1, TRN2):
        for name in NAMES:
            tried = alternatives(machine.timing, name)
            assert set(tried) - {None}
            assert getattr(machine.timing, name) not in tried


def test_a_varied_machine_differs_in_one_constant_in_every_reading():
    machine = varied(TRN2, "pe_gap_cycles", 99.0)
    for reading in Reading:
        expected = replace(TRN2.timing.read(reading), pe_gap_cycles=99.0)
        assert machine.timing.read(reading) == expected


def test_a_constant_that_is_not_read_moves_nothing():
    """Every one that `watched` did not see, tried all the same."""
    stream = stream_of(row_of(20))
    machine, used = watched(stream.machine)
    base = stream.time(machine=machine)
    assert base == stream.time()
    assert "dma_start_ns" in used
    assert "reciprocal_cycles_per_elem" not in used
    for name in NAMES - used:
        for value in set(alternatives(TRN2.timing, name)) - {None}:
            assert stream.time(machine=varied(TRN2, name, value)) == base


def test_the_launch_moves_a_row_by_its_share():
    row = row_of(20)
    moves = row_moves(stream_of(row))
    low, high = moves.ratios["launch_ns"]
    assert low - moves.ratio == pytest.approx(-2 / 20)  # 8 us in place of 10
    assert high - moves.ratio == pytest.approx(28 / 20)
    found = constant_found("launch_ns", [moves])
    assert found["median_ratio"] == pytest.approx([-2 / 20, 28 / 20])
    assert found["moved"] == 1
    assert not found["untested"]
    assert found["tried"] == {"trn2": "8000 / **10000** / 38000"}


def test_rows_that_do_not_use_a_constant_stay():
    """The machine's launch is in one row, the launch of a source in the other."""
    rows = [row_of(20, number="7"), row_of(20, number="8", launch_us=3.0)]
    moves = [row_moves(stream_of(row)) for row in rows]
    found = constant_found("launch_ns", moves)
    assert found["moved"] == 1
    assert found["largest_row"] == "7"
    assert constant_found("reciprocal_cycles_per_elem", moves)["untested"]


def test_long_rows_are_left_out():
    found = found_for([row_of(20, number="7")], most=100)
    assert found["numbers"] == ["7"]
    assert {one["constant"] for one in found["found"]} == NAMES
    with pytest.raises(ValueError, match="raise --most"):
        found_for([row_of(20)], most=2)


def test_some_rows_leave_the_record_alone(monkeypatch, capsys):
    written = []
    monkeypatch.setattr(command, "ROWS", (row_of(20, number="7"), row_of(20, number="8")))
    monkeypatch.setattr(command, "write_sensitivity", written.append)
    command.main(["sensitivity", "7"])
    assert written == []
    assert "1 rows; untested: " in capsys.readouterr().out
    command.main(["sensitivity"])
    assert [found["numbers"] for found in written] == [["7", "8"]]


def test_the_record_is_of_these_constants_and_leaves_held_out_rows_alone():
    found = read_sensitivity()
    assert found is not None
    assert found["constants"] == CONSTANTS_VERSION
    known = {row.number: row for row in ROWS}
    assert all(set_of(known[number]) != HELD for number in found["numbers"])
