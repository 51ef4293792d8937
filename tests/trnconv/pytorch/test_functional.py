"""Every function against torch's, forward and backward, and its refusals.

The reference is torch in float64. With u = 2**-24 and n terms, a float32 sum is off by at most
gamma(n + 2) A, where A is the same map of absolute values (`tolerance` has the proof; one more
addition is the bias). The result is rounded to its type, and once more where the bias is added to
a rounded convolution; each time |value| <= A + error.
"""

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from repetition import few

torch = pytest.importorskip("torch")

from tolerance import output_rounding
from trnconv.errors import UnsupportedError
from trnconv.pytorch import functional

pytestmark = pytest.mark.torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
HOST_TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class Sample(NamedTuple):
    """A call: shapes of input and weight, whether there is a bias, and options."""

    x: tuple
    w: tuple
    bias: bool
    options: dict


def sample(x, w, *, bias=True, **options):
    return Sample(x, w, bias, options)


SAMPLES = {
    "conv1d": [
        sample((2, 3, 9), (4, 3, 3), stride=2, padding=1),
        sample((3, 8), (4, 3, 3), dilation=2, padding="same"),
        sample((2, 6, 7), (4, 3, 2), bias=False, groups=2, padding="valid"),
        sample((1, 4, 5), (4, 1, 3), groups=4, padding=(2,)),
        sample((2, 2, 4), (3, 2, 4), padding="same"),
        sample((0, 3, 8), (4, 3, 3)),
    ],
    "conv2d": [
        sample((2, 3, 6, 5), (4, 3, 3, 2), stride=(2, 1), padding=(1, 0)),
        sample((3, 6, 5), (4, 3, 2, 3), padding="same", dilation=(1, 2)),
        sample((2, 4, 5, 6), (6, 2, 3, 3), bias=False, groups=2, padding=1, dilation=2),
        sample((1, 3, 5, 5), (6, 1, 3, 3), groups=3, stride=3, padding=2),
        sample((2, 3, 4, 4), (2, 3, 1, 1)),
        sample((1, 2, 1, 1), (2, 2, 1, 1), padding=1),
    ],
    "conv3d": [
        sample((2, 3, 3, 5, 4), (4, 3, 3, 3, 3), padding=1),
        sample((3, 4, 5, 4), (2, 3, 2, 1, 2), stride=(1, 2, 1), dilation=(2, 1, 1)),
        sample((1, 4, 3, 4, 5), (4, 2, 1, 3, 3), bias=False, groups=2, padding="same"),
        sample((1, 2, 4, 6, 6), (3, 2, 3, 3, 3), stride=2, padding=(1, 0, 2)),
    ],
    "conv_transpose1d": [
        sample((2, 4, 5), (4, 3, 3), stride=2, padding=1, output_padding=1),
        sample((4, 5), (4, 3, 3), dilation=2),
        sample((1, 4, 5), (4, 1, 4), bias=False, groups=2, stride=3),
        sample((1, 2, 3), (2, 2, 2), dilation=3, output_padding=2),
        sample((0, 4, 5), (4, 3, 3)),
    ],
    "conv_transpose2d": [
        sample((2, 4, 4, 3), (4, 3, 3, 2), stride=(2, 1), padding=(1, 0), output_padding=(1, 0)),
        sample((4, 3, 4), (4, 2, 2, 2), bias=False, groups=2, stride=2),
        sample((1, 3, 3, 3), (3, 2, 3, 3), dilation=2, padding=1),
    ],
    "conv_transpose3d": [
        sample((2, 3, 2, 3, 3), (3, 4, 3, 3, 3), stride=2, padding=1, output_padding=1),
        sample((4, 2, 3, 3), (4, 1, 1, 2, 2), bias=False, groups=2, stride=(1, 2, 2)),
    ],
}
CALLS = [(name, each) for name, calls in SAMPLES.items() for each in calls]
IDS = [f"{name}-{number}" for name, calls in SAMPLES.items() for number in range(len(calls))]


def operands(name, each, dtype):
    generator = torch.Generator().manual_seed(len(name) + sum(each.x) + sum(each.w))
    groups = each.options.get("groups", 1)
    channels = each.w[1] * groups if "transpose" in name else each.w[0]
    shapes = [each.x, each.w, *([(channels,)] if each.bias else [])]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def with_gradients(function, tensors, options, dy=None):
    """The output, and the gradients of all operands."""
    leaves = [each.detach().requires_grad_() for each in tensors]
    y = function(*leaves, **options)
    upstream = torch.ones_like(y) if dy is None else dy.to(y.dtype)
    return [y, *torch.autograd.grad(y, leaves, upstream)]


def terms(name, given, y, groups):
    """How many terms the sums have: of y, and of the gradients of input, weight and bias."""
    x, w = given[:2]
    channel_axis = 1 - w.dim()  # counted from the last, because the batch may be missing
    of_input, of_output = w[0].numel(), w.numel() // (w.shape[1] * groups)
    positions = y.numel() // y.shape[channel_axis]
    if "transpose" in name:
        return [of_output, of_input, x.numel() // x.shape[channel_axis], positions]
    return [of_input, of_output, positions, positions]


ROUNDINGS = [2, 1, 1, 1]  # y is rounded before the bias is added, and after


def allowed(magnitude, count, dtype, roundings):
    u = 2.0**-24
    gamma = (count + 2) * u / (1 - (count + 2) * u)
    reach = magnitude.detach().double().numpy() * (1 + 2 * gamma)
    return gamma * reach + roundings * output_rounding(reach, np.dtype(dtype))


@few(26)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "each"), CALLS, ids=IDS)
def test_outputs_and_gradients_are_torchs(name, each, dtype):
    ours, theirs = getattr(functional, name), getattr(torch.nn.functional, name)
    given = operands(name, each, DTYPES[dtype])
    shape = ours(*given, **each.options).shape
    dy = torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(DTYPES[dtype])
    found = with_gradients(ours, given, each.options, dy)
    exact = with_gradients(theirs, [one.double() for one in given], each.options, dy)
    most = with_gradients(theirs, [one.double().abs() for one in given], each.options, dy.abs())
    counts = terms(name, given, dy, each.options.get("groups", 1))
    for one, right, *bound_by in zip(found, exact, most, counts, ROUNDINGS, strict=False):
        assert one.dtype == DTYPES[dtype]
        assert one.shape == right.shape
        error = (one.double() - right).abs().detach().numpy()
        magnitude, count, roundings = bound_by
        assert (error <= allowed(magnitude, count, HOST_TYPES[dtype], roundings)).all()


@few(8)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize(("name", "each"), CALLS, ids=IDS)
def test_without_gradients_the_fused_kernel_says_the_same(name, each):
    ours, theirs = getattr(functional, name), getattr(torch.nn.functional, name)
    integers = [torch.round(2 * one) for one in operands(name, each, torch.float32)]
    with torch.no_grad():
        assert torch.equal(ours(*integers, **each.options), theirs(*integers, **each.options))


def tensor(*shape):
    return torch.zeros(shape)


X, W = tensor(1, 2, 4, 4), tensor(3, 2, 2, 2)
REFUSED = {
    "types differ": ("conv2d", (X, W.bfloat16()), {}),
    "bias type differs": ("conv2d", (X, W, tensor(3).half()), {}),
    "bias of another length": ("conv2d", (X, W, tensor(2)), {}),
    "stride 0": ("conv2d", (X, W), {"stride": 0}),
    "negative stride": ("conv2d", (X, W), {"stride": (-1, 1)}),
    "negative padding": ("conv2d", (X, W), {"padding": -1}),
    "dilation 0": ("conv2d", (X, W), {"dilation": 0}),
    "groups 0": ("conv2d", (X, W), {"groups": 0}),
    "more groups than outputs": ("conv2d", (tensor(1, 8, 4, 4), W), {"groups": 4}),
    "other channels": ("conv2d", (tensor(1, 3, 4, 4), W), {}),
    "kernel too large": ("conv2d", (X, tensor(3, 2, 5, 5)), {}),
    "weight of another rank": ("conv2d", (X, tensor(3, 2, 2)), {"padding": "same"}),
    "input of another rank": ("conv2d", (tensor(2, 4), W), {}),
    "strides for three axes": ("conv2d", (X, W), {"stride": (1, 1, 1)}),
    "padding by an unknown name": ("conv2d", (X, W), {"padding": "full"}),
    "same with a stride": ("conv2d", (X, W), {"padding": "same", "stride": 2}),
    "input is a list": ("conv2d", ([1.0], W), {}),
    "weight is a list": ("conv2d", (X, [1.0]), {}),
    "stride is a fraction": ("conv2d", (X, W), {"stride": (1.5, 1)}),
    "large output padding": ("conv_transpose2d", (X, tensor(2, 3, 2, 2)), {"output_padding": 1}),
    "transposed channels": ("conv_transpose2d", (X, tensor(3, 2, 2, 2)), {}),
    "all cropped": ("conv_transpose1d", (tensor(1, 2, 2), tensor(2, 1, 1)), {"padding": 3}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_torch_refuses_is_refused_with_the_same_type(case):
    name, given, options = REFUSED[case]
    with pytest.raises((RuntimeError, TypeError, ValueError)) as theirs:
        getattr(torch.nn.functional, name)(*given, **options)
    with pytest.raises(theirs.type) as ours:
        getattr(functional, name)(*given, **options)
    assert ours.type in (RuntimeError, TypeError)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64])
def test_a_type_the_kernels_do_not_have_is_refused_with_a_remedy(dtype):
    with pytest.raises(UnsupportedError, match="Cast the input"):
        functional.conv2d(X.to(dtype), W.to(dtype))


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
def test_a_padding_mode_pads_as_torch_pads(mode):
    x, w = torch.arange(2.0 * 3 * 5).reshape(1, 2, 3, 5), torch.ones(2, 2, 3, 2)
    padded = torch.nn.functional.pad(x, (2, 2, 1, 1), mode=mode)
    found = functional.conv2d(x, w, padding=(1, 2), padding_mode=mode)
    assert torch.equal(found, torch.nn.functional.conv2d(padded, w))


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["unbatched", "batched"])
def test_activation_and_residual_are_the_same_with_and_without_gradients(batch, wants_gradient):
    x = torch.arange(float(np.prod([*batch, 2, 6]))).reshape(*batch, 2, 6) - 9
    w = torch.tensor([[[1.0, -1], [0, 2]], [[2, 1], [-1, -1]], [[0, 0], [3, -2]]])
    residual = torch.full((*batch, 3, 5), -4.0)
    w.requires_grad_(wants_gradient)
    found = functional.conv1d(x, w, activation="relu", residual=residual)
    assert torch.equal(found, torch.relu(torch.nn.functional.conv1d(x, w) + residual))


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("leaky_relu:0.5", lambda z: torch.nn.functional.leaky_relu(z, 0.5)),
        ("leaky_relu", torch.nn.functional.leaky_relu),
        ("elu", torch.nn.functional.elu),
    ],
    ids=["slope", "default slope", "elu"],
)
def test_a_composed_activation_is_torchs(name, expected, wants_gradient):
    """Of integers: the sums are exact, and what follows is rounded a few times in float32."""
    x = torch.arange(24.0).reshape(2, 2, 6) - 9
    w = torch.tensor([[[1.0, -1], [0, 2]], [[2, 1], [-1, -1]], [[0, 0], [3, -2]]])
    w.requires_grad_(wants_gradient)
    found = functional.conv1d(x, w, activation=name)
    z = torch.nn.functional.conv1d(x, w)
    assert torch.allclose(found, expected(z), rtol=2.0**-22, atol=2.0**-22)
    other = functional.conv1d(x, w, activation="leaky_relu:0.25")
    assert not torch.allclose(found, other, rtol=2.0**-22, atol=2.0**-22)


@pytest.mark.parametrize("residual", [tensor(1, 3, 1, 1), tensor(1, 3, 3, 3).half()])
def test_a_residual_is_not_broadcast_or_cast(residual):
    with pytest.raises(RuntimeError, match="it must be the same"):
        functional.conv2d(X, W, residual=residual)


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match="padding_mode 'mirror'"):
        functional.conv2d(X, W, padding_mode="mirror")
    with pytest.raises(UnsupportedError, match="activation 'cubic'"):
        functional.conv2d(X, W, activation="cubic")
    with pytest.raises(UnsupportedError, match="above 0 and at most 1"):
        functional.conv2d(X, W, activation="leaky_relu:1.5")
    with pytest.raises(UnsupportedError, match="backend 'cuda'"):
        functional.conv2d(X, W, backend="cuda")
