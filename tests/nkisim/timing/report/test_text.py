"""The table for a terminal."""

import pytest

import hand_built_timeline as by_hand
from nkisim.timing.report import text_report
from nkisim.timing.report.words import time_text

CASES = {"pipeline": by_hand.pipeline, "looped": by_hand.looped}


@pytest.mark.parametrize("name", CASES)
def test_every_report_says_it_is_modelled_and_how(name):
    first = text_report(CASES[name](), name).splitlines()[0]
    assert first == f"{name}: modelled, trn2, constants 1, default reading"


@pytest.mark.parametrize("name", CASES)
def test_lines_fit_a_terminal(name):
    assert max(len(line) for line in text_report(CASES[name](), name * 20).splitlines()) <= 100


def test_the_totals():
    report = text_report(by_hand.pipeline(), "pipeline")
    assert "makespan      7.30 us; latency 17.30 us with a launch of 10.00 us" in report
    # No engine is busy for half of 7,300 ns; the busiest, 1,650 ns, is the issue of DMA.
    assert "bound         latency; the busiest engine is at 22.6 % of the makespan" in report
    # 3 x 2 x 128 x 128 x 512 operations, of 2 x 128 x 128 x 2.4 a ns x 7,300 ns
    assert "MFU           8.8 %; 0.050 GFLOP" in report
    assert "HBM           1.000 MB moved; 137.0 GB/s" in report
    assert "SBUF peak     4,096 of 212,984 bytes per partition (1.9 %)" in report
    assert "PSUM peak     2 of 8 banks" in report
    assert "instructions  8 static (8 as the compiler counts); 8 executed" in report


def test_the_engines():
    rows = [line.split() for line in text_report(by_hand.pipeline(), "pipeline").splitlines()]
    assert ["tensor", "3", "1.10", "15.1", "%", "6.20"] in rows
    assert ["vector", "1", "0.50", "6.8", "%", "6.80"] in rows
    assert ["scalar", "1", "1.60", "21.9", "%", "5.70"] in rows
    assert any(row[:5] == ["dma", "data", "0.90", "12.3", "%"] for row in rows)
    assert any(row[:5] == ["dma", "issue", "1.65", "22.6", "%"] for row in rows)
    assert any(row[:7] == ["dma", "loads", "2", "3.00", "41.1", "%", "4.30"] for row in rows)


def test_gaps_and_waits():
    report = text_report(by_hand.pipeline(), "pipeline")
    assert "vector        6.80 us: 4.10 for tensor nc_matmul, 2.70 nothing left to do" in report
    wait = "0.79 us at 3.91 us: nc_matmul #5 (total) for tensor_copy evict #4 (result)"
    assert wait in report


def test_extrapolated_iterations_are_named():
    report = text_report(by_hand.looped(), "looped")
    assert "instructions  3 static (3 as the compiler counts); 21 executed" in report
    assert "7 iterations of 6.00 us from 17.00 us on, 42.00 us in all" in report
    assert "extrapolated" not in text_report(by_hand.pipeline(), "pipeline")


def test_a_timeline_without_memory_leaves_memory_out():
    rows = by_hand.Rows()
    tile = by_hand.tensor("tile", by_hand.SBUF)
    rows.add(by_hand.ADD, (0, 100), (tile, tile))
    report = text_report(rows.timeline(100.0, {"vector": 100.0}, memory=None), "add")
    assert "SBUF" not in report
    assert "never idle" in report


@pytest.mark.parametrize(
    ("ns", "words"),
    [(0.0, "0.0 ns"), (812.04, "812.0 ns"), (238_154.0, "238.15 us"), (16_036_015.0, "16.036 ms")],
)
def test_times_come_in_the_unit_that_suits_them(ns, words):
    assert time_text(ns) == words
