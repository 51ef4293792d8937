"""Every class of arguments of torch's convolutions is computed within the bound, or refused.

What torch refuses is refused here, with a reason; and so is the little that torch computes and the
kernels do not. With `-m torch` both columns of the table are held against torch itself.
"""

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import trnconv
from family_bounds import ended, sums_of
from repetition import few
from trnconv.errors import TrnconvError
from trnconv.problem.epilogue import PLAIN_EPILOGUE, epilogue_of
from trnconv.runtime import LaunchOptions, convolve
from trnconv.runtime.gradients import input_gradient


@dataclass(frozen=True)
class Call:
    """A call of torch.nn.functional, by sizes."""

    function: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    bias: int = 0  # elements; 0: none
    dtype: str = "float32"

    def arrays(self):
        """x, w and bias in small integers."""
        rng = np.random.default_rng(11)
        sizes = [self.x, self.w, self.bias]
        x, w, bias = (rng.integers(-3, 4, size).astype(self.dtype) for size in sizes)
        return x, w, bias if self.bias else None

    def __str__(self) -> str:
        given = [f"{name}={value}" for name, value in self.options.items()]
        words = (self.function, self.x, self.w, *given, self.bias or "", self.dtype)
        return " ".join(str(word) for word in words if word != "")


LINE, PLANE, VOLUME = (2, 4, 9), (2, 4, 6, 7), (1, 4, 4, 5, 6)
UP = (4, 3, 3, 3)  # a filter of conv_transpose2d

COMPUTED = (
    Call("conv1d", LINE, (5, 4, 3)),
    Call("conv1d", LINE, (5, 4, 3), bias=5),
    Call("conv1d", LINE, (5, 4, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    Call("conv1d", LINE, (5, 4, 3), {"stride": (2,), "padding": (1,), "dilation": (2,)}),
    Call("conv1d", LINE, (5, 4, 3), {"padding": "same"}),
    Call("conv1d", LINE, (5, 4, 4), {"padding": "valid", "stride": 3}),
    Call("conv1d", LINE, (4, 1, 3), {"groups": 4}),
    Call("conv1d", LINE, (8, 1, 3), {"groups": 4}, bias=8),
    Call("conv2d", PLANE, (6, 2, 3, 3), {"groups": 2, "padding": (1, 0), "stride": (1, 2)}),
    Call("conv2d", PLANE, (6, 4, 3, 5), {"padding": "same", "dilation": (2, 1)}),
    Call("conv2d", PLANE, (6, 4, 3, 3), {"padding": 4}),
    Call("conv3d", VOLUME, (3, 4, 3, 3, 3), {"padding": "same"}, bias=3),
    Call("conv3d", VOLUME, (3, 4, 3, 1, 2), {"padding": (2, 0, 1), "dilation": (2, 1, 3)}),
    Call("conv3d", VOLUME, (4, 2, 2, 2, 2), {"groups": 2, "stride": 2}),
    Call("conv1d", LINE[1:], (5, 4, 3), bias=5),
    Call("conv3d", VOLUME[1:], (3, 4, 3, 3, 3)),
    Call("conv_transpose2d", PLANE[1:], UP, {"stride": 2, "output_padding": 1}),
    Call("conv_transpose1d", LINE, (4, 5, 3)),
    Call("conv_transpose1d", LINE, (4, 5, 4), {"stride": 2, "padding": 1}, bias=5),
    Call("conv_transpose1d", LINE, (4, 5, 4), {"stride": (3,), "output_padding": (2,)}),
    Call("conv_transpose1d", LINE, (4, 5, 3), {"dilation": 3, "output_padding": 2}),
    Call("conv_transpose2d", PLANE, UP, {"stride": 2, "padding": 1, "output_padding": 1}),
    Call("conv_transpose2d", PLANE, UP, {"stride": (1, 3), "padding": (2, 0)}, bias=3),
    Call("conv_transpose2d", PLANE, UP, {"groups": 2, "stride": 2}, bias=6),
    Call("conv_transpose2d", PLANE, (4, 1, 2, 2), {"groups": 4, "stride": 2}),
    Call("conv_transpose2d", PLANE, (4, 2, 2, 2), {"groups": 4, "stride": 2, "dilation": 2}),
    Call("conv_transpose3d", VOLUME, (4, 3, 2, 2, 2), {"stride": 2}),
    Call("conv_transpose3d", VOLUME, (4, 3, 3, 3, 3), {"stride": (1, 2, 2), "padding": 1}),
)

# The call, and words of the reason.
REFUSED = (
    (Call("conv1d", LINE, (5, 3, 3)), "4 channels and the weight reads 3"),
    (Call("conv1d", LINE, (5, 4, 3), {"padding": "full"}), "'full'"),
    (Call("conv1d", LINE, (5, 4, 3), {"padding": "Same"}), "'Same'"),
    (Call("conv1d", LINE, (5, 4, 3), {"padding": "same", "stride": 2}), "stride 1 only"),
    (Call("conv1d", LINE, (5, 4, 3), {"padding": -1}), "not negative"),
    (Call("conv1d", LINE, (5, 4, 3), {"padding": (1, 1)}), "each of 1 axes"),
    (Call("conv1d", LINE, (5, 4, 3), {"stride": 0}), "stride along width is 0"),
    (Call("conv1d", LINE, (5, 4, 3), {"stride": -1}), "stride along width is -1"),
    (Call("conv1d", LINE, (5, 4, 3), {"dilation": 0}), "dilation along width is 0"),
    (Call("conv1d", LINE, (5, 4, 11)), "reaches over 11 elements"),
    (Call("conv1d", LINE, (6, 1, 3), {"groups": 4}), "4 groups of 4 input and 6 output"),
    (Call("conv1d", LINE, (6, 2, 3), {"groups": 3}), "in each of 3 groups"),
    (Call("conv1d", LINE, (6, 4, 3), {"groups": 0}), "0 groups"),
    (Call("conv1d", LINE, (6, 4, 3), {"groups": -1}), "-1 groups"),
    (Call("conv2d", LINE, (5, 4, 3)), r"weight \(5, 4, 3\): both have"),
    (Call("conv2d", VOLUME, (5, 4, 3, 3, 3)), "conv2d of an input with 5 dimensions"),
    (Call("conv1d", (9,), (5, 4, 3)), "conv1d of an input with 1 dimensions"),
    (Call("conv2d", PLANE, (5, 4, 3)), "3, 4 or 5 dimensions"),
    (Call("conv3d", VOLUME, (3, 4, 3, 3, 3), {"stride": (1, 2)}), "each of 3 axes"),
    (Call("conv_transpose1d", LINE, (5, 4, 3)), "4 channels in 1 groups, the weight has 5"),
    (Call("conv_transpose1d", LINE, (4, 5, 3), {"groups": 3}), "in 3 groups"),
    (Call("conv_transpose1d", LINE, (4, 5, 3), {"output_padding": 1}), "at most 0"),
    (Call("conv_transpose1d", LINE, (4, 5, 3), {"output_padding": 2, "stride": 2}), "at most 1"),
    (Call("conv_transpose1d", LINE, (4, 5, 3), {"output_padding": -1}), "output_padding -1"),
    (Call("conv_transpose1d", LINE, (4, 5, 3), {"padding": 7}), "crop"),
    (Call("conv_transpose2d", LINE, UP), "2 channels in 1 groups, the weight has 4"),
    (Call("conv_transpose2d", LINE[1:], UP), "conv_transpose2d of an input with 2 dimensions"),
    (Call("conv_transpose2d", PLANE, UP, {"stride": (1, 2, 3)}), "each of 2 axes"),
)

# What torch computes, and the kernels do not.
ONLY_TORCH = (
    (Call("conv1d", LINE, (5, 4, 3), dtype="float64"), "float64.*Cast"),
    (Call("conv1d", LINE, (5, 4, 3), dtype="int32"), "int32.*Cast"),
    (Call("conv_transpose1d", LINE, (4, 5, 3), dtype="float64"), "float64.*Cast"),
)


def calls(table):
    return pytest.mark.parametrize("call", table, ids=str)


def refusals(table):
    ids = [f"{call}: {reason}" for call, reason in table]
    return pytest.mark.parametrize(("call", "reason"), table, ids=ids)


def computed(call):
    return getattr(trnconv, call.function)(*call.arrays(), **call.options)


def by_torch(call, x, w, bias):
    import torch

    tensors = [None if each is None else torch.from_numpy(each) for each in (x, w, bias)]
    return getattr(torch.nn.functional, call.function)(*tensors, **call.options).numpy()


@refusals((*REFUSED, *ONLY_TORCH))
def test_what_is_not_computed_is_refused_with_a_reason(call, reason):
    with pytest.raises(TrnconvError, match=reason):
        computed(call)


@pytest.mark.torch
@calls([call for call, _ in REFUSED])
def test_torch_refuses_the_same(call):
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        by_torch(call, *call.arrays())


@few(14)
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@calls(COMPUTED)
def test_what_is_computed_is_what_torch_computes(call):
    y = computed(call)

    def wide(*arrays):
        given = (None if each is None else each.astype(np.float64) for each in arrays)
        return by_torch(call, *given)

    terms = prod(call.w)  # no output has more
    exact, bound = ended(sums_of(wide, call.arrays(), terms), PLAIN_EPILOGUE, None, y.dtype)
    assert not bound.any()  # small integers
    np.testing.assert_array_equal(y, exact)


NO_IMAGES = (
    Call("conv1d", (0, 4, 9), (5, 4, 3), bias=5),
    Call("conv2d", (0, 4, 6, 7), (6, 2, 3, 3), {"groups": 2, "stride": 2}),
    Call("conv_transpose2d", (0, 4, 6, 7), (4, 3, 1, 1), {"stride": 4, "output_padding": 3}),
    Call("conv_transpose3d", (0, 4, 4, 5, 6), (4, 3, 2, 2, 2), {"dilation": 3}, bias=3),
)


@calls(NO_IMAGES)
def test_no_images_have_an_output_of_none(call):
    y = computed(call)
    one = computed(replace(call, x=(1, *call.x[1:])))
    assert y.shape == (0, *one.shape[1:])
    assert y.dtype == one.dtype


@pytest.mark.torch
@calls(NO_IMAGES)
def test_torch_has_the_same_output_for_no_images(call):
    assert computed(call).shape == by_torch(call, *call.arrays()).shape


def test_no_images_are_checked_as_any():
    with pytest.raises(TrnconvError, match="4 channels and the weight reads 3"):
        computed(Call("conv1d", (0, 4, 9), (5, 3, 3)))
    with pytest.raises(TrnconvError, match=r"bias \(4,\): \(5,\) is needed"):
        computed(Call("conv1d", (0, 4, 9), (5, 4, 3), bias=4))


def test_modes_and_cores_are_those_of_the_call():
    x, w, _ = Call("conv2d", PLANE, (5, 4, 3, 3)).arrays()
    y = trnconv.conv2d(x, w, padding=1, padding_mode="circular", cores=2)
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="wrap")
    np.testing.assert_array_equal(y, trnconv.conv2d(around, w))
    with pytest.raises(TrnconvError, match="2 cores on trn1"):
        trnconv.conv2d(x, w, cores=2, machine="trn1")
    up = np.swapaxes(w, 0, 1).copy()
    twice = trnconv.conv_transpose2d(x, up, stride=2, cores=2)
    np.testing.assert_array_equal(twice, trnconv.conv_transpose2d(x, up, stride=2))


X = np.ones((1, 4, 5, 6), np.float32)
W = np.ones((3, 4, 3, 3), np.float32)


def launched(**options):
    return convolve(X, W, padding=1, launch=LaunchOptions(**options))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cores": 3}, "3 cores on trn2"),
        ({"cores": 0}, "0 cores on trn2"),
        ({"machine": "trn1", "cores": 2}, "2 cores on trn1"),
    ],
    ids=str,
)
def test_launches_that_no_machine_has_are_refused(options, reason):
    with pytest.raises(TrnconvError, match=reason):
        launched(**options)


def test_ends_that_are_not_known_are_refused():
    with pytest.raises(TrnconvError, match=r"activation 'swish'.*silu"):
        epilogue_of("swish", "none", "")
    with pytest.raises(TrnconvError, match="residual 'between'"):
        epilogue_of("relu", "between", "")


def test_padding_modes_are_refused_where_they_are_not_defined():
    with pytest.raises(TrnconvError, match=r"'mirror'.*reflect or circular"):
        convolve(X, W, padding=1, padding_mode="mirror")
    with pytest.raises(TrnconvError, match=r"reflect padding of 5 along height.*at most 4"):
        convolve(X, W, padding=(5, 1), padding_mode="reflect")
    with pytest.raises(TrnconvError, match=r"circular padding of 7 along width.*at most 6"):
        convolve(X, W, padding=(1, 7), padding_mode=("zeros", "circular"))
    with pytest.raises(TrnconvError, match="one for each of 2 axes"):
        convolve(X, W, padding=1, padding_mode=("zeros", "zeros", "circular"))
    with pytest.raises(TrnconvError, match=r"reflect padding of 5 along height.*at most 4"):
        input_gradient(
            np.ones((1, 3, 13, 6), np.float32), W, X.shape, padding=(5, 1), padding_mode="reflect"
        )


def test_inputs_may_be_views():
    rng = np.random.default_rng(12)
    x = rng.integers(-3, 4, (1, 8, 10, 12)).astype(ml_dtypes.bfloat16)
    every_other = x[:, ::2, ::2, ::2]
    w = rng.integers(-3, 4, W.shape).astype(ml_dtypes.bfloat16)
    y = trnconv.conv2d(every_other, w, padding=1)
    np.testing.assert_array_equal(y, trnconv.conv2d(every_other.copy(), w, padding=1))
    turned = np.asfortranarray(every_other)
    np.testing.assert_array_equal(y, trnconv.conv2d(turned, w, padding=1))
