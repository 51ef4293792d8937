"""Graphs by chunk: `python -m benchmarks chunk`."""

import re

import pytest

from benchmarks.__main__ import main
from benchmarks.chunk import unrolled_ns
from causal_run import causal_run
from nkisim.machine import TRN2
from trnconv.geometry import conv_shape
from trnconv.model_plan import plans
from trnconv.planner.table import priced
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.pricing import Price, price
from upsample_cases import CASES

pytestmark = pytest.mark.slow  # what benchmarks print: they are run by hand

COMMAND = ["chunk", "wan2.1", "--size", "720x1280x81", "--jobs", "1", "--cores", "1"]
LAST = r"steady chunk ([\d.]+) ms modelled, instructions (\d+), regions (\d+), lost ([\d.-]+) %"


@pytest.fixture(autouse=True)
def small_run(monkeypatch):
    monkeypatch.setattr(plans, "model_trace", lambda *_: causal_run())


def last_line(capsys):
    return re.fullmatch(LAST, capsys.readouterr().out.splitlines()[-1]).groups()


def test_the_last_line_is_the_steady_chunk(capsys):
    assert main(COMMAND) == 0
    ms, instructions, regions, lost = map(float, last_line(capsys))
    assert ms > 0
    assert 0 < instructions <= 1_000_000
    assert (regions, lost) == (0, 0)


def test_fewer_instructions_take_loops_and_time(capsys):
    main(COMMAND)
    ms, instructions, *_ = map(float, last_line(capsys))
    assert main([*COMMAND, "--instructions", str(int(0.8 * instructions)), "--regions", "99"]) == 0
    longer, fewer, regions, lost = map(float, last_line(capsys))
    assert longer > ms
    assert fewer <= 0.8 * instructions
    assert regions > 0
    assert lost > 0


def test_a_budget_that_nothing_keeps_to_is_an_error(capsys):
    assert main([*COMMAND, "--instructions", "50", "--regions", "0"]) == 1
    assert int(last_line(capsys)[1]) > 50


@pytest.mark.parametrize("budget", [2_000, 40_000])
@pytest.mark.parametrize("algorithm", ["direct", "winograd"])
def test_what_loops_lose_is_against_the_same_plan_unrolled(algorithm, budget):
    shape = conv_shape((1, 96, 6, 96, 128), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    found = price(ConvProblem(shape, TRN2, budget=budget, algorithms=(algorithm,)), cores=1)
    assert found.plan.plan.algorithm == algorithm
    assert (unrolled_ns(found) < found.ns) == (budget == 2_000)


@pytest.mark.parametrize("case", ["loop", "one_block"])
def test_an_upsampling_by_differences_is_unrolled_too(case):
    plan = priced(CASES[case])
    cost = plan.cost
    found = Price(cost.total_ns, cost.instructions, 0, 0, 1, cost.bound, (plan,))
    assert (unrolled_ns(found) < found.ns) == (case == "loop")
