"""Sheets: what taps share, which positions go where, and gradients that come out exactly."""

from dataclasses import replace

import numpy as np
import pytest

import nkisim
from gradient_bounds import assert_gradients
from gradient_calls import gradients, integers
from nkisim import Kernel
from parser_lint import lint
from repetition import few
from trnconv.algorithms.weight_gradient import sheet_tiles
from trnconv.algorithms.weight_gradient.algorithm import WEIGHT_GRADIENT_ALGORITHM
from trnconv.algorithms.weight_gradient.candidates import candidates
from trnconv.algorithms.weight_gradient.cost import cost_of
from trnconv.algorithms.weight_gradient.kernel import weight_gradient as kernel
from trnconv.algorithms.weight_gradient.lower import lower
from trnconv.algorithms.weight_gradient.pack import pack
from trnconv.algorithms.weight_gradient.rules import violations
from trnconv.algorithms.weight_gradient.sheet_blocks import cut_pieces, piece_runs, sheet_tile_sizes
from trnconv.algorithms.weight_gradient.sheets import (
    ColumnTap,
    RowSteps,
    SheetSpan,
    column_taps,
    existing_run,
    joined_taps,
    row_steps,
    sheet_column_runs,
    sheet_shifts,
    sheet_span,
)
from trnconv.geometry import conv_shape
from trnconv.runtime.compute import weight_gradient
from trnconv.runtime.launch import LaunchOperands
from trnconv.runtime.simulator import SimulatedDevice
from trnconv.runtime.weight_gradient import gradient_problem, plan_for, time_weight_gradient

SHAPES = {
    "3-D, stride 2": conv_shape((1, 40, 5, 16, 16), (20, 40, 3, 3, 3), stride=2, padding=1),
    "padded after": conv_shape((2, 24, 14, 18), (16, 24, 3, 3), stride=2, padding=((0, 1), (0, 1))),
    "4x4": conv_shape((1, 16, 15, 20), (8, 16, 4, 4), stride=2, padding=1),
    "two strides": conv_shape((1, 8, 17, 24), (8, 8, 3, 3), stride=(3, 2), padding=1),
    "stride and dilation": conv_shape(
        (1, 8, 15, 24), (8, 8, 3, 3), stride=(2, 2), dilation=(2, 2), padding=2
    ),
    "dilated by three": conv_shape((1, 8, 16, 24), (8, 8, 2, 3), stride=2, dilation=3, padding=3),
    "rows beyond the kernel": conv_shape(
        (1, 8, 17, 12), (8, 8, 1, 3), stride=(4, 2), padding=(0, 1)
    ),
    "1-D": conv_shape((2, 16, 130), (8, 16, 5), stride=2, padding=2),
    "stride 1": conv_shape((1, 20, 4, 11, 13), (12, 20, 3, 3, 3), padding=1),
    "groups": conv_shape((1, 32, 12, 14), (32, 4, 3, 3), stride=2, padding=1, groups=8),
    "images": conv_shape((6, 33, 8, 8), (40, 33, 3, 3), stride=2, padding=1),
    "without padding": conv_shape((1, 8, 13, 16), (8, 8, 3, 3), stride=2),
    "valid": conv_shape((1, 8, 3, 9, 13), (8, 8, 2, 3, 3)),
    "many channels": conv_shape((1, 530, 4, 8), (8, 530, 3, 3), stride=2, padding=1),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))


def sheet_plans(shape, most=12):
    problem = gradient_problem(shape, "trn2", "bfloat16")
    plans = [plan for plan in candidates(problem) if plan.has_sheets and not violations(plan)]
    return plans[:: max(1, -(-len(plans) // most))]


@few(5)
@shapes
def test_every_plan_of_sheets_is_exact(shape):
    x, dy = integers(shape, "bfloat16")
    plans = sheet_plans(shape)
    assert plans
    for plan in plans:
        dw, db, _ = gradients(shape, x, dy, plan=plan)
        assert_gradients(dw, db, x, dy, shape)


CUTS = [(8, 8, 1), (8, 8, 2), (8, 3, 2), (4, 4, 2), (8, 5, 3), (3, 8, 2), (5, 8, 2), (7, 5, 4)]


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize(("rows", "piece", "apart"), CUTS)
def test_every_cut_is_exact(rows, piece, apart, looped):
    """Last pieces are narrower, last blocks lower, last tiles have a row less."""
    shape = SHAPES["3-D, stride 2"]
    plan = replace(
        sheet_plans(shape)[0], rows=rows, piece=piece, apart=apart, looped=looped, iteration_areas=1
    )
    assert violations(plan) == []
    x, dy = integers(shape, "bfloat16")
    dw, db, _ = gradients(shape, x, dy, plan=plan)
    assert_gradients(dw, db, x, dy, shape)


def test_the_planner_takes_sheets_for_strided_layers_on_one_core_and_on_two():
    shape = conv_shape((1, 96, 5, 32, 48), (96, 96, 3, 3, 3), stride=2, padding=1)
    assert plan_for(shape, "trn2", "bfloat16").has_sheets
    x, dy = integers(shape, "bfloat16")
    dw, db, done = gradients(shape, x, dy, cores=2)
    assert done.plan.has_sheets
    assert_gradients(dw, db, x, dy, shape)


def test_a_tap_reads_its_phase_of_a_pair_of_columns():
    """Output column w meets columns 2w - 1, 2w and 2w + 1: pairs w - 1, w and w."""
    shape = SHAPES["3-D, stride 2"]
    assert sheet_span(shape) == SheetSpan(0, 8)
    assert column_taps(shape) == (ColumnTap(1, 1), ColumnTap(0, 0), ColumnTap(0, 1))
    assert sheet_shifts(shape) == (0, 1)


def test_taps_that_meet_the_same_dy_are_one_matmul():
    shape = SHAPES["3-D, stride 2"]
    assert joined_taps(shape) == ((0, 1), (1, 2))
    assert joined_taps(SHAPES["padded after"]) == ((0, 2), (2, 1))
    assert joined_taps(SHAPES["stride 1"]) == ((0, 1), (1, 1), (2, 1))
    plan = sheet_plans(shape)[0]
    assert [strip.columns for strip in plan.strips()] == [120, 240] * 3
    halved = replace(plan, strips_of=(0, 18))
    assert [strip.columns for strip in halved.strips()] == [120] * 9
    assert len(sheet_plans(SHAPES["many channels"])[0].strips()) == 3 * 3 * 2  # a bank has 512


@pytest.mark.parametrize("name", ["3-D, stride 2", "padded after", "groups"])
@pytest.mark.parametrize("looped", [False, True])
def test_every_cut_of_two_cores_is_exact(name, looped):
    """Half of the output channels, of the input channels and of the strips."""
    shape = SHAPES[name]
    x, dy = integers(shape, "bfloat16")
    problem = gradient_problem(shape, "trn2", "bfloat16")
    plan = next(plan for plan in sheet_plans(shape) if plan.looped is looped)
    cuts = [
        halves
        for halves in WEIGHT_GRADIENT_ALGORITHM.core_splits(problem)
        if not any(half % 2 for half in halves[0].core_split.strips or ())
    ]
    assert len(cuts) > 1
    for halves in cuts:
        plans = tuple(
            _with_own_outs(WEIGHT_GRADIENT_ALGORITHM.moved(plan, half)) for half in halves
        )
        assert [violations(half) for half in plans] == [[], []]
        device = SimulatedDevice(2, plans)
        dw, db = weight_gradient(problem, LaunchOperands((x, dy)), device)
        assert_gradients(np.ascontiguousarray(dw), db, x, dy, shape)


def _with_own_outs(plan):
    return replace(plan, outs=plan.most_outs)


def test_padding_after_moves_dy_the_other_way():
    """Columns 2w, 2w + 1 and 2w + 2: pairs w, w and w + 1."""
    shape = SHAPES["padded after"]
    assert column_taps(shape) == (ColumnTap(0, 0), ColumnTap(0, 1), ColumnTap(-1, 0))


def test_without_padding_sheets_are_wider_than_the_output():
    """Pairs 0 to 4 of columns: 4 outputs meet those that begin there, and the one after."""
    shape = conv_shape((1, 8, 10, 10), (8, 8, 3, 3), stride=2)
    assert sheet_span(shape) == SheetSpan(0, 5)
    assert sheet_shifts(shape) == (0, -1)


def test_padding_with_values_is_columns_of_a_sheet():
    shape = conv_shape((1, 8, 10, 10), (8, 8, 3, 3), padding=1, padding_mode="reflect")
    assert sheet_span(shape) == SheetSpan(-1, 12)
    runs = [(run.at, run.end, run.first) for run in sheet_column_runs(shape)]
    assert runs == [(0, 1, 1), (1, 11, 0), (11, 12, 8)]


@pytest.mark.parametrize(
    ("stride", "dilation", "steps", "tiles"),
    [(1, 1, RowSteps(1, 1, 1), 6), (2, 1, RowSteps(1, 2, 1), 9), (2, 2, RowSteps(2, 1, 1), 6)],
)
def test_row_taps_are_tiles_of_the_same_sheet(stride, dilation, steps, tiles):
    shape = conv_shape((1, 8, 30, 8), (8, 8, 3, 3), stride=stride, dilation=dilation, padding=2)
    assert row_steps(shape) == steps
    assert steps.tiles(4, 3) == tiles


def test_tiles_have_every_nth_row_of_a_piece():
    plan = replace(sheet_plans(SHAPES["3-D, stride 2"])[0], rows=8, piece=5, apart=3)
    # 8 columns are pieces of 5 and 3; rows 0 3 6, 1 4 7 and 2 5
    assert sheet_tile_sizes(plan, 8) == (15, 15, 10, 9, 9, 6)


def test_pieces_that_reach_beyond_a_row_are_on_their_own():
    plan = replace(sheet_plans(SHAPES["3-D, stride 2"])[0], piece=2)
    for first, expected in ((1, [(0, 3, 0, 2), (3, 1, 0, 1)]), (-1, [(0, 1, 1, 1), (1, 3, 0, 2)])):
        runs = piece_runs(plan, existing_run(first, 8, 8))
        assert [(run.piece, run.pieces, run.first, run.count) for run in runs] == expected
        assert cut_pieces(plan, runs) == [3 if first > 0 else 0]


def moved_copies_alike(recipe):
    """The same recipe with dy not moved for any strip."""
    passes = tuple(
        replace(one, strips=tuple(replace(strip, dy_copy=0) for strip in one.strips))
        for one in recipe.passes
    )
    return replace(recipe, passes=passes)


def test_moved_copies_of_dy_matter_to_their_taps():
    shape = SHAPES["3-D, stride 2"]
    plan = next(plan for plan in sheet_plans(shape) if not plan.looped)
    x, dy = integers(shape, "bfloat16")
    lowered = lower(plan)
    found = [
        nkisim.run(Kernel(kernel), x, dy, *pack(lowered), recipe, machine="trn2").outputs[0]
        for recipe in (lowered.recipe, moved_copies_alike(lowered.recipe))
    ]
    taps = (found[0] != found[1]).reshape(20, 3, 3, 3, 40)  # frame, column, row tap, channel
    assert taps.any((0, 1, 3, 4)).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": 4}, "4 of 8 columns in blocks of sheets"),
        ({"piece": 9}, "pieces of 9 columns"),
        ({"apart": 9}, "rows 9 apart"),
        ({"machine_name": "trn1"}, "DMA that transposes on trn1"),
        ({"dtype": "float32"}, "2 bytes an element"),
        (
            {"shape": conv_shape((1, 40, 5, 16, 15), (20, 40, 3, 3, 3), stride=2, padding=1)},
            "sheets of every 2-th of 15 columns",
        ),
        (
            {
                "shape": conv_shape(
                    (1, 40, 5, 16, 16),
                    (20, 40, 3, 3, 3),
                    stride=2,
                    padding=1,
                    padding_mode="circular",
                )
            },
            "circular padding: what stands there does not lie together",
        ),
        ({"slots": 10**6}, "SBUF of trn2 has"),
    ],
)
def test_a_broken_rule_is_named(change, message):
    plan = sheet_plans(SHAPES["3-D, stride 2"])[0]
    assert violations(plan) == []
    assert any(message in rule for rule in violations(replace(plan, **change)))


def test_a_tile_has_no_more_positions_than_partitions():
    shape = conv_shape((1, 8, 60, 60), (8, 8, 3, 3), stride=2, padding=1)
    plan = replace(sheet_plans(shape)[0], rows=30, piece=15, apart=3)
    assert any("150 positions of a tile" in rule for rule in violations(plan))


LAYERS = {
    "96, stride 2": conv_shape((1, 96, 5, 96, 208), (96, 96, 3, 3, 3), stride=2, padding=1),
    "384, stride 2": conv_shape((1, 384, 9, 60, 104), (384, 384, 3, 3, 3), stride=2, padding=1),
    "4x4": conv_shape((4, 64, 128, 128), (128, 64, 4, 4), stride=2, padding=1),
    "96, 2-D": conv_shape((1, 96, 160, 160), (96, 96, 3, 3), stride=2, padding=1),
}


@few(1)
@pytest.mark.parametrize("name", LAYERS)
def test_the_estimate_is_the_timeline_within_a_tenth(name):
    plan = plan_for(LAYERS[name], "trn2", "bfloat16")
    assert plan.has_sheets
    timeline = time_weight_gradient(LAYERS[name], plan=plan)
    cost = cost_of(plan)
    assert cost.total_ns == pytest.approx(timeline.makespan_ns, rel=0.1)
    assert timeline.compiler_instructions <= cost.instructions


def test_sheets_take_half_the_time_of_transposes_on_the_tensor_engine():
    """What they are for: 96 channels that leave the array idle while it transposes."""
    shape = LAYERS["96, stride 2"]
    problem = gradient_problem(shape, "trn2", "bfloat16")
    others = [plan for plan in candidates(problem) if not plan.has_sheets and not violations(plan)]
    best = min(others, key=lambda plan: cost_of(plan).total_ns)
    ours = time_weight_gradient(shape, plan=plan_for(shape, "trn2", "bfloat16")).makespan_ns
    assert ours < 0.6 * time_weight_gradient(shape, plan=best).makespan_ns


def test_the_kernel_of_sheets_is_legal_nki():
    for part in (sheet_tiles.held_sheet, sheet_tiles.load_moved_dy, sheet_tiles.of_sheet):
        assert lint(part).errors == ()


def test_an_empty_piece_of_dy_is_zeros():
    """A tap so far out that a whole piece of the moved dy does not exist."""
    shape = conv_shape((1, 8, 6, 12), (8, 8, 1, 9), padding=(0, 4))
    plan = replace(sheet_plans(shape)[0], piece=3)
    assert violations(plan) == []
    held = [piece_runs(plan, existing_run(shift, 12, 12)) for shift in plan.shifts]
    assert any({run.piece for run in runs} != {0, 1, 2, 3} for runs in held if len(runs) > 1)
    x, dy = integers(shape, "bfloat16")
    dw, db, _ = gradients(shape, x, dy, plan=plan)
    assert_gradients(dw, db, x, dy, shape)
    assert np.isfinite(dw).all()
