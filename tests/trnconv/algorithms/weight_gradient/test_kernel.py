"""Weight and bias gradients against the definition, on every kind of convolution and plan."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import nkisim
from core_pairs import every_pair
from gradient_bounds import assert_gradients, bias_bound, references_bound, weight_bound
from gradient_calls import gradients, integers, normals
from nkisim import Kernel
from nkisim.machine import TRN2
from nkisim.timing import schedule
from parser_lint import lint
from repetition import few
from tolerance import assert_within, excess
from trnconv.algorithms.weight_gradient.algorithm import WEIGHT_GRADIENT_ALGORITHM
from trnconv.algorithms.weight_gradient.candidates import candidates
from trnconv.algorithms.weight_gradient.iterations import appearance, iterations
from trnconv.algorithms.weight_gradient.kernel import weight_gradient as kernel
from trnconv.algorithms.weight_gradient.lower import lower
from trnconv.algorithms.weight_gradient.pack import pack
from trnconv.algorithms.weight_gradient.rules import violations
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import conv_shape
from trnconv.planner.shares import shared_plans
from trnconv.reference import weight_gradient as reference
from trnconv.runtime import compute
from trnconv.runtime.launch import LaunchOperands
from trnconv.runtime.simulator import SimulatedDevice
from trnconv.runtime.weight_gradient import gradient_problem, plan_for, weight_gradient

SHAPES = {
    "one of everything": conv_shape((1, 1, 1), (1, 1, 1)),
    "1-D": conv_shape((2, 16, 30), (8, 16, 5), padding=2),
    "1-D long": conv_shape((1, 40, 700), (20, 40, 3), padding=1),
    "1-D strided": conv_shape((2, 16, 131), (8, 16, 4), stride=3, padding=(1,)),
    "1-D causal": conv_shape((1, 24, 300), (24, 24, 4), padding=((3, 0),)),
    "1-D dilated": conv_shape((1, 24, 300), (24, 24, 3), dilation=9, padding=9),
    "1x1": conv_shape((2, 48, 9, 11), (40, 48, 1, 1)),
    "1x1 strided": conv_shape((2, 48, 9, 11), (40, 48, 1, 1), stride=2),
    "1x1x1": conv_shape((1, 130, 2, 5, 7), (20, 130, 1, 1, 1)),
    "same": conv_shape((1, 5, 7, 9), (6, 5, 3, 3), padding=1),
    "same, wide": conv_shape((1, 20, 5, 140), (16, 20, 3, 3), padding=1),
    "same, many rows": conv_shape((1, 130, 40, 24), (140, 130, 3, 3), padding=1),
    "valid": conv_shape((1, 130, 30, 26), (70, 130, 3, 3)),
    "padded on one side": conv_shape((1, 64, 20, 30), (64, 64, 3, 3), padding=((0, 1), (2, 0))),
    "5x5": conv_shape((1, 30, 17, 19), (33, 30, 5, 5), padding=2),
    "even kernel": conv_shape((1, 30, 17, 19), (33, 30, 2, 4), padding=((1, 0), (1, 2))),
    "strided": conv_shape((2, 40, 15, 17), (20, 40, 3, 3), stride=2, padding=1),
    "strided along rows": conv_shape((1, 40, 16, 90), (20, 40, 3, 3), stride=(2, 1), padding=1),
    "strided beyond the kernel": conv_shape((1, 8, 16, 16), (8, 8, 2, 2), stride=4),
    "dilated": conv_shape((2, 20, 17, 19), (12, 20, 3, 3), dilation=(2, 3), padding=(2, (0, 3))),
    "dilated beyond the image": conv_shape(
        (1, 12, 2, 2, 3), (8, 12, 3, 3, 3), padding=4, dilation=4
    ),
    "padded beyond the image": conv_shape((1, 20, 2, 2, 3), (12, 20, 3, 3, 3), padding=3),
    "3-D": conv_shape((1, 34, 4, 7, 9), (36, 34, 3, 3, 3), padding=(0, 1, 1)),
    "3-D causal": conv_shape((1, 24, 3, 4, 5), (16, 24, 3, 3, 3), padding=((2, 0), 1, 1)),
    "3-D strided": conv_shape((1, 40, 5, 7, 8), (20, 40, 3, 3, 3), stride=2, padding=1),
    "temporal": conv_shape((2, 70, 6, 5, 26), (70, 70, 3, 1, 1), padding=(1, 0, 0)),
    "images": conv_shape((6, 33, 7, 7), (40, 33, 3, 3), padding=1),
    "many channels in": conv_shape((1, 600, 6, 22), (8, 600, 1, 3), padding=(0, 1)),
    "many channels out": conv_shape((1, 8, 6, 22), (600, 8, 1, 3), padding=(0, 1)),
    "few channels": conv_shape((1, 3, 24, 26), (16, 3, 3, 3), padding=1),
    "groups": conv_shape((2, 32, 12, 13), (64, 4, 3, 3), padding=1, groups=8),
    "large groups": conv_shape((1, 300, 5, 27), (280, 150, 3, 3), padding=1, groups=2),
    "depthwise": conv_shape((2, 140, 9, 10), (140, 1, 3, 3), padding=1, groups=140),
    "depthwise multiplier": conv_shape((1, 20, 50), (60, 1, 4), padding=((3, 0),), groups=20),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
MIXED = [
    (name, dtype, machine)
    for number, name in enumerate(SHAPES)
    for dtype, machine in [
        (("bfloat16", "trn3"), ("float16", "trn2"), ("float32", "trn2"), ("bfloat16", "trn1"))[
            number % 4
        ]
    ]
]


@few(12)
@shapes
def test_gradients_are_the_reference_within_the_bound(shape):
    x, dy = normals(shape, "bfloat16")
    dw, db, _ = gradients(shape, x, dy)
    assert dw.dtype == db.dtype == np.float32
    assert_gradients(dw, db, x, dy, shape)


@few(8)
@pytest.mark.parametrize(("name", "dtype", "machine"), MIXED, ids=[one[0] for one in MIXED])
def test_other_types_and_machines(name, dtype, machine):
    shape = SHAPES[name]
    x, dy = normals(shape, dtype)
    dw, db, done = gradients(shape, x, dy, machine=machine)
    assert (done.plan.dtype, done.plan.machine_name) == (dtype, machine)
    assert_gradients(dw, db, x, dy, shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dw_may_have_the_type_of_x(dtype):
    shape = SHAPES["3-D"]
    x, dy = normals(shape, dtype)
    dw, db, _ = gradients(shape, x, dy, wide=False)
    assert (dw.dtype, db.dtype) == (x.dtype, np.float32)
    assert_gradients(dw, db, x, dy, shape)


MOST = 30  # plans of a shape, evenly taken


def legal_plans(shape, dtype="bfloat16", machine="trn2"):
    problem = gradient_problem(shape, machine, dtype)
    plans = [plan for plan in candidates(problem) if not violations(plan)]
    return plans[:: -(-len(plans) // MOST)]


@few(2)
@pytest.mark.parametrize(
    "name", ["images", "groups", "3-D", "temporal", "1-D long", "valid", "same, many rows"]
)
def test_every_plan_computes_the_same(name):
    """Flat, by rows and by windows; unrolled and as hardware loops of many iteration sizes."""
    shape = SHAPES[name]
    x, dy = integers(shape, "bfloat16")
    for plan in legal_plans(shape):
        dw, db, _ = gradients(shape, x, dy, plan=plan)
        assert_gradients(dw, db, x, dy, shape)


MODES = ("replicate", "reflect", "circular")
STEPS = {
    "plain": {"padding": 1},
    "strided": {"padding": 1, "stride": 2},
    "dilated": {"padding": ((1, 0), 2, (2, 1)), "stride": (1, 2, 1), "dilation": (1, 2, 1)},
    "uneven": {"padding": ((2, 0), 1, (1, 2)), "stride": (1, 2, 3)},
}


def padded_shape(modes, step):
    kernel = (2 if step != "dilated" else 3, 3, 3)
    return conv_shape((2, 8, 4, 9, 14), (6, 8, *kernel), padding_mode=modes, **STEPS[step])


@few(12)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("modes", list(product(("zeros", *MODES), repeat=3)), ids="-".join)
def test_padding_of_every_mode_is_exact_in_every_way(modes, step, dtype):
    shape = padded_shape(modes, step)
    x, dy = integers(shape, dtype)
    for plan in legal_plans(shape, dtype)[::5]:
        dw, db, _ = gradients(shape, x, dy, plan=plan)
        assert_gradients(dw, db, x, dy, shape)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("pads", [(0, 1, 1), (1, 1, 1)], ids=str)
def test_a_strip_cut_between_two_cores_is_exact(pads, looped):
    """27 strips: the one in the middle has the first channels on a core, the others on the other.

    Its frame is read by the other frame taps too, with all channels.
    """
    shape = conv_shape((1, 300, 4, 16, 16), (20, 300, 3, 3, 3), padding=pads)
    problem = gradient_problem(shape, "trn2", "bfloat16")
    halves = next(
        pair
        for pair in WEIGHT_GRADIENT_ALGORITHM.core_splits(problem)
        if pair[0].core_split.strips == (0, 27)
    )
    plan = next(
        plan
        for plan in candidates(halves[0])
        if plan.looped is looped and plan.pass_strips == 14 and not violations(plan)
    )
    plans = (plan, WEIGHT_GRADIENT_ALGORITHM.moved(plan, halves[1]))
    assert [[strip.channels for strip in half.strips()] for half in plans] == [
        [300] * 13 + [150],
        [150] + [300] * 13,
    ]
    x, dy = integers(shape, "bfloat16")
    dw, db = compute.weight_gradient(problem, LaunchOperands((x, dy)), SimulatedDevice(2, plans))
    assert_gradients(np.ascontiguousarray(dw), db, x, dy, shape)


def test_those_plans_have_padding_of_rows_in_every_way():
    """Windows and sheets; tiles of single taps where values stand above and below alone."""
    every = legal_plans(padded_shape(MODES, "plain"))
    assert {(plan.by_dma, plan.has_sheets) for plan in every} == {(False, False), (True, True)}
    above = legal_plans(padded_shape(("replicate", "reflect", "zeros"), "plain"))
    assert {(True, False, True), (True, False, False)} <= {
        (plan.by_dma, plan.has_sheets, plan.is_flat) for plan in above
    }


def test_single_taps_refuse_values_beyond_the_ends_of_rows():
    plan = next(plan for plan in legal_plans(padded_shape(("zeros",) * 3, "plain")) if plan.is_flat)
    broken = violations(replace(plan, shape=padded_shape(MODES, "plain")))
    assert any("circular padding of rows in tiles of single taps" in rule for rule in broken)


def test_iterations_that_read_other_frames_look_different():
    """The first frame of replicate padding is read twice: its iteration is no copy of the next."""
    shape = conv_shape((1, 8, 8, 6, 6), (8, 8, 3, 3, 3), padding=1, padding_mode="replicate")
    plan = next(
        plan
        for plan in candidates(gradient_problem(shape, "trn2", "bfloat16"))
        if plan.looped and plan.iteration_frames == 1 and not violations(plan)
    )
    looks = [appearance(plan, iteration) for iteration in iterations(plan)][:8]  # of the first area
    assert len(set(looks)) == 3
    assert len(set(looks[1:-1])) == 1
    x, dy = integers(shape, "bfloat16")
    dw, db, _ = gradients(shape, x, dy, plan=plan)
    assert_gradients(dw, db, x, dy, shape)


def test_those_plans_are_of_every_kind():
    plans = [plan for shape in SHAPES.values() for plan in legal_plans(shape)]
    kinds = {(plan.by_dma, plan.is_flat, plan.looped, plan.images > 1) for plan in plans}
    ways = {(True, True), (True, False), (False, False)}
    assert kinds == {(*way, *rest) for way in ways for rest in np.ndindex(2, 2)}


@pytest.mark.parametrize("by_dma", [True, False])
def test_a_loop_adds_to_what_earlier_iterations_left(by_dma):
    shape = conv_shape((1, 20, 5, 40, 26), (16, 20, 3, 3, 3), padding=(1, 1, 1))
    plan = next(
        plan
        for plan in candidates(gradient_problem(shape, "trn2", "bfloat16"))
        if (plan.by_dma, plan.looped, plan.iteration_areas) == (by_dma, True, 1)
        and len(plan.row_spans()) > 6
    )
    assert violations(plan) == []
    x, dy = integers(shape, "bfloat16")
    dw, db, done = gradients(shape, x, dy, plan=plan)
    assert_gradients(dw, db, x, dy, shape)
    assert any(sweep.looped for sweep in lower(plan).recipe.sweeps)
    timeline = schedule(done.run.trace, done.run.machine)
    assert timeline.executed_instructions > 1.5 * timeline.static_instructions


def test_more_sums_than_sbuf_holds_take_several_passes():
    shape = conv_shape((1, 1280, 3, 4), (1280, 1280, 3, 3), padding=1)
    x, dy = integers(shape, "bfloat16")
    dw, db, done = gradients(shape, x, dy)
    room = done.plan.machine.sbuf_usable_bytes_per_partition
    assert done.plan.gradient_columns * done.plan.out_tiles * 4 > room
    assert len(lower(done.plan).recipe.passes) > 1
    assert_gradients(dw, db, x, dy, shape)


def test_one_strip_at_a_time_is_the_same():
    shape = SHAPES["3-D"]
    x, dy = integers(shape, "bfloat16")
    plan = replace(plan_for(shape, "trn2", "bfloat16"), pass_strips=1)
    dw, db, _ = gradients(shape, x, dy, plan=plan)
    assert_gradients(dw, db, x, dy, shape)


LARGE = {
    "unrolled": conv_shape((1, 384, 6, 60, 104), (384, 384, 3, 3, 3), padding=(0, 1, 1)),
    "looped": conv_shape((1, 192, 6, 120, 208), (192, 192, 3, 3, 3), padding=(0, 1, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_layers_come_out_exactly(name):
    shape = LARGE[name]
    x, dy = integers(shape, "bfloat16")
    dw, db, done = gradients(shape, x, dy)
    assert done.plan.looped is (name == "looped")
    assert_gradients(dw, db, x, dy, shape)


MUTATED = ("same", "3-D causal", "strided", "dilated", "images", "valid")


@few(2)
@pytest.mark.parametrize("name", MUTATED)
def test_every_row_of_dy_matters(name):
    shape = SHAPES[name]
    x, dy = integers(shape, "bfloat16")
    exact = reference(x, dy, shape)
    bound = weight_bound(x, dy, shape, np.float32, exact)
    for row in range(shape.out_size(1)):
        changed = dy.copy()
        changed[:, :, :, row] = 0
        dw, db, _ = gradients(shape, x, changed)
        assert (excess(dw, exact, bound) > 0).any(), row
        with pytest.raises(AssertionError, match="outside their bound"):
            assert_gradients(exact.astype(np.float32), db, x, dy, shape)


@few(2)
@pytest.mark.parametrize("name", MUTATED)
def test_every_row_of_x_matters_to_the_taps_that_meet_it(name):
    shape = SHAPES[name]
    x, dy = integers(shape, "bfloat16")
    exact = reference(x, dy, shape)
    for row in range(shape.size[1]):
        changed = x.copy()
        changed[:, :, :, row] = 0
        dw, _, _ = gradients(shape, changed, dy)
        met = [
            any(row == shape.in_position(1, out, tap) for out in range(shape.out_size(1)))
            for tap in range(shape.kernel[1])
        ]
        assert (dw != exact).any((0, 1, 2, 4)).tolist() == met, row


def run_recipe(plan, recipe, x, dy):
    return nkisim.run(
        Kernel(kernel),
        x.reshape(plan.shape.batch, plan.shape.c_in, *plan.shape.size),
        dy.reshape(plan.shape.batch, plan.shape.c_out, *plan.shape.out_sizes()),
        *pack(lower(plan)),
        recipe,
        machine=plan.machine,
    ).outputs[0]


@pytest.mark.parametrize("by_dma", [True, False])
def test_a_recipe_that_drops_one_position_is_noticed(by_dma):
    """The last position of the last tile: a sum too short by one."""
    shape = SHAPES["same, many rows"]
    plan = next(plan for plan in legal_plans(shape) if plan.by_dma is by_dma and not plan.looped)
    x, dy = integers(shape, "bfloat16")
    recipe = lower(plan).recipe
    whole = run_recipe(plan, recipe, x, dy)
    last = recipe.sweeps[-1]
    block = last.blocks[-1]
    if by_dma:
        cut = replace(block, tiles=(*block.tiles[:-1], block.tiles[-1] - 1))
    else:
        cut = replace(block, tiles=block.tiles[:-1])
    sweeps = (*recipe.sweeps[:-1], replace(last, blocks=(*last.blocks[:-1], cut)))
    assert (run_recipe(plan, replace(recipe, sweeps=sweeps), x, dy) != whole).any()


def test_masks_hide_the_rows_next_door():
    shape = SHAPES["same, many rows"]
    plan = next(plan for plan in legal_plans(shape) if plan.is_flat and not plan.looped)
    assert plan.masks == (-1, 1)
    x, dy = integers(shape, "bfloat16")
    recipe = lower(plan).recipe
    exact = reference(x, dy, shape)
    whole = run_recipe(plan, recipe, x, dy)
    strips = tuple(replace(strip, dy_copy=0) for strip in recipe.passes[0].strips)
    unmasked = replace(recipe, passes=(replace(recipe.passes[0], strips=strips),))
    wrong = run_recipe(plan, unmasked, x, dy) != whole
    taps = wrong.reshape(shape.c_out, 3, 3, shape.c_in)  # column tap, row tap
    assert taps.any((0, 2, 3)).tolist() == [True, False, True]
    dw, _, _ = gradients(shape, x, dy, plan=plan)
    assert_within(dw, exact, np.zeros_like(exact))


def test_the_kernel_is_legal_nki():
    assert lint(kernel).errors == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dy": np.zeros((1, 6, 7, 8), np.float32)}, r"the output of this convolution is"),
        ({"dy": np.zeros((1, 6, 7, 9), np.float16)}, r"both must be the same. Cast one"),
        ({"groups": 4}, r"groups"),
        ({"groups": 0}, r"groups"),
        ({"kernel_shape": (3,)}, r"dimensions"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    arguments = {
        "x": np.zeros((1, 5, 7, 9), np.float32),
        "dy": np.zeros((1, 6, 7, 9), np.float32),
        "kernel_shape": (3, 3),
        "padding": 1,
        **change,
    }
    with pytest.raises(ShapeError, match=message):
        weight_gradient(**arguments)


def test_a_type_without_kernel_is_refused():
    x = np.zeros((1, 5, 9))
    with pytest.raises(UnsupportedError, match="float64: the kernels take bfloat16"):
        weight_gradient(x, x, (1,))


@few(12)
@pytest.mark.torch
@shapes
def test_gradients_are_those_of_torch(shape):
    """In float64 torch is as good as exact, so that float32 has to meet the bound against it."""
    import torch

    from conv_calls import lowest_rank

    rank = lowest_rank(shape)
    hidden = 3 - rank
    x, dy = normals(shape, "float32")
    dw, db, _ = gradients(shape, x, dy)
    flat = [p for pair in zip(shape.pad_before, shape.pad_after, strict=True) for p in pair[::-1]]
    padded = torch.nn.functional.pad(torch.tensor(x, dtype=torch.float64), flat[::-1])
    ins = shape.c_in // shape.groups
    w = torch.zeros(shape.c_out, ins, *shape.kernel[hidden:], dtype=torch.float64)
    b = torch.zeros(shape.c_out, dtype=torch.float64)
    w.requires_grad_()
    b.requires_grad_()
    conv = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
    y = conv[rank - 1](
        padded.reshape(*x.shape[:2], *padded.shape[2 + hidden :]),
        w,
        b,
        stride=shape.stride[hidden:],
        dilation=shape.dilation[hidden:],
        groups=shape.groups,
    )
    y.backward(torch.tensor(dy, dtype=torch.float64).reshape(y.shape))
    theirs = w.grad.numpy().reshape(dw.shape)
    assert_within(reference(x, dy, shape), theirs, references_bound(x, dy, shape))
    assert_within(dw, theirs, weight_bound(x, dy, shape, np.float32, theirs))
    apart = (-1, 1, 1, 1, 1)
    theirs = b.grad.numpy().reshape(apart)
    assert_within(db.reshape(apart), theirs, bias_bound(dy).reshape(apart))


@few(6)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_gradients_of_two_cores(shape):
    x, dy = normals(shape, "bfloat16")
    dw, db, _ = gradients(shape, x, dy, cores=2)
    assert_gradients(dw, db, x, dy, shape)


@few(3)
@pytest.mark.parametrize(
    "name", ["same, many rows", "3-D", "groups", "depthwise", "many channels out", "strided"]
)
@pytest.mark.parametrize("budget", [10**9, 400])
def test_gradients_of_every_cut(name, budget):
    shape = SHAPES[name]
    x, dy = integers(shape, "bfloat16")
    problem = replace(gradient_problem(shape, TRN2, "bfloat16"), budget=budget)
    tried = list(every_pair(problem))
    assert tried
    for _, plans in tried:
        device = SimulatedDevice(2, plans)
        dw, db = compute.weight_gradient(problem, LaunchOperands((x, dy)), device)
        assert_gradients(np.ascontiguousarray(dw), db, x, dy, shape)


def test_what_two_cores_cannot_share_they_both_compute():
    shape = SHAPES["one of everything"]
    one, two = shared_plans(gradient_problem(shape, TRN2, "bfloat16"))
    assert one == two
