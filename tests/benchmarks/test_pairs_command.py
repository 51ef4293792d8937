"""`python -m benchmarks forward --cores 2` and `fast --cores 2`: a pair against one core."""

import re
from dataclasses import replace

import pytest

from benchmarks import pairs
from benchmarks.__main__ import main
from nkisim.machine import TRN2
from trnconv.geometry import conv_shape
from trnconv.planner.best import searched_plan
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.launch import time_plan, time_plans

pytestmark = pytest.mark.slow  # what benchmarks print: they are run by hand


def printed(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_layer_j_reaches_its_bar_by_columns(capsys):
    lines = printed(capsys, "forward", "--cores", "2", "--layers", "j")
    assert "every time is modelled" in lines[0]
    (row,) = [line for line in lines if line.startswith("j ")]
    assert " met " in row
    assert "columns from 0, before 28800" in row
    assert lines[-1] == "bars met 1/1"


@pytest.mark.parametrize(("bar", "met"), [(1.0, 1), (2.5, 0)])
def test_a_bar_is_met_or_missed(capsys, monkeypatch, bar, met):
    monkeypatch.setattr(pairs, "POINTWISE_BAR", bar)
    lines = printed(capsys, "forward", "--cores", "2", "--layers", "j")
    assert lines[-1] == f"bars met {met}/1"


def test_times_are_those_of_the_planners_plans():
    shape = conv_shape((1, 96, 3, 20, 64), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    asked = pairs.Asked("x", "direct", ConvProblem(shape, TRN2, algorithms=("direct",)), 1.5)
    found = pairs.timed(asked)
    assert found.alone_ns == time_plan(searched_plan(asked.problem).plan).makespan_ns
    both = tuple(priced.plan for priced in shared_plans(asked.problem))
    assert found.both_ns == time_plans(both).makespan_ns
    assert found.met == (found.gain >= 1.5)
    assert pairs.describe_split(*both) == "rows from 0, before 10"


def test_models_that_miss_their_bar_are_counted(capsys, monkeypatch):
    run = pairs.ModelPair("wan2.1", "bf16", 2.0, 4.0, 4.0, 0.54)
    slow = replace(run, ours_s=3.0)
    monkeypatch.setattr(pairs, "model_pairs", lambda *_: [run, slow])
    lines = printed(capsys, "fast", "--cores", "2", "--layers", "none", "--models", "wan2.1")
    rows = [re.split(r"  +", line) for line in lines if line.startswith("wan2.1")]
    assert [row[6:] for row in rows] == [["0.500", "0.54", "met"], ["0.750", "0.54", "missed"]]
    assert lines[-1] == "bars met 1/2"


@pytest.mark.parametrize(
    "arguments", [["fast", "--workarounds"], ["forward", "--machine", "trn3"]], ids=" ".join
)
def test_options_of_one_core_are_refused(arguments, capsys):
    assert main([*arguments, "--cores", "2"]) == 2
    assert "--cores 2" in capsys.readouterr().err
