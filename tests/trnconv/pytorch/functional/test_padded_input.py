"""What a convolution of ours pads, patched or not, is what torch's pads, by its attributes.

Small integers: sums are exact, and results are equal to the bit.
"""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from integer_networks import integers, with_integers
from trnconv.pytorch import nn as own_modules
from trnconv.pytorch import patch_

pytestmark = pytest.mark.torch
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
MODES = ["zeros", "constant", "reflect", "replicate", "circular"]
SIZE = (5, 6, 4)


def changed_padding(conv):
    """Zeros are padded by it; other modes have noted what they pad."""
    conv.padding = (0,) * len(conv.kernel_size)


def changed_mode(conv):
    conv.padding_mode = "circular"


def single_axis(conv):
    """Seamless along the last axis only."""
    conv._reversed_padding_repeated_twice = [1, 1] + [0, 0] * (len(conv.kernel_size) - 1)


def one_side(conv):
    conv._reversed_padding_repeated_twice = [2, 0] + [0, 1] * (len(conv.kernel_size) - 1)


def cropped(conv):
    conv._reversed_padding_repeated_twice = [-1, 1] * len(conv.kernel_size)


def fewer_axes(conv):
    """F.pad takes that for constants; torch refuses it for other modes, but of one axis."""
    conv._reversed_padding_repeated_twice = [1, 1]


CHANGES = [changed_padding, changed_mode, single_axis, one_side, cropped, fewer_axes]


class Scaled(nn.Module):
    """A convolution that a lazy tensor reaches."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return self.conv(torch.cat([x, x], dim=2)) * 2


def conv_of(rank, mode, padding=1, **options):
    conv = CONVOLUTIONS[rank](2, 2, 3, padding=padding, **options)
    conv.padding_mode = mode
    return with_integers(conv)


def outcome(model, x, *, gradients):
    """The result and its gradients, or the type of the error."""
    x = x.clone().requires_grad_(gradients)
    try:
        with torch.set_grad_enabled(gradients):
            y = model(x)
    except Exception as error:  # noqa: BLE001 (whatever torch raises is the expectation)
        return type(error)
    if not gradients:
        return [y]
    y.backward(integers(*y.shape, seed=9))
    return [y.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


def require_same(conv, x, *, backend="torch", gradients=False, lazy=True, session=True):
    model = Scaled(conv) if session else conv
    expected = outcome(copy.deepcopy(model), x, gradients=gradients)
    patch_(model, backend=backend, lazy=lazy)
    assert_same(outcome(model, x, gradients=gradients), expected)


def assert_same(ours, expected):
    if isinstance(expected, type):
        assert isinstance(ours, type), ours
        assert issubclass(ours, expected)
    else:
        assert not isinstance(ours, type), ours
        assert all(map(torch.equal, ours, expected))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", MODES)
def test_attributes_count_when_they_are_read(mode, change, rank):
    conv = conv_of(rank, mode)
    change(conv)
    x = integers(1, 2, *SIZE[:rank], seed=5)
    for how in ({}, {"lazy": False}, {"gradients": True}, {"session": False}):
        require_same(copy.deepcopy(conv), x, **how)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("change", [single_axis, one_side, changed_padding])
def test_kernels_compute_it(change, gradients):
    conv = conv_of(2, "circular")
    change(conv)
    require_same(conv, integers(1, 2, 5, 6), backend="nkisim", gradients=gradients)


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")  # even kernels, of torch
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [2, 3])
def test_same_padding_of_every_mode(kernel, mode, dilation):
    conv = nn.Conv2d(2, 2, kernel, padding="same", dilation=dilation)
    conv.padding_mode = mode
    for session in (True, False):
        require_same(with_integers(copy.deepcopy(conv)), integers(1, 2, 5, 6), session=session)


@pytest.mark.parametrize("padding", [3, 4, 5, 6])
@pytest.mark.parametrize("mode", MODES)
def test_padding_as_large_as_the_input_or_larger(mode, padding):
    for gradients in (False, True):
        x = integers(1, 2, 4, 4)
        require_same(conv_of(2, mode, padding), x, gradients=gradients, session=False)


@pytest.mark.parametrize(
    "sizes", [(2, 5, 6), (0, 2, 5, 6), (1, 2, 5, 6, 1, 1), (5, 6), (1, 3, 5, 6), (1, 2, 0, 6)]
)
@pytest.mark.parametrize("mode", [*MODES, "unknown"])
def test_inputs_of_other_ranks(mode, sizes):
    require_same(conv_of(2, mode), integers(*sizes), session=False)


@pytest.mark.parametrize("mode", ["circular", "replicate"])
def test_a_lazy_module_pads_when_it_knows_its_channels(mode):
    model = nn.Sequential(nn.LazyConv2d(2, 3, padding=1, padding_mode=mode), nn.ReLU())
    expected = copy.deepcopy(model)
    report = patch_(model, backend="torch")
    assert report.entries[0].weight == (2, 0, 3, 3)
    x = integers(1, 4, 5, 6)
    with torch.no_grad():
        model(x)
        expected(x)
        expected.load_state_dict(model.state_dict())
        assert torch.equal(model(x), expected(x))


def test_a_subclass_that_sets_its_padding_in_its_forward():
    class Seamless(nn.Conv2d):
        def forward(self, x):
            self.padding_mode = "circular"
            self._reversed_padding_repeated_twice = [1, 1, 0, 0]
            return self._conv_forward(x, self.weight, self.bias)

    require_same(with_integers(Seamless(2, 2, 3, padding=1)), integers(1, 2, 5, 6))


@pytest.mark.parametrize("change", [single_axis, one_side, changed_padding])
def test_compiled_code_pads_so_too(change):
    conv = conv_of(2, "circular")
    change(conv)
    model, x = nn.Sequential(conv), integers(1, 2, 5, 6)
    for gradients in (False, True):
        expected = outcome(copy.deepcopy(model), x, gradients=gradients)
        ours = copy.deepcopy(model)
        patch_(ours, backend="torch")
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
        result = outcome(compiled, x, gradients=gradients)
        assert not isinstance(result, type), result
        assert all(map(torch.equal, result, expected))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", MODES)
def test_modules_of_our_own_pad_so_too(mode, change, rank):
    theirs = conv_of(rank, mode)
    ours = getattr(own_modules, f"Conv{rank}d")(2, 2, 3, padding=1)
    ours.backend = "torch"
    ours.load_state_dict(theirs.state_dict())
    ours.padding_mode = theirs.padding_mode
    change(theirs)
    change(ours)
    x = integers(1, 2, *SIZE[:rank], seed=5)
    for gradients in (False, True):
        assert_same(outcome(ours, x, gradients=gradients), outcome(theirs, x, gradients=gradients))
