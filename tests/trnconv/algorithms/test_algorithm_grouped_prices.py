"""What is counted together costs what it costs one by one."""

from collections import Counter
from dataclasses import asdict, replace

import pytest

from nkisim.machine import MACHINES, TRN2
from trnconv.algorithms.direct import cost as direct_cost
from trnconv.algorithms.direct import length as direct_length
from trnconv.algorithms.direct import ramp
from trnconv.algorithms.direct.accumulations import AccumulationGroups, TileSum
from trnconv.algorithms.direct.algorithm import DIRECT
from trnconv.algorithms.direct.candidates import Task
from trnconv.algorithms.direct.candidates import candidates as direct_plans
from trnconv.algorithms.direct.traffic import Loaded, _missing, loaded_windows
from trnconv.algorithms.weight_gradient import cost as gradient_cost
from trnconv.algorithms.weight_gradient import pass_kinds
from trnconv.algorithms.weight_gradient.candidates import candidates as gradient_plans
from trnconv.algorithms.weight_gradient.iterations import (
    appearance,
    iterations,
    iterations_of_looks,
)
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.weight_gradient import gradient_problem

GRADIENTS = {
    "padded": conv_shape((2, 24, 20, 30), (40, 24, 5, 5), padding=2),
    "strided": conv_shape((1, 8, 33, 40), (200, 8, 7, 4), stride=2, padding=3),
    "3-D": conv_shape((1, 16, 6, 12, 140), (16, 16, 3, 3, 3), padding=1),
    "dilated, 4 groups": conv_shape((1, 32, 300), (32, 8, 9), padding=8, dilation=2, groups=4),
}
DIRECTS = {
    "3-D": conv_shape((1, 96, 6, 40, 60), (200, 96, 3, 3, 3), padding=1),
    "few channels": conv_shape((1, 3, 4, 50, 70), (8, 3, 3, 5, 5), padding=(1, 2, 2)),
    "streamed": conv_shape((1, 512, 4, 20, 30), (700, 512, 3, 3, 3), padding=1),
    "upward": transposed_shape((1, 48, 4, 10, 20), (48, 70, 4, 4, 4), stride=2, padding=1),
}


def by_name(table):
    return pytest.mark.parametrize("shape", table.values(), ids=list(table))


def assert_alike(one, other):
    one, other = asdict(one), asdict(other)
    assert dict(one.pop("busy")) == pytest.approx(dict(other.pop("busy")))
    assert one == pytest.approx(other)


@by_name(GRADIENTS)
def test_strips_of_a_gradient(shape, monkeypatch):
    plans = list(gradient_plans(gradient_problem(shape, "trn2", "bfloat16")))
    together = [gradient_cost.cost_of(plan) for plan in plans]
    monkeypatch.setattr(pass_kinds, "_strip_look", lambda _, one, *__: (one,))
    gradient_cost._works.cache_clear()
    for plan, priced in zip(plans, together, strict=True):
        assert_alike(gradient_cost.cost_of(plan), priced)
    gradient_cost._works.cache_clear()


@by_name(GRADIENTS)
def test_iterations_that_look_alike(shape):
    for plan in gradient_plans(gradient_problem(shape, "trn2", "bfloat16")):
        for areas in (1, 2, 3, 5):
            one = replace(plan, iteration_areas=areas)
            looks = Counter(appearance(one, iteration) for iteration in iterations(one))
            assert sorted(iterations_of_looks(one)) == sorted(looks.values())


@by_name(GRADIENTS)
def test_rows_that_a_tap_finds_in_the_padding(shape):
    plan = next(gradient_plans(gradient_problem(shape, "trn2", "bfloat16")))
    for tap in range(shape.kernel[1]):
        places = [shape.in_position(1, row, tap) for row in range(shape.out_size(1))]
        outside = sum(not 0 <= place < shape.size[1] for place in places)
        assert pass_kinds.rows_outside(plan, tap) == outside


@pytest.mark.parametrize("machine", ["trn1", "trn3"])
@by_name(DIRECTS)
def test_jobs_and_windows_of_a_direct_plan(shape, machine, monkeypatch):
    problem = ConvProblem(shape, MACHINES[machine])
    plans = [plan for plan in direct_plans(Task.of(problem)) if not DIRECT.violations(plan)]
    assert plans
    together = [direct_cost.cost_of(plan) for plan in plans]
    direct_cost._work.cache_clear()
    direct_length._lengths.cache_clear()
    monkeypatch.setattr(AccumulationGroups, "kinds", property(tuple))
    monkeypatch.setattr(direct_cost, "loaded_windows", one_by_one)
    monkeypatch.setattr(ramp, "loaded_windows", one_by_one)
    monkeypatch.setattr(ramp, "load_order", lambda *asked: range(len(one_by_one(*asked))))
    for plan, priced in zip(plans, together, strict=True):
        assert_alike(direct_cost.cost_of(plan), priced)
    direct_cost._work.cache_clear()
    direct_length._lengths.cache_clear()


def one_by_one(groups, slots):
    held = [[], [], []]
    return [
        Loaded(group.accumulation.packing, tile, times, 1)
        for group in groups
        for times in (1, group.count - 1)
        if times
        for tile in _missing(group.accumulation, held, slots)
    ]


def test_some_of_them_are_together():
    problem = ConvProblem(DIRECTS["3-D"], TRN2)
    plan = next(iter(direct_plans(Task.of(problem))))
    kind = next(iter(direct_cost.frame_kinds(plan.reduced, plan.frames)))
    accumulations = direct_cost.grouped_accumulations(
        plan.reduced, plan.passes, kind.outputs, kind.present
    )
    assert all(isinstance(group.accumulation, TileSum) for group in accumulations)
    assert len(accumulations.kinds) < len(accumulations)
    windows = loaded_windows(accumulations, plan.slots)
    assert len(windows) < sum(one.count for one in windows)
