"""Legality: each rule is broken by a plan that differs in one number from one that is legal."""

import re
from dataclasses import replace

import numpy as np
import pytest

from direct_plans import direct_plan, direct_plans
from nkisim.machine import TRN2
from trnconv.algorithms.direct.cost import cost_of
from trnconv.algorithms.direct.plan import BY_FRAME, BY_ROW, DirectPlan, PePacking
from trnconv.algorithms.direct.reduced_problem import fold
from trnconv.algorithms.direct.rules import MAX_OFFSET, violations
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.reference import transposed
from trnconv.runtime import LaunchOptions, convolve_transposed

SHAPE = conv_shape((1, 64, 6, 40, 64), (64, 64, 3, 3, 3), padding=1)
ROOM = TRN2.sbuf_usable_bytes_per_partition


def plan_of(shape=SHAPE, **options):
    """A plan in which nothing is close to a limit: plain windows, one position a matmul."""
    reduced = fold(shape)
    decisions = {
        "passes": (PePacking(0, shape.c_out),),
        "frames": 2,
        "rows": 8,
        "columns": reduced.out[2],
        "slots": (8, 0, 0),
    }
    return DirectPlan(shape, "trn2", "bfloat16", reduced, **{**decisions, **options})


def stacked(rows):
    return (PePacking(0, 64, rows=rows),)


def of_frames(frames):
    return (PePacking(0, 64, frames=frames),)


def column_phases(channels):
    return (PePacking(0, channels, columns=2),)


LINE = conv_shape((1, 2, 4, 40_000), (2, 2, 3, 3), padding=1)


def line_of(rows, columns):
    return {"frames": 1, "rows": rows, "columns": columns, "slots": (1, 0, 0), "out_buffers": 1}


# A plan, the neighbour of it that is not legal, and words of the reason.
RULES = {
    "too many frames": ({"frames": 6}, {"frames": 7}, "7 frames: .* allow 1 to 6"),
    "fewer frames than a stack": (
        {"passes": of_frames(2)},
        {"passes": of_frames(3)},
        "2 frames: .* allow 3 to 6",
    ),
    "too many rows": ({"rows": 40}, {"rows": 41}, "41 rows: .* allow 1 to 40"),
    "more rows than the core has": (
        {"rows": 8, "rows_of": (8, 16)},
        {"rows": 8, "rows_of": (8, 15)},
        "8 rows: .* allow 1 to 7",
    ),
    "rows that fill no stack": (
        {"passes": stacked(4)},
        {"passes": stacked(3)},
        "8 rows: stacks need a multiple of 3",
    ),
    "too many columns": ({"columns": 64}, {"columns": 65}, "65 columns: .* allow 1 to 64"),
    "wide column phases": (
        {"passes": column_phases(64)},
        {"passes": column_phases(65)},
        "column phases of 130 partitions, trn2 has 128",
    ),
    "narrow column tiles": (
        {"passes": (PePacking(0, 32, tile_columns=32, unit=(1, 1)),)},
        {"passes": (PePacking(0, 16, tile_columns=16, unit=(1, 1)),)},
        "column tiles of 16: trn2 has tiles of 32",
    ),
    "too few windows": (
        {"slots": (2, 0, 0)},
        {"slots": (1, 0, 0)},
        "1 window slots of level 1: .* 2",
    ),
    "too few windows of a deeper level": (
        {"passes": (PePacking(0, 64, levels=(BY_FRAME, BY_ROW)),), "slots": (1, 3, 0)},
        {"passes": (PePacking(0, 64, levels=(BY_FRAME, BY_ROW)),), "slots": (1, 2, 0)},
        "2 window slots of level 2: .* 3 at once",
    ),
    "too few windows to load ahead": (
        {"slots": (4, 0, 0), "ahead": True},
        {"slots": (3, 0, 0), "ahead": True},
        "3 window slots of level 1: an accumulation needs 4",
    ),
    "one window is enough, window by window": (
        {"slots": (1, 0, 0), "window_major": True},
        {"slots": (0, 0, 0), "window_major": True},
        "0 window slots of level 1: .* 1 at once",
    ),
}


@pytest.mark.parametrize(("legal", "illegal", "reason"), RULES.values(), ids=list(RULES))
def test_a_plan_next_to_a_legal_one_breaks_one_rule(legal, illegal, reason):
    assert violations(plan_of(**legal)) == []
    found = violations(plan_of(**illegal))
    assert any(re.search(reason, rule) for rule in found), found
    assert len(found) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "float64"}, "dtype float64"),
        ({"rows": 0}, "0 rows"),
        ({"columns": 0}, "0 columns"),
        ({"frames": 0}, "0 frames"),
    ],
    ids=str,
)
def test_what_has_no_price_is_refused_too(change, words):
    found = violations(replace(plan_of(), **change))
    assert any(words in rule for rule in found)


def test_offsets_beyond_32_bits_are_refused():
    image = 64 * 6 * 40 * 64
    most = MAX_OFFSET // image
    for images, expected in ((most, 0), (most + 1, 1)):
        plan = plan_of()
        plan = replace(plan, reduced=replace(plan.reduced, images=images))
        found = violations(plan)
        assert len(found) == expected
        assert all("offsets have 32 bits; split the problem" in rule for rule in found)


def test_memory_is_counted_to_the_last_byte():
    slots = 8
    while cost_of(plan_of(slots=(slots, 0, 0))).sbuf_bytes <= ROOM:
        slots += 1
    assert violations(plan_of(slots=(slots - 1, 0, 0))) == []
    (rule,) = violations(plan_of(slots=(slots, 0, 0)))
    needed = cost_of(plan_of(slots=(slots, 0, 0))).sbuf_bytes
    assert rule == f"{needed} bytes a partition: SBUF of trn2 has {ROOM}"


def test_a_window_fits_an_operand():
    """Every fourth column is computed, so that there is room for five rows and their outputs."""
    most = TRN2.sbuf_operand_max_elems
    shape = conv_shape((1, 2, 8, most // 4), (2, 2, 3, 4), stride=(1, 4), padding=(1, 0))
    assert violations(plan_of(shape, **line_of(2, most // 16))) == []  # four rows with their halo
    (rule,) = violations(plan_of(shape, **line_of(3, most // 16)))
    assert rule == f"a window of {5 * most // 4} elements: an operand has at most {most}"


def test_rows_of_a_window_are_not_too_far_apart():
    most = TRN2.access_stride_max
    wide = conv_shape((1, 2, 4, most + 1), (2, 2, 1, 4), stride=(1, 4))
    fitting = conv_shape((1, 2, 4, most), (2, 2, 1, 4), stride=(1, 4))
    columns = fitting.out_size(2)
    assert violations(plan_of(fitting, **line_of(2, columns))) == []
    (rule,) = violations(plan_of(wide, **line_of(2, columns + 1)))
    apart = f"rows {most + 1} elements apart in a window: a stride has at most {most}"
    assert rule == f"{apart}; cut the columns"
    assert violations(plan_of(wide, **line_of(1, columns + 1))) == []


def test_what_the_planner_takes_is_legal():
    for shape in (SHAPE, LINE, conv_shape((2, 300, 9, 9), (300, 1, 3, 3), padding=1, groups=300)):
        for priced in direct_plans(shape):
            assert violations(priced.plan) == []


UP = transposed_shape(
    (1, 8, 3, 6, 7), (8, 5, 3, 4, 4), stride=2, padding=(1, 1, 1), output_padding=1
)


@pytest.mark.parametrize("odd", [{"columns": 5}, {"frames": 5}], ids=str)
def test_blocks_of_a_transposed_convolution_are_whole_steps_or_refused(odd):
    plan = direct_plan(UP, dtype="float32")
    plan = replace(plan, lead=(), **odd)
    plan = replace(plan, passes=tuple(replace(one, frames=2) for one in plan.passes))
    if violations(plan):
        return
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(-3, 4, size).astype(np.float32) for size in ((1, 8, 3, 6, 7), (8, 5, 3, 4, 4))
    )
    y = convolve_transposed(x, w, None, UP, LaunchOptions(plans=(plan,))).y
    np.testing.assert_array_equal(y, transposed(x, w, None, UP))
