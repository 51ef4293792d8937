"""No shape that torch takes is refused: 500 random ones, and those that were refused once.

All are planned, and short programs of them checked by nkisim without values; those that are small
enough are run, and held against the definition.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from family_calls import check_member
from gradient_bounds import assert_gradients
from gradient_calls import gradients, integers
from nkisim.machine import MACHINES, TRN2
from repetition import few
from torch_shapes import KINDS, TARGETS, is_small, problem_of, torch_shape
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape, input_gradient_shape, transposed_shape
from trnconv.planner.best import best_plan
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.launches import planned_parts
from trnconv.problem.limits import DEFAULT_BUDGET, LONGER_BUDGETS
from trnconv.reference import forward, transposed
from trnconv.runtime import convolve, convolve_transposed
from trnconv.runtime.launch import trace_plan
from trnconv.runtime.pricing import price
from trnconv.runtime.weight_gradient import gradient_problem

COUNT, CHUNK, BY_DEFAULT = 500, 25, 8
TRACED = 3_000  # static instructions: programs of more take seconds each
CHUNKS = [range(first, first + CHUNK) for first in range(0, COUNT, CHUNK)]
pytestmark = pytest.mark.plan


def failure(number):
    """What went wrong with a shape, in one line; empty if nothing did."""
    member = torch_shape(number)
    try:
        if not is_small(number):
            taken = price(problem_of(member)).plan
            if taken.cost.instructions <= TRACED:
                trace_plan(taken.plan)
        elif member.kind == WEIGHT_GRADIENT:
            x, dy = integers(member.shape, member.dtype)
            dw, db, _ = gradients(member.shape, x, dy, machine=member.machine)
            assert_gradients(dw, db, x, dy, member.shape)
        else:
            check_member(member)
    except Exception as error:  # noqa: BLE001 (all that fail are listed, with their numbers)
        return f"{member}\n    {type(error).__name__}: {error}"
    return ""


def failures(numbers):
    return [text for number in numbers if (text := failure(number))]


@pytest.mark.fuzz
@pytest.mark.parametrize("numbers", CHUNKS, ids=[f"{one.start}..{one.stop - 1}" for one in CHUNKS])
def test_none_of_500_shapes_is_refused_and_small_ones_are_right(numbers):
    failed = failures(numbers)
    assert not failed, f"{len(failed)} of {len(numbers)}:\n" + "\n".join(failed)


def test_some_of_them_by_default():
    failed = failures(range(BY_DEFAULT))
    assert not failed, "\n".join(failed)


def test_the_shapes_are_what_users_of_torch_have():
    members = [torch_shape(number) for number in range(COUNT)]
    shapes = [member.shape for member in members]
    kinds = Counter(member.kind for member in members)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 50
    assert {member.machine for member in members} == set(TARGETS)
    assert max(max(shape.size) for shape in shapes) == 4096
    assert max(max(shape.kernel) for shape in shapes) == 31
    assert max(max(shape.stride) for shape in shapes) == 16
    assert max(shape.groups for shape in shapes) == 1024
    assert sum(shape.groups > 1 for shape in shapes) > 150
    assert sum(shape.groups in (131, 251, 509, 997, 1021) for shape in shapes) > 20
    assert sum(max(shape.kernel) > 7 for shape in shapes) > 80
    assert len(set(shapes)) == COUNT


PATCHES = conv_shape((1, 3, 1024, 1024), (768, 3, 16, 16), stride=16)
DEPTHWISE_31 = conv_shape((1, 384, 56, 56), (384, 1, 31, 31), padding=15, groups=384)
GROUPS_1000 = conv_shape((2, 2000, 28, 28), (3000, 2, 3, 3), padding=1, stride=2, groups=1000)
WIDE_31 = conv_shape((1, 512, 28, 28), (512, 512, 31, 31), padding=15)
# Shapes, types, and the launches they take at most. Each was refused, or took minutes to plan.
NAMED = {
    "patches of 16": (conv_shape((1, 3, 1024, 1024), (768, 3, 16, 16), stride=16), "bfloat16", 1),
    "8 images, float32": (
        conv_shape((8, 3, 1024, 1024), (768, 3, 16, 16), stride=16),
        "float32",
        1,
    ),
    "patches of 14": (conv_shape((1, 3, 1024, 1024), (1280, 3, 14, 14), stride=14), "bfloat16", 1),
    "depthwise 31x31, dx": (input_gradient_shape(DEPTHWISE_31), "bfloat16", 3),
    "14x31": (conv_shape((1, 256, 56, 56), (256, 256, 14, 31), padding=(7, 15)), "bfloat16", 2),
    "31x31": (WIDE_31, "float32", 4),
    "31x31, dx": (input_gradient_shape(WIDE_31), "float32", 4),
    "1,000 groups, dx": (input_gradient_shape(GROUPS_1000), "bfloat16", 1),
    "to 2160x512": (transposed_shape((8, 1, 540, 128), (1, 64, 4, 4), stride=4), "float32", 1),
    "dilated": (conv_shape((1, 4, 4096, 4096), (4, 4, 31, 31), dilation=4), "float32", 1),
    "7 groups": (conv_shape((2, 448, 28, 28), (448, 64, 3, 3), padding=1, groups=7), "bfloat16", 1),
    "13 groups": (conv_shape((2, 52, 28, 28), (52, 4, 3, 3), padding=1, groups=13), "float32", 1),
    "997 groups": (conv_shape((2, 3988, 28, 28), (3988, 4, 3, 3), groups=997), "bfloat16", 2),
    "997 groups, dx": (
        input_gradient_shape(conv_shape((2, 1994, 28, 28), (2991, 2, 3, 3), groups=997)),
        "float32",
        2,
    ),
    "997 groups, transposed": (
        transposed_shape((2, 1994, 28, 28), (1994, 2, 4, 4), stride=2, groups=997),
        "float32",
        2,
    ),
    "997 channels": (conv_shape((2, 997, 28, 28), (997, 1, 3, 3), groups=997), "float32", 2),
}
GRADIENTS = {
    "1,000 groups": (GROUPS_1000, "bfloat16", 1),
    "997 groups": (conv_shape((2, 1994, 28, 28), (2991, 2, 3, 3), groups=997), "float32", 2),
}
LONG_TO_PLAN = {  # seconds each
    "depthwise 31x31": (DEPTHWISE_31, "bfloat16", 3),
    "31x31": (WIDE_31, "float32", 4),
}


def named(table):
    return pytest.mark.parametrize(("shape", "dtype", "most"), table.values(), ids=list(table))


@few(6)
@pytest.mark.parametrize("machine", TARGETS)
@named(NAMED)
def test_shapes_that_were_refused_are_planned(shape, dtype, most, machine):
    assert price(ConvProblem(shape, MACHINES[machine], dtype)).launches <= most


@few(4)
@pytest.mark.parametrize("machine", TARGETS)
@named(GRADIENTS)
def test_weight_gradients_that_were_refused_are_planned(shape, dtype, most, machine):
    assert price(gradient_problem(shape, machine, dtype)).launches <= most


@pytest.mark.fuzz
@pytest.mark.parametrize("machine", TARGETS)
@named(LONG_TO_PLAN)
def test_gradients_of_large_filters_are_planned(shape, dtype, most, machine):
    assert price(gradient_problem(shape, machine, dtype)).launches <= most


@pytest.mark.fuzz
@pytest.mark.parametrize("machine", TARGETS)
def test_a_depthwise_31x31_is_planned(machine):
    assert price(ConvProblem(DEPTHWISE_31, MACHINES[machine])).launches == 1


def arrays(shape, *, upward=False):
    """x, w and bias in integers that float32 sums exactly."""
    rng = np.random.default_rng(shape.c_in)
    ends = (shape.c_in, shape.c_out) if upward else (shape.c_out, shape.c_in)
    sizes = (
        (shape.batch, shape.c_in, *shape.size),
        (ends[0], ends[1] // shape.groups, *shape.kernel),
        (shape.c_out,),
    )
    return [rng.integers(-2, 3, size).astype(np.float32) for size in sizes]


def test_values_of_blocks_smaller_than_a_bank():
    """Patches of 16x16: a bank of them would be a window of more elements than an operand has."""
    shape = conv_shape((1, 3, 640, 512), (8, 3, 16, 16), stride=16)
    x, w, bias = arrays(shape)
    done = convolve(x[:, :, 0], w[:, :, 0], bias, stride=16)
    _, rows, columns = done.plans[0][0].block()
    assert rows * columns < TRN2.psum_bank_fp32_elems
    np.testing.assert_array_equal(done.y[:, :, None], forward(x, w, bias, shape))


@few(1)
@pytest.mark.parametrize("groups", [1, 4])
def test_values_of_weights_that_are_streamed_in_parts(groups):
    """31x31 matrices of one window are more than SBUF holds."""
    shape = conv_shape((1, 64, 17, 16), (64, 64 // groups, 31, 31), padding=15, groups=groups)
    x, w, bias = arrays(shape)
    done = convolve(x[:, :, 0], w[:, :, 0], bias, padding=15, groups=groups)
    assert done.plans[0][0].streamed
    np.testing.assert_array_equal(done.y[:, :, None], forward(x, w, bias, shape))


def test_values_of_groups_of_a_prime_number():
    shape = conv_shape((2, 262, 5, 6), (393, 2, 3, 3), padding=1, groups=131)
    x, w, bias = arrays(shape)
    done = convolve(x[:, :, 0], w[:, :, 0], bias, padding=1, groups=131)
    assert [plans[0].shape.groups for plans in done.plans] == [126, 5]
    np.testing.assert_array_equal(done.y[:, :, None], forward(x, w, bias, shape))
    up = transposed_shape((2, 262, 4, 5), (262, 3, 4, 4), stride=2, groups=131)
    x, w, bias = arrays(up, upward=True)
    done = convolve_transposed(x, w, bias, up)
    assert len(done.runs) == 2
    np.testing.assert_array_equal(done.y, transposed(x, w, bias, up))
    x, dy = integers(shape, "bfloat16")
    dw, db, _ = gradients(shape, x, dy)
    assert_gradients(dw, db, x, dy, shape)


def budgets_tried(shape, accepts, budget=DEFAULT_BUDGET):
    """Channels, groups and budgets that are planned for, if those are."""
    tried, problem = [], ConvProblem(shape, TRN2, budget=budget)

    def plan(problem):
        asked = (problem.shape.c_out, problem.shape.groups, problem.budget)
        tried.append(asked)
        if not accepts(*asked):
            raise PlanError("too long")
        return asked

    taken = [planned for _, planned in planned_parts(problem, plan)]
    return tried, taken


def test_tiles_are_split_before_programs_get_longer_and_halved_after():
    shape = conv_shape((1, 8, 9, 9), (300, 8, 3, 3))
    longer, longest = LONGER_BUDGETS
    _, taken = budgets_tried(shape, lambda outs, *_: outs <= 128)
    assert taken == [(128, 1, DEFAULT_BUDGET), (128, 1, DEFAULT_BUDGET), (44, 1, DEFAULT_BUDGET)]
    tried, taken = budgets_tried(shape, lambda outs, _, budget: outs <= 128 and budget > longer)
    assert tried.count((128, 1, longest)) == 1
    assert [budget for *_, budget in taken] == [longest] * 3
    _, taken = budgets_tried(shape, lambda outs, *_: outs <= 50)
    assert sum(outs for outs, *_ in taken) == 300
    with pytest.raises(PlanError, match="too long"):
        budgets_tried(shape, lambda *_: False)


def test_what_has_no_program_as_short_as_asked_has_one_of_the_usual_length():
    shape = conv_shape((1, 64, 9, 9), (100, 64, 3, 3))
    tried, taken = budgets_tried(shape, lambda *asked: asked[-1] == DEFAULT_BUDGET, 6_000)
    assert tried == [(100, 1, 6_000), (100, 1, DEFAULT_BUDGET)]
    assert taken == tried[1:]


def test_groups_are_split_by_whole_arrays():
    shape = conv_shape((1, 512, 9, 9), (512, 8, 3, 3), groups=64)  # 16 of them fill the array
    _, taken = budgets_tried(shape, lambda _, groups, __: groups <= 20)
    assert [groups for _, groups, _ in taken] == [16, 16, 16, 16]
    _, taken = budgets_tried(shape, lambda *asked: asked[-1] > DEFAULT_BUDGET)
    assert [groups for _, groups, _ in taken] == [16, 16, 16, 16]


def test_the_first_refusal_is_told_not_that_of_the_smallest_part():
    def plan(problem):
        raise PlanError(f"{problem.shape.c_out} channels")

    shape = conv_shape((1, 8, 9, 9), (300, 8, 3, 3))
    with pytest.raises(PlanError, match="300 channels"):
        list(planned_parts(ConvProblem(shape, TRN2), plan))


@pytest.mark.parametrize("machine", TARGETS)
def test_what_hbm_does_not_hold_is_refused_as_such(machine):
    machine = MACHINES[machine]
    rows = machine.hbm_bytes // (2 * 2 * 64 * 4096)  # x and y of 2 bytes fill HBM
    shape = conv_shape((1, 64, rows, 4096), (64, 64, 3, 3), padding=1)
    room = f"the HBM of {machine.name} has {machine.hbm_bytes // 2**30} GiB"
    said = rf"conv2d\(input \[1, 64, {rows}, 4096\], weight \[64, 64, 3, 3\], padding=1\).*{room}"
    with pytest.raises(PlanError, match=said):
        price(ConvProblem(shape, machine))
    half = replace(shape, size=(1, rows // 2, 4096))
    assert price(ConvProblem(half, machine)).launches > 1


def test_refusals_name_the_arguments_of_the_call():
    shape = conv_shape((2, 6, 9, 9), (12, 3, 3, 5), stride=(1, 2), padding=((1, 0), 2), groups=2)
    problem = ConvProblem(shape, TRN2, algorithms=("winograd",))
    with pytest.raises(PlanError) as refused:
        best_plan(problem)
    words = str(refused.value)
    call = (
        "conv2d(input [2, 6, 9, 9], weight [12, 3, 3, 5], stride=(1, 2), padding=[(1, 0), (2, 2)],"
        " groups=2), bfloat16, on trn2: "
    )
    assert words.startswith(call)
    assert "ConvShape" not in words
    with pytest.raises(PlanError, match="the weight gradient of conv2d"):
        best_plan(replace(problem, direction=WEIGHT_GRADIENT))
