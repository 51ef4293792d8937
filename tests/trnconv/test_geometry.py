"""ConvShape: arguments normalised once, sizes by the textbook formula."""

import pytest

from trnconv.errors import ShapeError
from trnconv.geometry import ConvShape, conv_shape


def test_one_and_two_dimensions_are_three_with_ones_in_front():
    line = conv_shape((2, 8, 40), (16, 8, 5), stride=2, padding=1)
    assert (line.size, line.kernel, line.stride) == ((1, 1, 40), (1, 1, 5), (1, 1, 2))
    assert (line.pad_before, line.out_sizes()) == ((0, 0, 1), (1, 1, 19))
    plane = conv_shape((1, 3, 10, 12), (4, 3, 3, 3), dilation=(2, 1))
    assert (plane.dilation, plane.out_sizes()) == ((1, 2, 1), (1, 6, 10))


def test_padding_may_differ_before_and_after():
    shape = conv_shape((1, 4, 9, 9, 9), (4, 4, 3, 3, 3), padding=((2, 0), 1, (0, 1)))
    assert (shape.pad_before, shape.pad_after) == ((2, 1, 0), (0, 1, 1))
    assert shape.out_sizes() == (9, 9, 8)


def test_named_padding():
    same = conv_shape((1, 2, 7, 7), (2, 2, 4, 3), padding="same", dilation=2)
    assert (same.pad_before[1:], same.pad_after[1:]) == ((3, 2), (3, 2))
    even = conv_shape((1, 2, 7), (2, 2, 4), padding="same")
    assert (even.pad_before[2], even.pad_after[2], even.out_size(2)) == (1, 2, 7)
    assert conv_shape((1, 2, 7), (2, 2, 3), padding="valid").out_size(2) == 5


def test_positions_outside_the_input_are_padding():
    shape = conv_shape((1, 1, 5), (1, 1, 3), stride=2, padding=1)
    reads = [[shape.in_position(2, out, tap) for tap in range(3)] for out in range(3)]
    assert reads == [[-1, 0, 1], [1, 2, 3], [3, 4, 5]]


def test_counts():
    shape = conv_shape((2, 3, 4, 5, 6), (7, 3, 1, 3, 3))
    assert (shape.taps(), shape.positions()) == (9, 4 * 3 * 4)
    assert shape.macs() == 2 * 3 * 7 * 9 * 48


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 3, 8), (4, 5, 3)), "3 channels and the weight reads 5"),
        (((1, 3, 8, 8), (4, 3, 3)), "the same number"),
        (
            ((1, 3, 2), (4, 3, 5)),
            "reaches over 5 elements of the width axis: the padded input has 2",
        ),
        (((0, 3, 8), (4, 3, 3)), "batch is 0"),
    ],
)
def test_impossible_shapes_are_refused(arguments, message):
    with pytest.raises(ShapeError, match=message):
        conv_shape(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": (1, 2)}, "one for each of 1 axes"),
        ({"padding": (1, 2)}, "one number or pair for each of 1 axes"),
        ({"padding": "full"}, '"same", "valid" or numbers'),
        ({"padding": "same", "stride": 2}, "stride 1 only"),
        ({"padding": -1}, "padding is not negative"),
        ({"stride": 0}, "stride along width is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ShapeError, match=message):
        conv_shape((1, 3, 8), (4, 3, 3), **options)


def test_shapes_are_values():
    one = conv_shape((1, 3, 8), (4, 3, 3))
    assert one == ConvShape(1, 3, 4, (1, 1, 8), (1, 1, 3))
    assert hash(one) == hash(conv_shape([1, 3, 8], [4, 3, 3]))
