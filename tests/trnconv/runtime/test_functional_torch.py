"""Groups, transposed convolutions and gradients against PyTorch in float64.

The first two tables are those of the project this one started from; then every class of arguments
that torch's functions take: each is computed within the bound, or refused with a reason.
"""

from math import prod

import numpy as np
import pytest

import trnconv
from conv_arrays import numpy_dtype
from family_bounds import ended, sums_of
from repetition import few
from seed_family_tables import (
    BACKWARD,
    BACKWARD_DILATED,
    BACKWARD_GROUPED,
    GRADIENTS,
    GROUPED,
    Problem,
)
from tolerance import assert_within
from trnconv.problem.epilogue import PLAIN_EPILOGUE
from trnconv.runtime import convolve
from trnconv.runtime.gradients import input_gradient
from trnconv.runtime.weight_gradient import weight_gradient

pytestmark = pytest.mark.torch


def by_name(problems):
    return pytest.mark.parametrize("problem", problems, ids=[each.name for each in problems])


def normal(seed, *sizes, dtype="float32"):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size).astype(numpy_dtype(dtype)) for size in sizes]


def tensor(values):
    import torch

    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))


def functional(name, **options):
    """torch's function in float64, from arrays to an array."""
    import torch.nn.functional

    def call(x, w, bias):
        given = None if bias is None else tensor(bias)
        return getattr(torch.nn.functional, name)(tensor(x), tensor(w), given, **options).numpy()

    return call


def check(y, linear, operands, terms):
    """y is `linear` of the operands within the bound of sums with so many terms."""
    exact, bound = ended(sums_of(linear, operands, terms), PLAIN_EPILOGUE, None, y.dtype)
    assert_within(y, exact, bound)


def test_no_table_lost_a_member():
    properties = 3  # the three tests after the next
    assert len(GROUPED) + properties == 15
    zeros = 1
    assert 3 * len(BACKWARD) + zeros + len(BACKWARD_DILATED) + len(BACKWARD_GROUPED) == 38
    assert len({problem.name for problem in (*GROUPED, *GRADIENTS)}) == 12 + 17


@by_name(GROUPED)
def test_groups_are_those_of_torch(problem):
    x, w, bias = normal(1, problem.x, problem.w, problem.w[0])
    bias = bias if problem.bias else None
    y = trnconv.conv3d(x, w, bias, **problem.options())
    linear = functional("conv3d", **problem.options())
    check(y, linear, (x, w, bias), prod(problem.w[1:]))


def test_one_group_is_the_default():
    x, w, bias = normal(2, (1, 3, 4, 6, 6), (4, 3, 2, 3, 3), 4)
    one = trnconv.conv3d(x, w, bias, groups=1)
    np.testing.assert_array_equal(one, trnconv.conv3d(x, w, bias))


def test_groups_do_not_change_the_shape_of_the_output():
    x, w = normal(3, (1, 8, 4, 6, 6), (16, 2, 3, 3, 3))
    assert trnconv.conv3d(x, w, padding=1, groups=4).shape == (1, 16, 4, 6, 6)


def test_a_depthwise_channel_depends_on_its_own_input_only():
    x, w = normal(4, (1, 4, 4, 5, 5), (4, 1, 2, 3, 3))
    without = x.copy()
    without[:, 0] = 0
    y, changed = trnconv.conv3d(x, w, groups=4), trnconv.conv3d(without, w, groups=4)
    np.testing.assert_array_equal(changed[:, 0], np.zeros_like(y[:, 0]))
    np.testing.assert_array_equal(changed[:, 1:], y[:, 1:])
    assert (y[:, 0] != 0).all()


class Autograd:
    """The gradients of one problem as linear functions, by torch's autograd in float64."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def of_x(self, dy, w, _):
        x = tensor(np.zeros(self.problem.x)).requires_grad_()
        return self._back(x, tensor(w), None, dy, x)

    def of_w(self, x, dy, _):
        w = tensor(np.zeros(self.problem.w)).requires_grad_()
        return self._back(tensor(x), w, None, dy, w)

    def of_bias(self, dy, *_):
        bias = tensor(np.zeros(self.problem.w[0])).requires_grad_()
        x, w = tensor(np.zeros(self.problem.x)), tensor(np.zeros(self.problem.w))
        return self._back(x, w, bias, dy, bias)

    def _back(self, x, w, bias, dy, wanted):
        import torch

        y = torch.nn.functional.conv3d(x, w, bias, **self.problem.options())
        (gradient,) = torch.autograd.grad(y, wanted, tensor(dy))
        return gradient.numpy()


def operands(problem):
    """x, w and a gradient of the output."""
    shape = problem.shape()
    return normal(5, problem.x, problem.w, (shape.batch, shape.c_out, *shape.out_sizes()))


@by_name(GRADIENTS)
def test_gradients_of_the_input_are_those_of_autograd(problem):
    _, w, dy = operands(problem)
    dx = input_gradient(dy, w, problem.x, **problem.options()).y
    terms = problem.w[0] // problem.groups * prod(problem.w[2:])
    check(dx, Autograd(problem).of_x, (dy, w, None), terms)


@by_name(GRADIENTS)
def test_gradients_of_weight_and_bias_are_those_of_autograd(problem):
    x, _, dy = operands(problem)
    found = weight_gradient(x, dy, problem.w[2:], **problem.options())
    terms = dy.size // dy.shape[1]
    check(found.dw, Autograd(problem).of_w, (x, dy, None), terms)
    exact, bound = ended(
        sums_of(Autograd(problem).of_bias, (dy, None), terms), PLAIN_EPILOGUE, None, found.db.dtype
    )
    assert found.db.shape == exact.shape
    assert (np.abs(found.db - exact) <= bound).all()


def test_no_gradient_comes_from_zeros():
    x, w = normal(6, (1, 3, 4, 4, 4), (4, 3, 3, 3, 3))
    dy = np.zeros((1, 4, 4, 4, 4), np.float32)
    assert not input_gradient(dy, w, x.shape, padding=1).y.any()
    found = weight_gradient(x, dy, (3, 3, 3), padding=1)
    assert not found.dw.any()
    assert not found.db.any()


TRANSPOSED = (
    # rank, channels in and out of a group, groups, kernel, and the options of the call
    (1, (4, 6), 1, (3,), {}),
    (1, (4, 6), 1, (4,), {"stride": 2, "padding": 1}),
    (1, (2, 3), 3, (5,), {"stride": 3, "padding": 2, "output_padding": 2}),
    (1, (1, 1), 40, (4,), {"stride": 2, "padding": 1}),
    (1, (8, 8), 1, (16,), {"stride": 8, "padding": 4}),
    (1, (70, 33), 2, (4,), {"stride": (2,), "padding": (1,)}),
    (1, (5, 4), 1, (3,), {"dilation": 3, "output_padding": 2}),
    (1, (5, 4), 1, (1,), {"stride": 3}),
    (2, (6, 5), 1, (2, 2), {"stride": 2}),
    (2, (6, 5), 1, (4, 4), {"stride": 2, "padding": 1}),
    (2, (6, 5), 1, (3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    (2, (3, 2), 4, (3, 2), {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}),
    (2, (1, 2), 9, (3, 3), {"stride": (1, 2), "output_padding": (0, 1)}),
    (2, (2, 2), 1, (3, 3), {"padding": 2}),
    (2, (2, 3), 1, (2, 3), {"stride": (3, 4), "padding": (1, 0), "output_padding": (0, 3)}),
    (3, (3, 4), 1, (2, 2, 2), {"stride": 2}),
    (3, (3, 4), 1, (3, 4, 4), {"stride": (1, 2, 2), "padding": (1, 1, 1)}),
    (3, (2, 2), 2, (3, 3, 3), {"stride": (2, 2, 1), "padding": 1, "output_padding": (1, 0, 0)}),
    (3, (1, 1), 6, (1, 2, 3), {"stride": (2, 3, 1), "dilation": (1, 1, 2)}),
    (3, (4, 3), 1, (3, 3, 3), {"dilation": 2, "padding": 2, "stride": 2, "output_padding": 1}),
)


@few(20)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("rank", "channels", "groups", "kernel", "options"), TRANSPOSED, ids=str)
def test_transposed_convolutions_are_those_of_torch(rank, channels, groups, kernel, options, dtype):
    c_in, c_out = channels
    sizes = (2, c_in * groups, *(4, 5, 7)[3 - rank :])
    weights = (c_in * groups, c_out, *kernel)
    x, w, bias = normal(7, sizes, weights, c_out * groups, dtype=dtype)
    y = getattr(trnconv, f"conv_transpose{rank}d")(x, w, bias, groups=groups, **options)
    linear = functional(f"conv_transpose{rank}d", groups=groups, **options)
    shape = linear(x, w, bias).shape
    assert y.shape == shape

    def as_volume(x, w, bias):
        return linear(x, w, bias).reshape(*shape[:2], *[1] * (3 - rank), *shape[2:])

    volume = y.reshape(*shape[:2], *[1] * (3 - rank), *shape[2:])
    check(volume, as_volume, (x, w, bias), c_in * prod(kernel))


def test_gradcheck_with_steps_of_one():
    """torch's own check of a gradient against central differences, with no tolerance at all.

    The kernels have no float64, and torch asks for it because differences with a small step lose
    digits. A convolution is linear in each operand, so that a step of 1 is as good as any; and with
    small integers every number on the way is an integer that float32 holds.
    """
    import torch

    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}

    class Conv2d(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, bias):
            ctx.save_for_backward(x, w)
            arrays = (x.detach().numpy(), w.detach().numpy(), bias.detach().numpy())
            return torch.from_numpy(convolve(*arrays, **options).y)

        @staticmethod
        def backward(ctx, dy):
            x, w = (saved.detach().numpy() for saved in ctx.saved_tensors)
            given = np.ascontiguousarray(dy.numpy())
            dx = input_gradient(given, w, x.shape, **options).y
            found = weight_gradient(x, given, w.shape[2:], **options)
            return tuple(torch.from_numpy(np.array(each)) for each in (dx, found.dw, found.db))

    rng = np.random.default_rng(8)
    sizes = ((1, 4, 4, 5), (4, 2, 3, 2), (4,))
    inputs = [
        torch.from_numpy(rng.integers(-3, 4, size).astype(np.float32)).requires_grad_()
        for size in sizes
    ]
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(Conv2d.apply, inputs, eps=1.0, atol=0.0, rtol=0.0)
