"""Fast plans of every kind, by name: sizes, padding, and what the plan decides."""

from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.algorithms.winograd.rules import violations
from trnconv.geometry import conv_shape

FRAMES, ROWS = 0, 1
_BY_FRAMES = {"axis": FRAMES, "units": 2, "rows": 4, "columns": 99, "x_slots": 6, "v_slots": 2}
_BY_ROWS = {"axis": ROWS, "units": 4, "rows": 4, "columns": 99, "x_slots": 6, "v_slots": 6}
_PAIR = {"units": 1, "body_blocks": 2}
_FOUR = {"transform": "F(4,3)"}
_LATE = _FOUR | {"streamed": 4, "x_tiles": 2, "columns": 6}
_COLUMNS = {"stacked_columns": 4}
_PAIRS = _BY_ROWS | {"frame_pairs": True, "x_slots": 8, "v_slots": 2, "body_blocks": 2}

CASES = {
    "frames": ((1, 32, 6, 8, 10), (32, 32, 3, 3, 3), (0, 1, 1), _BY_FRAMES),
    "frames_in_column_blocks": (
        (1, 96, 6, 9, 11),
        (96, 96, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 4, "pieces": (2, 4)},
    ),
    "rests_of_channels": (
        (1, 192, 6, 5, 11),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "pieces": (1, 1, 4)},
    ),
    "a_last_block_of_one_column": (
        (1, 192, 6, 5, 9),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 4},
    ),
    "rests_in_pairs_of_rows": (
        (1, 192, 6, 5, 11),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "paired_rows": True},
    ),
    "rests_in_column_tiles": (
        (1, 192, 6, 5, 11),
        (192, 192, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "machine_name": "trn2+column-tiles"},
    ),
    "four_columns": (
        (1, 160, 6, 5, 11),
        (160, 160, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _COLUMNS | {"columns": 8, "pieces": (1, 1, 4)},
    ),
    "four_columns_of_four_rows": (
        (2, 40, 4, 13, 11),
        (144, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | _FOUR | _COLUMNS | {"columns": 4, "streamed": 4},
    ),
    "four_columns_in_column_tiles": (
        (1, 40, 6, 5, 11),
        (160, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _COLUMNS | {"machine_name": "trn2+column-tiles"},
    ),
    "causal": ((2, 40, 4, 6, 11), (140, 40, 3, 3, 3), ((2, 0), 1, 1), _BY_FRAMES | {"columns": 6}),
    "taps_along_frames_only": ((1, 40, 6, 7, 11), (70, 40, 3, 1, 1), 0, _BY_FRAMES),
    "frames_in_a_loop": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"looped": True},
    ),
    "one_loop_over_spans": (
        (2, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"columns": 6, "looped": True, "spans": 3, "body_blocks": 6},
    ),
    "one_loop_over_several_kinds_of_frames": (
        (1, 40, 8, 26, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6, "looped": True, "spans": 2, "body_blocks": 8},
    ),
    "one_loop_over_rows": (
        (1, 40, 4, 45, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | {"columns": 6, "pieces": (1, 3), "looped": True, "spans": 2, "body_blocks": 4},
    ),
    "frames_from_an_odd_one": (
        (1, 40, 7, 9, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"units": 3, "body_blocks": 2, "x_slots": 4, "anchor": 1},
    ),
    "whole_sums": (
        (1, 40, 6, 9, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"midgroup": False},
    ),
    "groups_of_weights": (
        (1, 40, 6, 9, 11),
        (260, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"group": 2},
    ),
    "streamed_weights": (
        (1, 40, 6, 9, 11),
        (200, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | {"streamed": 3},
    ),
    "weights_streamed_in_parts": (
        (1, 640, 4, 6, 10),
        (32, 640, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _PAIR | {"x_slots": 8, "streamed": 2},
    ),
    "rows": ((1, 40, 4, 7, 11), (70, 40, 3, 3, 3), ((2, 0), 1, 1), _BY_ROWS | {"columns": 6}),
    "rows_of_one_frame": (
        (1, 150, 3, 7, 11),
        (70, 150, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _PAIR | {"x_slots": 3},
    ),
    "image": (
        (2, 40, 1, 7, 12),
        (70, 40, 1, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _PAIR | {"x_slots": 2, "v_slots": 2},
    ),
    "rows_in_a_loop": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | {"looped": True},
    ),
    "rows_from_an_odd_one": (
        (1, 40, 6, 9, 11),
        (70, 40, 3, 3, 3),
        (0, (2, 1), 1),
        _BY_ROWS | {"anchor": 3},
    ),
    "no_padding": ((1, 20, 6, 8, 9), (33, 20, 3, 3, 3), 0, _BY_ROWS | {"rows": 2}),
    "four_frames": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _PAIR | _FOUR,
    ),
    "four_frames_in_a_loop": (
        (1, 40, 10, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _FOUR | {"x_slots": 10, "looped": True},
    ),
    "four_frames_from_the_third": (
        (1, 40, 7, 9, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _FOUR | {"anchor": 3, "x_slots": 10},
    ),
    "four_rows": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _FOUR | {"rows": 8, "streamed": 4},
    ),
    "frames_that_share_sums": (
        (1, 40, 6, 18, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS | _FOUR | {"units": 2, "unit_frames": 2, "v_slots": 2, "columns": 6},
    ),
    "late_inputs_of_frames": (
        (1, 416, 6, 9, 11),
        (70, 416, 3, 3, 3),
        (0, 1, 1),
        _BY_FRAMES | _PAIR | _LATE,
    ),
    "late_inputs_of_rows": (
        (1, 512, 3, 10, 11),
        (32, 512, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | _LATE | {"units": 3, "x_slots": 1, "v_slots": 10, "body_blocks": 2},
    ),
    "late_inputs_in_a_loop": (
        (1, 512, 4, 24, 11),
        (40, 512, 3, 3, 3),
        (0, 1, 1),
        _BY_ROWS
        | _PAIR
        | _LATE
        | {"unit_frames": 2, "x_slots": 4, "v_slots": 2, "pieces": (1, 3), "looped": True},
    ),
    "pairs_of_frames": ((1, 40, 6, 8, 11), (70, 40, 3, 3, 3), (0, 1, 1), _PAIRS),
    "pairs_of_four_rows": (
        (1, 40, 6, 13, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _PAIRS | _FOUR | {"units": 12, "body_blocks": 1, "pieces": (2, 4)},
    ),
    "pairs_of_an_odd_number": (
        (2, 150, 3, 9, 11),
        (140, 150, 3, 3, 3),
        1,
        _PAIRS | _FOUR | {"units": 8, "x_slots": 6, "columns": 6, "streamed": 4},
    ),
    "pairs_of_whole_sums": (
        (1, 40, 6, 8, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _PAIRS | {"midgroup": False, "gpsimd_pairs": True},
    ),
    "pairs_in_a_loop": (
        (1, 40, 6, 37, 11),
        (70, 40, 3, 3, 3),
        (0, 1, 1),
        _PAIRS | {"units": 8, "x_slots": 6, "columns": 6, "looped": True, "gpsimd_pairs": True},
    ),
    "pairs_of_four_columns": (
        (1, 160, 5, 9, 11),
        (130, 160, 3, 3, 3),
        (0, 1, 1),
        _PAIRS | _COLUMNS | {"units": 8, "x_slots": 6, "columns": 8},
    ),
    "late_pairs_in_a_loop": (
        (1, 512, 4, 24, 11),
        (200, 512, 3, 3, 3),
        (0, 1, 1),
        _PAIRS | _LATE | {"x_slots": 2, "looped": True, "gpsimd_pairs": True},
    ),
}


_EVERYWHERE = ("replicate", "replicate", "replicate")

REPLICATED = {
    "causal_frames": (
        (2, 40, 4, 9, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6},
        _EVERYWHERE,
    ),
    "frames_on_both_sides": (
        (1, 40, 4, 6, 11),
        (70, 40, 3, 3, 3),
        1,
        _BY_FRAMES | {"pieces": (1, 3)},
        _EVERYWHERE,
    ),
    "two_of_each": (
        (1, 40, 4, 6, 11),
        (70, 40, 3, 3, 3),
        (0, (2, 1), (1, 2)),
        _BY_FRAMES | _PAIR | {"x_slots": 8},
        _EVERYWHERE,
    ),
    "frames_in_a_loop": (
        (1, 40, 4, 37, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"looped": True},
        _EVERYWHERE,
    ),
    "rests_of_channels": (
        (1, 192, 4, 5, 11),
        (192, 192, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6, "paired_rows": True},
        _EVERYWHERE,
    ),
    "four_columns": (
        (1, 160, 4, 37, 11),
        (160, 160, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | _COLUMNS | {"columns": 8, "looped": True},
        _EVERYWHERE,
    ),
    "three_copies": (
        (1, 32, 4, 6, 11),
        (32, 32, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | {"columns": 6},
        _EVERYWHERE,
    ),
    "rows": (
        (1, 150, 3, 7, 11),
        (70, 150, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | {"units": 3, "x_slots": 5, "v_slots": 10, "columns": 6, "body_blocks": 2},
        _EVERYWHERE,
    ),
    "rows_in_a_loop": (
        (1, 64, 4, 37, 11),
        (70, 64, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | {"looped": True},
        _EVERYWHERE,
    ),
    "rows_from_an_odd_one": (
        (1, 40, 6, 9, 11),
        (70, 40, 3, 3, 3),
        (0, (2, 1), 1),
        _BY_ROWS | {"anchor": 3},
        _EVERYWHERE,
    ),
    "columns_only": (
        (1, 40, 4, 7, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS,
        ("zeros", "zeros", "replicate"),
    ),
    "rows_only": (
        (1, 40, 4, 7, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES,
        ("zeros", "replicate", "zeros"),
    ),
    "four_frames": (
        (1, 40, 8, 9, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_FRAMES | _FOUR | {"x_slots": 10},
        _EVERYWHERE,
    ),
    "four_rows": (
        (1, 40, 4, 37, 11),
        (70, 40, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | _FOUR | {"rows": 8, "streamed": 4},
        _EVERYWHERE,
    ),
    "late_inputs": (
        (1, 512, 4, 10, 11),
        (32, 512, 3, 3, 3),
        ((2, 0), 1, 1),
        _BY_ROWS | _PAIR | _LATE | {"unit_frames": 4, "v_slots": 2},
        _EVERYWHERE,
    ),
    "pairs": (
        (1, 192, 5, 10, 11),
        (72, 192, 3, 3, 3),
        ((2, 0), 1, 1),
        _PAIRS | _FOUR | {"units": 12, "body_blocks": 1, "columns": 6},
        _EVERYWHERE,
    ),
}
EVERY_CASE = [*CASES, *(f"replicated_{name}" for name in REPLICATED)]


def case_of(name):
    if name.startswith("replicated_"):
        x_shape, w_shape, padding, decisions, modes = REPLICATED[name.removeprefix("replicated_")]
    else:
        x_shape, w_shape, padding, decisions = CASES[name]
        modes = "zeros"
    shape = conv_shape(x_shape, w_shape, padding=padding, padding_mode=modes)
    fixed = {"machine_name": "trn2", "dtype": "bfloat16", "transform": "F(2,3)", "group": 9}
    plan = WinogradPlan(shape, **(fixed | decisions))
    assert violations(plan) == []
    return plan
