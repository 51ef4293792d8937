"""Two cores: together they compute every row of every channel, and neither much more."""

from collections import Counter

import numpy as np
import pytest

from direct_plans import direct_plans
from nkisim.machine import TRN2
from trnconv.ask.question import Question
from trnconv.forms.direct.block_types import blocks_of
from trnconv.forms.direct.problem import HEIGHT, fold
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.planner.shares import shared_plans

SHAPES = {
    "rows": conv_shape((1, 64, 4, 30, 40), (64, 64, 3, 3, 3), padding=1),
    "odd rows": conv_shape((1, 16, 31, 40), (24, 16, 3, 3), padding=1),
    "one row": conv_shape((1, 64, 4000), (96, 64, 9), padding=4),
    "one channel": conv_shape((1, 16, 31, 40), (1, 16, 3, 3), padding=1),
    "many channels": conv_shape((1, 256, 4, 8), (512, 256, 3, 3), padding=1),
    "groups": conv_shape((1, 96, 12, 16), (96, 3, 3, 3), padding=1, groups=32),
    "groups of one row": conv_shape((1, 300, 40), (300, 1, 5), padding=2, groups=300),
    "upsampling": transposed_shape((1, 32, 13, 12), (32, 24, 4, 4), stride=2, padding=1),
    "upsampling by three": transposed_shape((1, 8, 7, 5), (8, 6, 5, 5), stride=3),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))


def computed(plan):
    """Rows and channels that a plan computes."""
    begin, end = plan.row_span
    channels = [
        channel
        for one in plan.passes
        for channel in range(one.first_channel, one.first_channel + one.channels)
    ]
    return range(begin, end), channels


@shapes
def test_every_row_of_every_channel_is_computed_once(shape):
    counts = Counter()
    for priced in shared_plans(Question(shape, TRN2)):
        rows, channels = computed(priced.plan)
        counts.update((row, channel) for row in rows for channel in channels)
    rows = range(fold(shape).out[HEIGHT])
    assert counts == Counter((row, channel) for row in rows for channel in range(shape.c_out))


@shapes
def test_cores_take_whole_steps_of_a_transposed_convolution(shape):
    whole = fold(shape).phases[HEIGHT]
    for priced in shared_plans(Question(shape, TRN2)):
        assert priced.plan.row_span[0] % whole == 0
        assert priced.plan.row_span[1] % whole == 0


@shapes
def test_blocks_of_a_core_write_within_its_rows_and_reach_all_of_them(shape):
    """By the offsets of blocks into y: no core needs to know what the other does."""
    for priced in shared_plans(Question(shape, TRN2)):
        plan = priced.plan
        strides, out = plan.problem.y_strides, plan.problem.out
        written = np.zeros((plan.problem.images, *out), bool)
        for block in blocks_of(plan):
            image, rest = divmod(block.y, strides[0]) if plan.problem.images > 1 else (0, block.y)
            frame, row, column = place_of(rest, strides, out)
            kind = block.kind
            assert row + kind.rows <= plan.row_span[1]
            part = written[image, frame : frame + kind.frame_count, row : row + kind.rows]
            part[:, :, column : column + kind.columns] = True
        first, end = plan.row_span
        assert written[:, :, first:end].all()
        assert not written[:, :, :first].any()
        assert not written[:, :, end:].any()


def place_of(offset, strides, out):
    """Frame, row and column of an offset into y; axes of one position are skipped."""
    order = sorted(range(3), key=lambda axis: -strides[2 + axis])
    at = [0, 0, 0]
    for axis in order:
        if out[axis] > 1:
            at[axis], offset = divmod(offset, strides[2 + axis])
    return at


def test_the_way_that_ends_sooner_is_taken():
    for shape in SHAPES.values():
        alone = direct_plans(shape)[0].cost.total_ns
        both = shared_plans(Question(shape, TRN2))
        assert max(priced.cost.total_ns for priced in both) <= alone


def test_what_cannot_be_shared_is_computed_by_both():
    one, two = shared_plans(Question(conv_shape((1, 8, 100), (1, 8, 3)), TRN2))
    assert one == two
    assert one.plan.row_span == (0, 1)
