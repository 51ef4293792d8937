"""`python -m benchmarks model`: a scenario is found, and its calls are added up."""

import re

import pytest

from benchmarks import model
from benchmarks.__main__ import main
from benchmarks.scatter import scatter_ns
from benchmarks.table import Column, aligned, significant
from direct_plans import direct_plans
from nkisim.machine import TRN2, Reading
from trnconv.catalogue import calls
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.runtime import time_plan

LAST_LINE = r"(\S+) s modelled, baseline (\S+) s, ratio (\d+\.\d{3}), instructions (\d+)"
WAN = ["model", "wan2.1", "--size", "720x1280x81", "--phase", "decode"]
ONE_LAYER = ["model", "minimax_h3", "--size", "720x1280x124", "--phase", "decode"]
COST = model.Cost(
    ours_ns=1e6,
    baseline_ns=4e6,
    bound="tensor",
    instructions=10,
    looped=True,
    executed_macs=0,
    launches=1,
)


def last(lines):
    found = re.fullmatch(LAST_LINE, lines[-1])
    assert found
    return found


@pytest.mark.parametrize(
    ("scenario", "size"),
    [
        ("720p81", "720x1280x81"),
        ("480p121", "480x832x121"),
        ("704p121", "704x1280x121"),
        ("720p129_tiled", "720x1280x129"),
        ("1328x1328", "1328x1328"),
        ("720x1280x88_tiled", "720x1280x88"),
        ("480p_section9", "480p"),
        ("77f", "77f"),
    ],
)
def test_the_size_of_a_scenario(scenario, size):
    assert model.scenario_size(scenario) == size


@pytest.mark.parametrize("width_of", model.WIDTHS.items(), ids=str)
def test_the_width_a_p_stands_for_is_the_catalogues(width_of):
    """Some whole image, or what a patch of 2x2 pixels leaves of it, has this height and width."""
    height, width = width_of
    images = {call.output[-2:] for call in calls() if call.scenario.startswith(f"{height}p")}
    assert images & {(height, width), (height // 2, width // 2)}
    assert {image[1] for image in images if image[0] == height} <= {width}


@pytest.mark.parametrize(
    ("asked", "name", "scenario", "records"),
    [
        (("wan2.1", "720x1280x81", "decode"), "wan2.1_vae", "720p81", 36),
        (("qwen_image", "1328x1328", "decode"), "qwen_image_vae", "1328x1328", 14),
        (("hunyuanvideo_v", "720p129_tiled", "decode"), "hunyuanvideo_vae", "720p129_tiled", 104),
    ],
)
def test_name_size_and_phase_lead_to_one_scenario(asked, name, scenario, records):
    found = model.find_calls(*asked)
    assert {(call.model, call.scenario, call.phase) for call in found} == {
        (name, scenario, asked[2])
    }
    assert len(found) == records


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["hunyuanvideo_vae", "--size", "720x1280x129"], "there are 4. Name one of hunyuanvideo"),
        (["wan2.1", "--size", "721x1280x81"], "It has wan2.1_vae --size 480p81 --phase encode"),
        (["nobody", "--size", "1x1"], "qwen_image_vae --size 1328x1328 --phase decode"),
    ],
    ids=["several", "no size", "no model"],
)
def test_what_is_not_one_scenario_is_refused(asked, said, capsys):
    assert main(["model", *asked]) == 2
    assert said in capsys.readouterr().err


def test_calls_are_added_up_as_often_as_they_are_made(capsys, monkeypatch):
    budgets = set()

    def price(shape, machine, budget):
        budgets.add(budget)
        return COST

    monkeypatch.setattr(model, "price", price)
    assert main(WAN) == 0
    lines = capsys.readouterr().out.splitlines()
    made = sum(call.calls for call in model.find_calls("wan2.1", "720p81", "decode"))
    assert made == 797
    assert lines[-1] == "0.797 s modelled, baseline 3.19 s, ratio 0.250, instructions 7970"
    assert budgets == {5_000_000 // 797}
    assert "modelled, trn2, constants" in lines[0]


def test_a_short_graph_leaves_a_call_the_default_budget(monkeypatch):
    budgets = set()

    def price(shape, machine, budget):
        budgets.add(budget)
        return COST

    monkeypatch.setattr(model, "price", price)
    main(ONE_LAYER)
    assert budgets == {DEFAULT_BUDGET}


def test_a_layer_that_is_called_seven_times(capsys):
    """Against the parts it is made of, put together here."""
    call = model.find_calls("minimax_h3", "720x1280x124", "decode")[0]
    shape = call.implicit_shape()
    taken = direct_plans(shape)[0]
    ours = time_plan(taken.plan)
    baseline = scatter_ns(shape, TRN2, Reading.default)
    assert main(ONE_LAYER) == 0
    lines = capsys.readouterr().out.splitlines()
    found = last(lines)
    assert float(found[3]) == pytest.approx(ours.makespan_ns / baseline, abs=0.0006)
    assert float(found[1]) == pytest.approx(7 * ours.makespan_ns / 1e9, rel=0.006)
    assert int(found[4]) == 7 * ours.static_instructions
    executed = taken.cost.columns * 128 * 128 / call.macs
    assert f"executed / dense multiply-adds {executed:.3f} " in lines[-2]


def test_a_budget_nothing_fits_is_refused(capsys):
    assert main([*ONE_LAYER, "--budget-graph", "77"]) == 2
    assert "no plan with at most 11 static instructions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (9.999, "10.0"), (12.34, "12.3"), (1234.0, "1230"), (0.0, "0")],
)
def test_three_significant_digits(value, text):
    assert significant(value) == text


def test_columns_are_as_wide_as_their_widest_cell():
    columns = [Column("name", "<"), Column("time\nus")]
    assert aligned(columns, [["a", "1.0"], ["longer", "12345.0"]]).splitlines() == [
        "           time",
        "name         us",
        "a           1.0",
        "longer  12345.0",
    ]
