"""Every gradient of every kind of convolution, on integers: torch's in float64, bit by bit.

Small integers make every product and sum exact in float32 and in float64, in any order, so nothing
is tolerated. The maps are linear in each operand: a wrong coefficient shows in a drawn gradient
unless it meets a zero, and draws have none.
"""

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from repetition import few
from trnconv.problem.policy import BF16, DIRECT, FAST, HALF, Policy
from trnconv.pytorch import functional

pytestmark = [pytest.mark.torch, pytest.mark.training]

X = (2, 4, 3, 5, 6)
STRIDES, DILATIONS, GROUPS = (1, 2, (1, 2, 3)), (1, (1, 2, 1)), (1, 2, 4)
MODES = ("zeros", "replicate", "reflect", "circular")
ACCURACIES = (DIRECT, BF16, FAST, HALF)
PADDING = (1, 1, 2)
EXACT = 2**24  # integers up to here are float32 numbers


def integers(*shape, seed):
    drawn = torch.randint(1, 4, shape, generator=torch.Generator().manual_seed(seed))
    signs = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed + 1))
    return (drawn * (2 * signs - 1)).double()


def theirs(x, w, bias, mode, options):
    """torch's convolution of an input that is padded by torch."""
    if mode == "zeros":
        return torch.nn.functional.conv3d(x, w, bias, padding=PADDING, **options)
    sides = [side for pad in reversed(PADDING) for side in (pad, pad)]
    padded = torch.nn.functional.pad(x, sides, mode=mode)
    return torch.nn.functional.conv3d(padded, w, bias, **options)


def all_gradients(convolution, leaves):
    """Gradients of x, w and bias; then those of a product of them, of x, w and dy."""
    x, w, bias = (leaf.requires_grad_() for leaf in leaves)
    y = convolution(x, w, bias)
    dy = integers(*y.shape, seed=7).to(y.dtype).requires_grad_()
    first = torch.autograd.grad(y, (x, w, bias), dy, create_graph=True)
    given = [integers(*one.shape, seed=9).to(one.dtype) for one in first]
    second = torch.autograd.grad(first, (x, w, dy), given)
    return [y, *first, *second]


def cases():
    for stride, dilation, groups, mode in product(STRIDES, DILATIONS, GROUPS, MODES):
        yield {"stride": stride, "dilation": dilation, "groups": groups}, mode


@few(48)
@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize(("options", "mode"), list(cases()), ids=str)
def test_gradients_of_both_orders_are_torchs(options, mode, accuracy):
    leaves = [
        integers(*X, seed=1),
        integers(4, 4 // options["groups"], 2, 3, 2, seed=3),
        integers(4, seed=5),
    ]
    ours = all_gradients(
        lambda *operands: functional.conv3d(
            *operands, padding=PADDING, padding_mode=mode, accuracy=accuracy, **options
        ),
        [leaf.float() for leaf in leaves],
    )
    expected = all_gradients(
        lambda *operands: theirs(*operands, mode, options), [leaf.clone() for leaf in leaves]
    )
    for found, true in zip(ours, expected, strict=True):
        assert true.abs().max() < EXACT
        assert torch.equal(found.double(), true)


@pytest.mark.parametrize("padding", [(0, 1, 1), (1, 1, 1)], ids=str)
def test_fast_input_gradients_of_integers_are_exact(padding):
    """F(2,3) halves sums of filters: of integers, those are exact in fp16."""
    channels = 96  # the least that fast algorithms take
    x = torch.zeros(1, channels, 3, 6, 8, requires_grad=True)
    w = integers(channels, channels, 3, 3, 3, seed=1)
    y = functional.conv3d(
        x.bfloat16(), w.bfloat16(), padding=padding, accuracy=Policy(BF16, least_macs=0)
    )
    dy = integers(*y.shape, seed=2)
    direct = torch.zeros(x.shape, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.conv3d(direct, w, padding=padding).backward(dy)
    (found,) = torch.autograd.grad(y, x, dy.bfloat16())
    assert torch.equal(found, direct.grad.bfloat16().float())
