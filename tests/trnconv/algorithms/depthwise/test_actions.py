"""The cost model of a depthwise plan counts the steps that its lowering writes."""

from collections import Counter
from itertools import pairwise
from math import prod

import pytest

from nkisim.machine import MACHINES
from trnconv.algorithms.depthwise import lower
from trnconv.algorithms.depthwise.actions import (
    Action,
    Transfer,
    end_transfers,
    piece_actions,
    transfers,
)
from trnconv.algorithms.depthwise.candidates import candidates
from trnconv.algorithms.depthwise.plan import corners
from trnconv.algorithms.depthwise.recipe import LOAD, OUT, PSUM, STORE, WIDE, WINDOW
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem

SHAPES = {
    "plain": conv_shape((1, 8, 30, 30), (8, 1, 3, 3), padding=1, groups=8),
    "wider than the image": conv_shape((1, 4, 9, 11), (4, 1, 7, 15), padding=(3, 9), groups=4),
    "dilated": conv_shape((1, 5, 40, 40), (5, 1, 7, 7), padding=9, dilation=3, groups=5),
    "strided": conv_shape((1, 6, 64, 50), (12, 1, 5, 4), stride=(2, 3), padding=2, groups=6),
    "single columns": conv_shape((1, 3, 700, 3), (3, 1, 5, 3), stride=(16, 1), groups=3),
    "3-D": conv_shape((2, 3, 9, 20, 30), (3, 1, 3, 3, 3), padding=1, groups=3),
    "outputs that no tap meets": conv_shape((1, 4, 8, 900), (4, 1, 1, 1), padding=9, groups=4),
    "long": conv_shape((1, 2, 5000), (2, 1, 9), padding=4, groups=2),
}


def plans(shape):
    return list(candidates(ConvProblem(shape, MACHINES["trn2"])))


def with_gpsimd(shape):
    return [plan for plan in plans(shape) if plan.gpsimd_pieces]


def elems(place):
    return prod(count for _, count in place.pattern[1:])


def action(step):
    kinds = {place.kind for place in (step.dst, step.data, step.other)}
    apart = step.data.pattern[-1][0] if step.data.kind in (WINDOW, OUT) else 0
    return Action(step.op, elems(step.dst), apart, PSUM in kinds)


def run(place):
    """Elements that follow each other, by looking at where each one is."""
    offsets = [0]
    for stride, count in place.pattern[1:]:
        offsets = [at + stride * index for at in offsets for index in range(count)]
    joins = [after - before == 1 for before, after in pairwise(offsets)]
    return [*joins, False].index(False) + 1


def written(plan, kind):
    """Steps of every piece of the first tile of lines."""
    writer = lower._Writer(plan)
    for block in lower._blocks(plan):
        if block.first_line == 0:
            for piece in lower._pieces(plan, block):
                work = writer.work(piece, kind, 0)
                yield from (*work.begin, *(step for tap in work.taps for step in tap), *work.finish)


@pytest.mark.parametrize("kind", [PSUM, WIDE])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_actions_are_the_steps_of_all_pieces(shape, kind):
    for plan in plans(shape) if kind == PSUM else with_gpsimd(shape):
        assert piece_actions(plan, kind) == Counter(map(action, written(plan, kind)))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_transfers_are_the_loads_and_stores(shape):
    for plan in plans(shape):
        steps = [step for step in lower.recipe_of(plan).steps if step.op in (LOAD, STORE)]
        moved = [
            Transfer(elems(step.dst), run(step.data if step.op == LOAD else step.dst))
            for step in steps
        ]
        counted = transfers(plan)
        assert {one: plan.line_tiles * count for one, count in counted.items()} == Counter(moved)
        assert end_transfers(plan) == (moved[0], moved[-1])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_the_largest_window_and_the_corners_are_those_of_all_blocks(shape):
    for plan in plans(shape):
        blocks = plan.blocks()
        assert plan.window_elems() == max(plan.window(block).elems for block in blocks)
        assert corners(plan) == [blocks[0], blocks[-1]]
