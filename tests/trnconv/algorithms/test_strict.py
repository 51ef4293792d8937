"""Random plans of every algorithm under every device rule: `pytest -m strict` runs more of them."""

import pytest

from direct_plans import direct_plans
from nkisim.errors import DeviceRuleError
from nkisim.machine import TRN1, TRN2, TRN3
from random_convolutions import random_convolution
from random_family import random_member
from repetition import few
from strict_plans import KINDS, broken_rule, pair_like, strict_case, strict_run
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.planner.best import best_plan
from trnconv.planner.shares import loops
from trnconv.planner.table import ALGORITHMS
from trnconv.problem.conv_problem import FORWARD, WEIGHT_GRADIENT, ConvProblem

CHUNK = 20  # plans of one test, so that processes share them
PAIRS = 8  # pairs of one test, of every kind
IN_CI, ON_DEMAND = 100, 500
PAIRS_IN_CI = 40
ON_TRN1 = 20


def chunks(first, end, size=CHUNK):
    return [range(at, min(at + size, end)) for at in range(first, end, size)]


def check(numbers):
    failures, looped = [], set()
    for number in numbers:
        case = strict_case(number)
        try:
            trace = strict_run(case.plan).trace
        except DeviceRuleError as error:
            failures.append(f"{case}: {error.rule}")
        else:
            looped |= {case.plan.algorithm} if trace.executed_count > trace.static_count else set()
    assert not failures, "\n".join(failures)
    return looped


@few(1)
@pytest.mark.parametrize("numbers", chunks(0, IN_CI), ids=str)
def test_random_plans_break_no_rule(numbers):
    assert check(numbers) >= {"direct"}  # some of them go round a loop


@pytest.mark.strict
@pytest.mark.parametrize("numbers", chunks(IN_CI, ON_DEMAND), ids=str)
def test_more_random_plans_break_no_rule(numbers):
    check(numbers)


def check_pairs(numbers):
    failures = []
    for number in numbers:
        case = strict_case(number)
        plans = pair_like(case.plan)
        if plans is None:
            continue
        broken = broken_rule(*plans)
        failures += [f"{case}: {broken}"] if broken else []
    assert not failures, "\n".join(failures)


@few(1)
@pytest.mark.parametrize("numbers", chunks(0, PAIRS_IN_CI, PAIRS), ids=str)
def test_random_pairs_break_no_rule(numbers):
    """Values are zeros: a race, other loops or an unwritten output are refused all the same."""
    check_pairs(numbers)


@pytest.mark.strict
@pytest.mark.parametrize("numbers", chunks(PAIRS_IN_CI, ON_DEMAND), ids=str)
def test_more_random_pairs_break_no_rule(numbers):
    check_pairs(numbers)


@pytest.mark.slow
def test_random_pairs_cover_every_algorithm_and_loops_of_some():
    cases = [strict_case(number) for number in range(PAIRS_IN_CI)]
    pairs = [pair for case in cases if (pair := pair_like(case.plan)) is not None]
    assert {pair[0].algorithm for pair in pairs} == {algorithm.name for algorithm in ALGORITHMS}
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    assert len(apart) > 0.9 * len(cases)
    looped = {pair[0].algorithm for pair in apart if loops(pair[0])}
    assert looped >= {"direct", "weight_gradient"}  # winograd: winograd/test_algorithm_two_cores.py


@pytest.mark.slow
def test_random_plans_cover_every_algorithm_and_loops_of_each():
    cases = [strict_case(number) for number in range(IN_CI)]
    assert {case.kind for case in cases} == set(KINDS)
    assert {case.plan.machine_name for case in cases} == {"trn2", "trn3"}
    for algorithm in ("direct", "winograd", "weight_gradient"):
        plans = [case.plan for case in cases if case.plan.algorithm == algorithm]
        assert any(plan.is_looped for plan in plans)
        assert any(not plan.is_looped for plan in plans)
    assert any(len(case.plan.piece_frames) == 3 for case in cases)
    assert any(case.plan.epilogue.residual != "none" for case in cases)


@pytest.mark.parametrize("asks", [FORWARD, WEIGHT_GRADIENT])
def test_plans_of_trn1_break_none_of_its_rules(asks):
    """Those that are taken for random shapes: what breaks one there, the algorithms refuse."""
    failures = []
    for number in range(ON_TRN1):
        problem = random_convolution(number)
        plan = best_plan(ConvProblem(problem.shape, TRN1, problem.dtype, direction=asks)).plan
        broken = broken_rule(plan)
        failures += [f"{number}, {plan.in_words()}: {broken}"] if broken else []
    assert not failures, "\n".join(failures)


def test_mirrored_rows_are_loaded_partition_by_partition_forwards():
    for priced in direct_plans(random_member(53).shape)[:6]:
        assert broken_rule(priced.plan) == ""


def test_loops_of_many_iterations_are_split_where_a_machine_stalls():
    assert loop_spans(TRN2.loop_trips_max, TRN2) == [(0, 2048)]
    assert loop_spans(4099, TRN2) == [(0, 1366), (1366, 2732), (2732, 4099)]
    assert loop_spans(4099, TRN3) == [(0, 4099)]
    assert loop_spans(0, TRN2) == [(0, 0)]
