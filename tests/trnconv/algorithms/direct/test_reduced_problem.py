"""Problem: folded sizes by hand, who reads what by definition, padding as NumPy pads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repetition import examples
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, fold
from trnconv.geometry import conv_shape, transposed_shape

ONE_TAP = (((0, 0),),)


def test_a_pointwise_convolution_is_one_long_row_for_each_image():
    reduced = fold(conv_shape((2, 8, 3, 4, 5), (6, 8, 1, 1, 1)))
    assert (reduced.images, reduced.size, reduced.out) == (1, (1, 2, 60), (1, 2, 60))
    assert reduced.x_strides[3:] == (8 * 60, 1)
    assert reduced.y_strides[3:] == (6 * 60, 1)
    assert reduced.reads == (ONE_TAP, ONE_TAP, ONE_TAP)


def test_a_batch_of_images_is_a_video_without_temporal_taps():
    reduced = fold(conv_shape((3, 4, 5, 6), (7, 4, 3, 3), padding=1))
    assert (reduced.images, reduced.size, reduced.out) == (1, (3, 5, 6), (3, 5, 6))
    assert reduced.x_strides[2:] == (4 * 30, 6, 1)
    assert reduced.y_strides[2:] == (7 * 30, 6, 1)


def test_a_batch_of_signals_is_one_image():
    reduced = fold(conv_shape((7, 4, 9), (5, 4, 3), stride=2))
    assert (reduced.images, reduced.size, reduced.out) == (1, (1, 7, 9), (1, 7, 4))
    assert reduced.x_strides[3:] == (36, 1)
    assert reduced.y_strides[3:] == (20, 1)
    assert (reduced.step, reduced.phases) == ((1, 1, 2), (1, 1, 1))


def test_a_batch_of_videos_with_temporal_taps_stays_a_batch():
    reduced = fold(conv_shape((2, 4, 5, 6, 7), (3, 4, 3, 3, 3), padding=1))
    assert (reduced.images, reduced.size, reduced.pad) == (2, (5, 6, 7), (1, 1, 1))
    assert reduced.x_strides == (4 * 210, 210, 42, 7, 1)


def test_a_temporal_kernel_over_planes_has_rows_of_whole_planes():
    reduced = fold(conv_shape((1, 4, 5, 6, 7), (3, 4, 3, 1, 1), padding=(1, 0, 0)))
    assert (reduced.size, reduced.out) == ((5, 1, 42), (5, 1, 42))
    assert reduced.kernel(DEPTH) == 3


def test_taps_that_only_meet_zeros_are_dropped():
    centre = fold(conv_shape((1, 1, 1), (1, 1, 7), padding=3))
    assert centre.reads[WIDTH] == (((0, 3),),)
    assert centre.pad[WIDTH] == 0
    apart = fold(conv_shape((1, 1, 2), (1, 1, 3), padding=4, dilation=4))
    assert (apart.reads[WIDTH], apart.pad[WIDTH]) == ((((0, 1),),), 0)
    first = fold(conv_shape((1, 1, 4), (1, 1, 3), padding=((0, 9),), dilation=4))
    assert (first.reads[WIDTH], first.pad[WIDTH]) == ((((0, 0),),), 0)
    causal = conv_shape((1, 1, 2, 5), (1, 1, 3, 3), padding=((2, 0), 1))  # rows -2 to 1
    assert fold(causal).reads[HEIGHT] == (((0, 1), (1, 2)),)
    longer = conv_shape((1, 1, 3, 5), (1, 1, 3, 3), padding=((2, 0), 1))
    assert fold(longer).kernel(HEIGHT) == 3  # all of them meet some row


def test_taps_that_meet_other_padding_stay():
    for mode in ("replicate", "circular"):
        shape = conv_shape((1, 1, 4), (1, 1, 3), padding=4, dilation=4, padding_mode=mode)
        assert fold(shape).kernel(WIDTH) == 3


def test_only_padding_leaves_one_tap_that_meets_nothing():
    reduced = fold(conv_shape((1, 1, 2), (1, 1, 1), padding=3, stride=3))
    assert reduced.reads[WIDTH] == (((0, 0),),)
    assert reduced.pad[WIDTH] == 3


def test_phases_of_an_upsampling_by_two_with_four_taps():
    """out = 2 * in + tap - 1: even outputs have taps 1 and 3, odd ones 0 and 2."""
    reduced = fold(transposed_shape((1, 3, 5), (3, 2, 4), stride=2, padding=1))
    assert (reduced.out, reduced.phases, reduced.step) == ((1, 1, 10), (1, 1, 2), (1, 1, 1))
    assert reduced.reads[WIDTH] == (((0, 3), (1, 1)), ((1, 2), (2, 0)))
    assert reduced.pad[WIDTH] == 1


def test_phases_of_an_upsampling_by_two_with_three_taps():
    """Seven outputs are rounded up to eight: whole steps."""
    reduced = fold(transposed_shape((1, 3, 4), (3, 2, 3), stride=2, padding=1))
    assert reduced.out == (1, 1, 8)
    assert reduced.reads[WIDTH] == (((0, 1),), ((0, 2), (1, 0)))
    assert reduced.pad[WIDTH] == 0


def test_phases_that_no_tap_reaches_read_nothing():
    reduced = fold(transposed_shape((1, 3, 4), (3, 2, 2), stride=4))
    assert reduced.reads[WIDTH] == (((0, 0),), ((0, 1),), (), ())
    assert reduced.shifts(WIDTH, [2, 3]) == ()
    assert reduced.tap(WIDTH, 2, 0) is None


def test_groups_are_blocks_of_channels_on_the_diagonal():
    grouped = fold(conv_shape((1, 64, 5), (64, 2, 3), groups=32))
    assert (grouped.c_in, grouped.block_out, grouped.channels) == (64, 64, 64)
    wide = fold(conv_shape((1, 192, 5), (96, 48, 3), groups=4))  # two of 48 and 24 fit in 128
    assert (wide.c_in, wide.block_out) == (96, 48)
    assert [wide.first_channel_read(out) for out in (0, 47, 48, 95)] == [0, 0, 96, 96]
    large = fold(conv_shape((1, 600, 5), (300, 300, 3), groups=2))
    assert (large.c_in, large.block_out) == (300, 150)
    depthwise = fold(conv_shape((1, 384, 5), (384, 1, 3), groups=384))
    assert (depthwise.c_in, depthwise.block_out) == (128, 128)


def reads_of(reduced, out):
    """(input position, tap) of an output along the width, those that exist."""
    group, phase = divmod(out, reduced.phases[WIDTH])
    first = group * reduced.step[WIDTH] - reduced.pad[WIDTH]
    read = {(first + shift, tap) for shift, tap in reduced.reads[WIDTH][phase]}
    return {(at, tap) for at, tap in read if 0 <= at < reduced.size[WIDTH]}


numbers = st.integers(1, 6)


@examples(300)
@given(numbers, numbers, numbers, numbers, st.integers(0, 6), st.integers(0, 6))
def test_a_forward_output_reads_what_the_definition_says(
    size, kernel, stride, dilation, before, after
):
    reach = dilation * (kernel - 1) + 1
    size = max(size, reach - before - after)
    padding = ((before, after),)
    shape = conv_shape(
        (1, 2, size), (2, 2, kernel), stride=stride, dilation=dilation, padding=padding
    )
    reduced = fold(shape)
    for out in range(shape.out_size(WIDTH)):
        wanted = {(shape.in_position(WIDTH, out, tap), tap) for tap in range(kernel)}
        assert reads_of(reduced, out) == {(at, tap) for at, tap in wanted if 0 <= at < size}
        for at, tap in reads_of(reduced, out):
            assert reduced.tap(WIDTH, out, at + reduced.pad[WIDTH]) == tap


@examples(300)
@given(numbers, numbers, numbers, numbers, st.integers(0, 6), st.integers(0, 5))
def test_a_transposed_output_reads_what_the_definition_says(
    size, kernel, stride, dilation, pad, more
):
    more = min(more, max(stride, dilation) - 1)
    outputs = (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + more + 1
    if outputs < 1:
        return
    options = {"stride": stride, "dilation": dilation, "padding": pad, "output_padding": more}
    shape = transposed_shape((1, 2, size), (2, 2, kernel), **options)
    assert shape.out == (1, 1, outputs)
    reduced = fold(shape)
    written = {}
    for at in range(size):
        for tap in range(kernel):
            written.setdefault(stride * at + dilation * tap - pad, set()).add((at, tap))
    for out in range(outputs):
        assert reads_of(reduced, out) == written.get(out, set())


NUMPY_MODES = {"replicate": "edge", "reflect": "reflect", "circular": "wrap"}


@pytest.mark.parametrize("mode", NUMPY_MODES)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_padding_stands_for_the_positions_that_numpy_pads_with(mode, size):
    most = {"replicate": 9, "reflect": size - 1, "circular": size}[mode]
    shape = conv_shape((1, 1, size), (1, 1, 1), padding=most, padding_mode=mode)
    reduced = fold(shape)
    padded = np.pad(np.arange(size), most, mode=NUMPY_MODES[mode])
    found = [reduced.source(WIDTH, position) for position in range(-most, size + most)]
    assert found == padded.tolist()
