"""Launches: the parts of a convolution put together are the whole, and none is too large."""

import gc
import weakref
from contextlib import suppress
from math import prod

import numpy as np
import pytest

from nkisim.machine import TRN2
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import Epilogue, NormEpilogue
from trnconv.problem.launches import launches, planned_parts
from trnconv.reference import forward

SHAPES = {
    "padded": conv_shape((1, 2, 5, 8, 7), (3, 2, 3, 3, 3), padding=1),
    "causal": conv_shape((1, 2, 9, 4, 5), (2, 2, 3, 3, 3), padding=((2, 0), 1, (0, 1))),
    "strided": conv_shape((1, 2, 9, 11, 6), (4, 2, 3, 3, 2), stride=(2, 3, 1), padding=1),
    "dilated": conv_shape((1, 2, 9, 10, 4), (3, 2, 3, 3, 1), dilation=(2, 3, 1), padding=(2, 3, 0)),
    "many images": conv_shape((7, 3, 5, 6), (2, 3, 3, 3), padding=1),
    "grouped": conv_shape((2, 6, 5, 6), (4, 3, 3, 3), padding=1, groups=2),
    "long signal": conv_shape((1, 2, 400), (3, 2, 9), padding=4, stride=2),
    "wide padding": conv_shape((1, 1, 2, 6, 6), (2, 1, 2, 3, 3), padding=(1, 2, 2)),
    "replicated": conv_shape((1, 2, 9, 8), (3, 2, 5, 3), padding=2, padding_mode="replicate"),
    "reflected": conv_shape((1, 2, 9, 16), (3, 2, 3, 3), padding=1, padding_mode="reflect"),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))


def arrays(shape):
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (shape.batch, shape.c_in, *shape.size))
    w = rng.integers(-3, 4, (shape.c_out, shape.c_in // shape.groups, *shape.kernel))
    return x, w


def in_parts(shape, parts):
    """The output put together from its parts, and how often each element was written."""
    x, w = arrays(shape)
    y = np.zeros((shape.batch, shape.c_out, *shape.out_sizes()))
    times = np.zeros(y.shape, int)
    for part in parts:
        part.output_of(y)[...] = forward(*part.inputs_of((x,)), w, None, part.shape)
        part.output_of(times)[...] += 1
    return y, times


@pytest.mark.parametrize("share", [1, 2, 3, 7])
@shapes
def test_parts_are_the_whole_and_small_enough(shape, share):
    x, w = arrays(shape)
    whole = forward(x, w, None, shape)
    most = max(x.size, whole.size) // share + 8 * shape.c_in
    parts = launches(shape, most)
    assert len(parts) >= share - 1
    for part in parts:
        sizes = (part.shape.batch, part.shape.c_in, *part.shape.size)
        outs = (part.shape.batch, part.shape.c_out, *part.shape.out_sizes())
        assert max(prod(sizes), prod(outs)) <= most
        assert part.inputs_of((x,))[0].shape == sizes
    y, times = in_parts(shape, parts)
    assert (times == 1).all()
    np.testing.assert_array_equal(y, whole)


UPSAMPLED = {
    "twice": conv_shape((1, 2, 5, 8, 7), (3, 2, 3, 3, 3), padding=1, upsample=2),
    "thrice": conv_shape((1, 2, 5, 8, 7), (3, 2, 3, 4, 2), padding=((1, 2), 0, 1), upsample=3),
    "first frame once": conv_shape(
        (1, 2, 7, 6, 5),
        (3, 2, 3, 3, 3),
        padding=((2, 0), 1, 1),
        padding_mode="replicate",
        upsample=2,
        skip=(1, 0, 0),
    ),
    "skipping": conv_shape((1, 2, 40), (3, 2, 5), padding=((0, 3),), upsample=4, skip=3),
}


@pytest.mark.parametrize("share", [2, 3, 7])
@pytest.mark.parametrize("shape", UPSAMPLED.values(), ids=list(UPSAMPLED))
def test_parts_of_an_upsampled_input_are_the_whole(shape, share):
    """Where two parts meet, both may compute the outputs of one repeated position."""
    x, w = arrays(shape)
    whole = forward(x, w, None, shape)
    most = whole.size // share + 8 * shape.c_in
    parts = launches(shape, most)
    assert len(parts) >= share - 1
    for part in parts:
        assert part.shape.c_out * part.shape.positions() <= most
    y, times = in_parts(shape, parts)
    assert times.min() == 1
    np.testing.assert_array_equal(y, whole)


def test_an_upsampled_position_that_nothing_splits_is_refused():
    shape = conv_shape((1, 2, 1), (8, 2, 1), upsample=4)
    with pytest.raises(PlanError, match="nothing to split"):
        launches(shape, 20)


def test_what_fits_is_one_part():
    shape = SHAPES["padded"]
    (part,) = launches(shape, 3 * 5 * 8 * 7)
    assert part.shape == shape
    assert (part.image, part.x_first, part.y_first) == (0, (0, 0, 0), (0, 0, 0))


def test_images_are_split_before_anything_else():
    parts = launches(SHAPES["many images"], 3 * 3 * 5 * 6)
    assert sorted((part.image, part.shape.batch) for part in parts) == [(0, 3), (3, 2), (5, 2)]


def test_one_output_that_reads_too_much_is_refused():
    shape = conv_shape((1, 8, 5), (2, 8, 5))
    with pytest.raises(PlanError, match=r"nothing to split.*Split the channels"):
        launches(shape, 39)
    assert len(launches(shape, 40)) == 1


def test_parts_of_circular_padding_are_the_whole_or_refused():
    shape = conv_shape((1, 2, 9, 8), (3, 2, 3, 3), padding=1, padding_mode="circular")
    x, w = arrays(shape)
    try:
        y, _ = in_parts(shape, launches(shape, 100))
    except PlanError as refusal:
        assert "circular" in str(refusal)  # noqa: PT017 (either outcome is right)
        return
    np.testing.assert_array_equal(y, forward(x, w, None, shape))


def test_parts_of_wide_reflected_padding_are_the_whole_or_refused():
    shape = conv_shape((1, 2, 6, 4), (3, 2, 3, 1), padding=(5, 0), padding_mode="reflect")
    x, w = arrays(shape)
    try:
        y, _ = in_parts(shape, launches(shape, 40))
    except PlanError as refusal:
        assert "reflect" in str(refusal)  # noqa: PT017 (either outcome is right)
        return
    np.testing.assert_array_equal(y, forward(x, w, None, shape))


@pytest.mark.parametrize("reason", ["too long", "too large"])
def test_a_norm_over_all_channels_is_never_of_several_launches(reason):
    """Neither of fewer channels, where programs are too long, nor of fewer positions."""
    size = (8, 12) if reason == "too long" else (40_000, 30_000)
    shape = conv_shape((1, 256, *size), (256, 256, 3, 3), padding=1)
    plain = ConvProblem(shape, TRN2)
    normed = ConvProblem(shape, TRN2, epilogue=Epilogue(norm=NormEpilogue(1e-6)))

    def planned(problem):
        if problem.shape.c_out > 128:
            raise PlanError(reason)

    assert len(list(planned_parts(plain, planned))) > 1
    with pytest.raises(PlanError):
        list(planned_parts(normed, planned))


class Held:
    """What a caller has."""


def test_a_refusal_holds_nothing_of_its_callers():
    """Its frames would: a patched model's tensors that nobody needs any more, for instance."""
    problem = ConvProblem(conv_shape((1, 2, 8, 8), (256, 2, 3, 3)), TRN2)

    def refuse(part):
        raise PlanError(f"{part.shape.c_out} channels are refused")

    def caller():
        held = Held()
        with suppress(PlanError):
            list(planned_parts(problem, refuse))
        return weakref.ref(held)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
