"""`python -m benchmarks forward`: what it prints is what was modelled, and bars can be missed."""

import json
import re
from dataclasses import replace

import pytest

from benchmarks import forward
from benchmarks.__main__ import main
from direct_plans import direct_plan
from nkisim.machine import TRN1, TRN2, Reading
from nkisim.timing import schedule
from trnconv.cases import find
from trnconv.geometry import conv_shape
from trnconv.runtime import trace_plan

LAST_LINE = r"bars met (\d+)/(\d+), geomean vs baseline (\d+\.\d\d)"
EVEN = {Reading.optimistic: 50_000.0, Reading.default: 50_000.0, Reading.pessimistic: 50_000.0}
BY_HAND = forward.Layer(
    case=find("e"),
    machine=TRN2,
    ours_ns=EVEN,
    baseline_ns={reading: 2 * ns for reading, ns in EVEN.items()},
    bar_us=50.0,
    estimate_ns=55_000.0,
    hbm_bytes=10**7,
    sbuf_bytes=1000,
    instructions=10,
    plain=True,
)


def printed(capsys, *arguments):
    assert main(["forward", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def cells(lines, key):
    """The cells of a layer's line in the first table."""
    return next(line.split() for line in lines if line.startswith(f"{key} "))


@pytest.mark.parametrize(("bar", "verdict", "count"), [(1.0, "missed", 0), (1e6, "met", 1)])
def test_a_bar_is_missed_or_met(bar, verdict, count, capsys, monkeypatch):
    monkeypatch.setattr(forward, "BARS_US", {"e": bar})
    lines = printed(capsys, "--layers", "e", "--reading", "default")
    found = re.fullmatch(LAST_LINE, lines[-1])
    assert found
    assert (int(found[1]), int(found[2])) == (count, 1)
    assert cells(lines, "e")[4] == verdict


def test_the_time_printed_is_that_of_the_unrolled_plan(capsys):
    case = find("k3")
    run = trace_plan(direct_plan(case.shape, dtype=case.dtype, budget=10**9))
    expected = schedule(run.trace, run.machine, Reading.default, memory=run.memory).makespan_ns
    lines = printed(capsys, "--layers", "k3", "--reading", "default")
    assert float(cells(lines, "k3")[2]) == pytest.approx(expected / 1000, abs=0.06)
    assert lines[-1].startswith("bars met 0/0, ")  # it has no bar
    assert "modelled, trn2, constants" in lines[0]


def test_all_readings_are_in_the_table_and_the_json(capsys, tmp_path):
    machine = tmp_path / "forward.json"
    lines = printed(capsys, "--layers", "e,k3", "--json", str(machine))
    report = json.loads(machine.read_text())
    assert [layer["key"] for layer in report["layers"]] == ["e", "k3"]
    first = report["layers"][0]
    assert set(first["ours_ns"]) == set(first["baseline_ns"]) == {one.value for one in Reading}
    shown = [float(cells(lines, "e")[place]) for place in (2, 5, 8)]
    in_order = ("default", "optimistic", "pessimistic")
    assert shown == [pytest.approx(first["ours_ns"][one] / 1000, abs=0.06) for one in in_order]
    assert report["summary"] == lines[-1]


def test_one_reading_is_compared_in_that_reading(capsys, tmp_path):
    machine = tmp_path / "forward.json"
    lines = printed(capsys, "--layers", "k3", "--reading", "pessimistic", "--json", str(machine))
    layer = json.loads(machine.read_text())["layers"][0]
    ratio = layer["baseline_ns"]["pessimistic"] / layer["ours_ns"]["pessimistic"]
    assert lines[-1].endswith(f" {ratio:.2f}")
    assert list(layer["baseline_ns"]) == ["pessimistic"]


def test_bars_of_whole_tiles_follow_from_the_matmuls():
    """c1: 3 x 27 x 3 matmuls on 4 x 90 x 160 positions at 2.4 GHz."""
    dense_us = 243 * 57_600 / 2400
    assert forward.bar_us(find("c1"), TRN2) == pytest.approx(1.035 * dense_us + 15)
    assert forward.bar_us(find("a"), TRN2) == 2140
    assert forward.bar_us(find("a"), TRN1) is None
    assert forward.bar_us(find("k3"), TRN2) is None


def test_the_least_traffic_counts_everything_once():
    shape = conv_shape((2, 3, 8, 10), (5, 3, 3, 3), padding=1)
    assert forward.least_bytes(shape, 2) == 2 * (480 + 135 + 800) + 20


def test_mfu_counts_useful_multiply_adds():
    """Layer e has 16 x 384 x 27 x 14,400 of them; 50 us at 2.4 GHz hold 120,000 columns."""
    assert BY_HAND.mfu == pytest.approx(16 * 384 * 27 * 14_400 / (120_000 * 128 * 128))


def test_the_mean_is_geometric_and_bars_are_counted_where_there_are_some():
    slower = replace(BY_HAND, bar_us=49.9, baseline_ns={one: 8 * EVEN[one] for one in EVEN})
    line = forward.last_line([BY_HAND, slower, replace(slower, bar_us=None)], Reading.default)
    assert line == "bars met 1/2, geomean vs baseline 5.04"  # cube root of 2 * 8 * 8


def checked(layer):
    """(readings, HBM, cost model) of one layer, and the line that counts them."""
    lines = forward.checks([layer], Reading.default).splitlines()
    row = lines[2].split()
    return [row[3], row[6], row[7]], lines[-1]


def test_checks_hold_inside_their_limits():
    assert checked(BY_HAND) == (
        ["yes", "yes", "yes"],
        "within their limits: readings 1/1, HBM 1/1, cost model 1/1",
    )


@pytest.mark.parametrize(
    ("change", "held"),
    [
        ({"ours_ns": {**EVEN, Reading.pessimistic: 53_100.0}}, ["no", "yes", "yes"]),
        ({"ours_ns": {**EVEN, Reading.optimistic: 46_900.0}}, ["no", "yes", "yes"]),
        ({"hbm_bytes": 20_000_000}, ["yes", "no", "yes"]),
        ({"estimate_ns": 42_000.0}, ["yes", "yes", "no"]),
        ({"estimate_ns": 58_000.0}, ["yes", "yes", "no"]),
    ],
    ids=["slower", "faster", "traffic", "estimate low", "estimate high"],
)
def test_checks_fail_outside_their_limits(change, held):
    assert checked(replace(BY_HAND, **change))[0] == held


def test_limits_depend_on_the_layer_and_the_plan():
    shifted = replace(BY_HAND, ours_ns={**EVEN, Reading.pessimistic: 52_500.0})
    assert checked(shifted)[0][0] == "yes"  # 5 % of 6 %
    assert checked(replace(shifted, case=find("k3")))[0][0] == "no"  # of 2 %
    busy = replace(BY_HAND, hbm_bytes=20_000_000, plain=False)
    assert checked(busy)[0][1] == "yes"  # 1.56 of 2.3


def test_an_unknown_layer_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as refusal:
        main(["forward", "--layers", "e,zz"])
    assert refusal.value.code == 2
    assert "no layer zz; there are a, b, c1" in capsys.readouterr().err


@pytest.mark.parametrize("present", [True, False])
def test_the_library_kernel_that_is_not_timed_is_named(present, capsys, monkeypatch, tmp_path):
    if present:
        folder = tmp_path / "src/nkilib_src/nkilib/experimental/conv"
        folder.mkdir(parents=True)
        (folder / "conv3d.py").write_text("")
    monkeypatch.setenv("NKILIB_SRC", str(tmp_path))
    main(["forward", "--layers", "k3", "--reading", "default"])
    assert ("conv3d is not timed" in capsys.readouterr().err) == present
