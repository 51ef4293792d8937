"""Arguments that do not fit together are refused: nothing is guessed, dropped or stretched."""

import numpy as np
import pytest

import trnconv
from trnconv.errors import TrnconvError
from trnconv.geometry import transposed_shape
from trnconv.problem.epilogue import epilogue_of
from trnconv.runtime import LaunchOptions, convolve, convolve_transposed
from trnconv.runtime.gradients import input_gradient


def ones(*sizes):
    return np.ones(sizes, np.float32)


LINE = (2, 4, 9)
X, W = ones(1, 4, 5, 6), ones(3, 4, 3, 3)
SUM = epilogue_of("identity", "after", "")
UP_SHAPE = transposed_shape((1, 4, 1, 5, 6), (4, 3, 1, 2, 2), stride=(1, 2, 2))
UP_X, UP_W = ones(1, 4, 1, 5, 6), ones(4, 3, 1, 2, 2)

# Arguments that do not fit together, and words of the reason.
UNFIT = {
    "a residual without an end that adds it": (
        lambda: summed(residual=ones(1, 3, 5, 6)),
        "resid",
    ),
    "an end that adds no residual": (lambda: summed(epilogue=SUM), "residual"),
    "a residual turned round": (
        lambda: summed(epilogue=SUM, residual=ones(1, 3, 6, 5)),
        "residual",
    ),
    "a residual that is too small": (
        lambda: summed(epilogue=SUM, residual=ones(1, 3, 5, 5)),
        "resid",
    ),
    "an output in float64": (
        lambda: summed(epilogue=epilogue_of("relu", "none", "float64")),
        "float64",
    ),
    "too few biases": (lambda: convolve(X, W, ones(2)), "bias"),
    "too many biases": (lambda: convolve(X, W, ones(4)), "bias"),
    "biases in a column": (lambda: convolve(X, W, ones(3, 1)), "bias"),
    "too few biases, transposed": (
        lambda: trnconv.conv_transpose2d(X, ones(4, 3, 2, 2), ones(2)),
        "bias",
    ),
    "a gradient turned round": (
        lambda: input_gradient(ones(1, 3, 6, 5), W, X.shape, padding=1),
        "dy",
    ),
    "a gradient of another size": (
        lambda: input_gradient(ones(1, 3, 6, 6), W, X.shape, padding=1),
        "dy",
    ),
    "an input turned round, transposed": (
        lambda: convolve_transposed(ones(1, 4, 1, 6, 5), UP_W, None, UP_SHAPE),
        "input",
    ),
    "a weight turned round, transposed": (
        lambda: convolve_transposed(UP_X, ones(3, 4, 1, 2, 2), None, UP_SHAPE),
        "weight",
    ),
    "transposed, no groups": (lambda: upward(groups=0), "0 groups"),
    "transposed, negative groups": (lambda: upward(groups=-1), "-1 groups"),
    "transposed, no stride": (lambda: upward(stride=0), "stride along width is 0"),
    "transposed, no dilation": (lambda: upward(dilation=0), "dilation along width is 0"),
    "transposed, negative padding": (lambda: upward(padding=-1), "not negative"),
    "transposed, no columns": (lambda: upward(ones(2, 4, 0)), "size along width is 0"),
    "transposed, no taps": (lambda: upward(w=ones(4, 5, 0)), "kernel along width is 0"),
    "transposed, no outputs": (lambda: upward(w=ones(4, 0, 3)), "c_out is 0"),
}


def summed(**options):
    return convolve(X, W, padding=1, launch=LaunchOptions(**options))


def upward(x=None, w=None, **options):
    line, filters = ones(*LINE), ones(4, 5, 3)
    return trnconv.conv_transpose1d(
        line if x is None else x, filters if w is None else w, **options
    )


@pytest.mark.parametrize(("call", "reason"), UNFIT.values(), ids=list(UNFIT))
def test_arguments_that_do_not_fit_together_are_refused(call, reason):
    with pytest.raises(TrnconvError, match=reason):
        call()


@pytest.mark.parametrize("residual", ["before", "after"])
def test_a_residual_of_a_transposed_convolution_is_added_or_refused(residual):
    added = np.arange(1 * 3 * 1 * 10 * 12, dtype=np.float32).reshape(1, 3, 1, 10, 12)
    launch = LaunchOptions(epilogue=epilogue_of("identity", residual, ""), residual=added)
    try:
        y = convolve_transposed(UP_X, UP_W, None, UP_SHAPE, launch).y
    except TrnconvError as refusal:
        assert "residual" in str(refusal)  # noqa: PT017 (either outcome is right)
        return
    np.testing.assert_array_equal(y, 4 + added)


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
def test_numbers_may_be_those_of_numpy(name):
    y = trnconv.conv2d(X, W, **{name: np.int64(1)})
    np.testing.assert_array_equal(y, trnconv.conv2d(X, W, **{name: 1}))
