"""An algorithm is a folder and a line of the table: one that is added is used everywhere."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cli_runs import answer, run_trnconv
from conv_arrays import integer_arrays
from nkisim.machine import TRN2
from toy_algorithm import POINT, PRICE_NS, PointPlan
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan, choose
from trnconv.planner.explain import explain_problem
from trnconv.planner.table import ALGORITHMS, algorithm_of
from trnconv.planner.tuned_file import written
from trnconv.planner.tuned_plans import use_tuned
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.records import from_json, to_json
from trnconv.reference import forward
from trnconv.report.assemble import ReportOptions
from trnconv.report.of_layer import report_of_layer
from trnconv.report.page import page
from trnconv.runtime import LaunchOptions, convolve, plans, time_plan, trace_plan
from trnconv.runtime.pricing import Price, price
from trnconv.runtime.tuning import tune
from trnconv.verification.layer import verify_layer

SHAPE = conv_shape((40, 24, 3, 17, 29), (40, 24, 1, 1, 1))
PROBLEM = ConvProblem(SHAPE, TRN2)
ALONE = LaunchOptions(cores=1)  # its kernel is for one core
LAYER = ("--channels", "24:40", "--kernel", "1x1x1", "--size", "3x17x29", "--batch", "40")


@pytest.fixture(autouse=True)
def toy():
    """The last line of the table, while a test runs."""
    algorithm = POINT
    ALGORITHMS.append(algorithm)
    plans._plans.cache_clear()
    yield algorithm
    ALGORITHMS.remove(algorithm)
    plans._plans.cache_clear()


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TRNCONV_CACHE_DIR", str(tmp_path / "cache"))
    return lambda *arguments: run_trnconv(monkeypatch, capsys, *arguments)


def test_it_is_planned_and_priced(toy):
    choice = choose(PROBLEM)
    assert isinstance(choice.taken.plan, PointPlan)
    assert choice.taken.cost.total_ns == PRICE_NS
    assert algorithm_of(choice.taken.plan) is toy
    assert best_plan(PROBLEM) == choice.taken
    (own,) = [offer for offer in choice.offers if offer.algorithm == "point"]
    assert [priced.plan.columns for priced in own.plans] == [512]  # 1,024 are more than a bank


def test_without_its_line_nobody_knows_it(toy):
    ALGORITHMS.remove(toy)
    assert isinstance(choose(PROBLEM).taken.plan, DirectPlan)
    ALGORITHMS.append(toy)


@pytest.mark.parametrize(
    "other",
    [
        conv_shape((2, 24, 3, 17, 29), (40, 24, 1, 1, 3)),
        conv_shape((2, 24, 3, 17, 29), (40, 24, 1, 1, 1), stride=(1, 2, 2)),
        conv_shape((1, 130, 9, 9), (40, 130, 1, 1)),
    ],
    ids=["taps", "stride", "channels"],
)
def test_what_it_refuses_is_computed_by_another(other):
    choice = choose(ConvProblem(other, TRN2))
    assert not isinstance(choice.taken.plan, PointPlan)
    (own,) = [offer for offer in choice.offers if offer.algorithm == "point"]
    assert own.refused.startswith("point: ")


def test_alone_it_says_why_it_cannot():
    wide = conv_shape((1, 130, 9, 9), (40, 130, 1, 1))
    with pytest.raises(PlanError, match="point: more channels than the 128 partitions"):
        choose(ConvProblem(wide, TRN2, algorithms=("point",)))
    with pytest.raises(PlanError, match="none of point computes the weight gradient"):
        choose(ConvProblem(SHAPE, TRN2, direction=WEIGHT_GRADIENT, algorithms=("point",)))


def test_it_is_explained():
    direct, every = explain_problem(PROBLEM)
    assert direct.startswith("24 -> 40 channels")
    (taken,) = [line for line in every.splitlines() if line.startswith("  taken")]
    assert "point by point, 512 columns, bound by tensor" in taken
    assert any("direct, blocks of" in line for line in every.splitlines())


@pytest.mark.parametrize("with_bias", [True, False])
def test_it_is_launched_and_right(with_bias):
    x, w, bias = integer_arrays(SHAPE, "bfloat16")
    given = bias if with_bias else None
    done = convolve(x, w, given, launch=ALONE)
    ((plan,),) = done.plans
    assert isinstance(plan, PointPlan)
    np.testing.assert_array_equal(done.y, forward(x, w, given, SHAPE).astype(x.dtype))
    products = [one for one in done.runs[0].trace.instructions() if one.op == "nc_matmul"]
    assert len(products) == 40 * 3  # 1,479 positions of each image, 512 at a time


def test_a_plan_of_it_may_be_given():
    x, w, bias = integer_arrays(SHAPE, "bfloat16")
    plan = replace(choose(PROBLEM).taken.plan, columns=100)
    done = convolve(x, w, bias, launch=LaunchOptions(plans=(plan,)))
    np.testing.assert_array_equal(done.y, forward(x, w, bias, SHAPE).astype(x.dtype))
    with pytest.raises(PlanError, match="600 columns: a bank has 512"):
        convolve(x, w, bias, launch=LaunchOptions(plans=(replace(plan, columns=600),)))
    with pytest.raises(
        PlanError, match="2 plans of the point algorithm: its kernel is for one core"
    ):
        convolve(x, w, bias, launch=LaunchOptions(plans=(plan, plan)))


def test_it_is_timed():
    plan = choose(PROBLEM).taken.plan
    assert trace_plan(plan).trace.static_count == algorithm_of(plan).cost(plan).instructions
    timeline = time_plan(plan)
    assert timeline.makespan_ns > PRICE_NS
    found = price(PROBLEM, simulate=True, cores=1)
    assert found.ns == timeline.makespan_ns
    assert from_json(Price, json.loads(json.dumps(to_json(found)))) == found


def test_without_a_kernel_for_two_cores_another_algorithm_computes_there():
    x, w, bias = integer_arrays(SHAPE, "bfloat16")
    done = convolve(x, w, bias)
    assert [type(plan) for plan in done.plans[0]] == [DirectPlan, DirectPlan]
    np.testing.assert_array_equal(done.y, forward(x, w, bias, SHAPE).astype(x.dtype))
    with pytest.raises(PlanError, match="two cores: no algorithm computes it"):
        price(replace(PROBLEM, algorithms=("point",)))
    with pytest.raises(PlanError, match="two cores: no algorithm computes it"):
        verify_layer(PROBLEM)


def test_it_is_tuned_and_read_back(tmp_path):
    (tuning,) = tune(PROBLEM, 3)
    assert isinstance(tuning.planned.candidate.plan, PointPlan)
    tuned = replace(tuning.tuned, plan=replace(tuning.planned.candidate.plan, columns=300))
    file = tmp_path / "tuned.json"
    file.write_text(written("trn2", [tuned]))
    assert '"algorithm": "point"' in file.read_text()
    with use_tuned(file):
        assert best_plan(PROBLEM).plan == tuned.plan
    file.write_text(written("trn2", [replace(tuned, plan=replace(tuned.plan, columns=600))]))
    with use_tuned(file), pytest.raises(PlanError, match="600 columns: a bank has 512"):
        best_plan(PROBLEM)


def test_it_is_verified():
    verdict = verify_layer(PROBLEM, cores=1)
    assert isinstance(verdict.plan.plan, PointPlan)
    assert verdict.passed


def test_it_is_reported():
    asked = ReportOptions(command="trnconv report", date="today", effects=False)
    report = report_of_layer("toy", "", PROBLEM, asked, cores=1)
    (layer,), (line,) = report.layers, report.timelines
    assert (layer.algorithm, line.plan) == ("point", "point by point, 512 columns")
    assert line.ns == time_plan(choose(PROBLEM).taken.plan).makespan_ns
    assert "<figcaption>Point by point, 512 columns." in page(report)


def test_commands_tell_of_it(run):
    planned = answer(run("plan", *LAYER, "--cores", "1", "--json", "--no-cache"))
    assert (planned["algorithm"], planned["block"]) == ("point", "1x1x512")
    assert planned["plan"] == "point by point, 512 columns"
    assert planned["decisions"]["columns"] == 512
    explained = run("explain", *LAYER, "--cores", "1")
    assert explained.code == 0
    assert "Taken: point by point, 512 columns, 0.0 us." in explained.out
