"""nn.ChannelRMSNorm: torch's own formula in float64 and its gradients, shapes, backends, refusals.

In float32 a kernel makes some 40 roundings of 2**-24 for a value here, with condition numbers below
10, and some 120 for a gradient: 1e-5 and 1e-4 of the largest element.
"""

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.pytorch import nn

pytestmark = [pytest.mark.torch, pytest.mark.training]

TORCHS = {
    "identity": lambda u: u,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "mish": functional.mish,
}


def norm_of(channels, activation="silu", *, bias=True, backend="nkisim"):
    torch.manual_seed(1)
    norm = nn.ChannelRMSNorm(channels, eps=1e-3, activation=activation, bias=bias)
    norm.backend = backend
    with torch.no_grad():
        for weight in norm.parameters():
            weight.copy_(torch.randn(channels))
    return norm


def by_torch(norm, x):
    """In float64."""
    x = x.double()
    each = (-1, *(1,) * (x.dim() - 2))
    u = x * torch.rsqrt(x.square().mean(1, keepdim=True) + norm.eps)
    u = u * norm.weight.double().reshape(each)
    u = u if norm.bias is None else u + norm.bias.double().reshape(each)
    return TORCHS[norm.activation](u)


@pytest.mark.parametrize("sizes", [(2, 6, 9), (2, 6, 4, 5), (1, 6, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("activation", TORCHS)
def test_values_and_gradients_are_torchs(activation, sizes):
    norm, x = norm_of(6, activation), torch.randn(sizes, requires_grad=True)
    given = torch.randn(sizes)
    leaves = (x, norm.weight, norm.bias)
    y, want = norm(x), by_torch(norm, x)
    assert (y - want).abs().max() <= 1e-5 * want.abs().max()
    found = torch.autograd.grad((y * given).sum(), leaves)
    exact = torch.autograd.grad((want * given).sum(), leaves)
    for one, other in zip(found, exact, strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


def test_the_torch_backend_has_the_same_values():
    x = torch.randn(1, 6, 3, 4, 5)
    ours, theirs = (norm_of(6, backend=backend)(x) for backend in ("nkisim", "torch"))
    assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_without_a_bias_there_is_none():
    norm = norm_of(6, bias=False)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]
    x = torch.randn(1, 6, 8, requires_grad=True)
    norm(x).sum().backward()
    assert norm.weight.grad.shape == (6,)


@pytest.mark.parametrize("sizes", [(0, 6, 2, 3, 4), (1, 6, 0)], ids=str)
def test_nothing_makes_no_launch(sizes):
    norm, x = norm_of(6), torch.randn(sizes, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad.shape == sizes
    assert not norm.weight.grad.any()
    assert "activation='silu'" in repr(norm)


def test_a_compiled_step_is_an_eager_one():
    x = torch.randn(1, 6, 2, 4, 5)
    found = []
    for compiled in (False, True):
        norm = norm_of(6)
        step = torch.compile(norm, fullgraph=True, backend="aot_eager") if compiled else norm
        step(x).square().sum().backward()
        found.append(norm.weight.grad)
    torch.compiler.reset()
    assert torch.equal(*found)


@pytest.mark.parametrize("sizes", [(6,), (2, 5, 3), (2, 6), (1, 6, 2, 2, 2, 2)], ids=str)
def test_other_shapes_are_refused_in_words(sizes):
    with pytest.raises(ShapeError, match="6 channels"):
        norm_of(6)(torch.randn(sizes))


def test_other_activations_are_refused_in_words():
    with pytest.raises(UnsupportedError, match="elu"):
        nn.ChannelRMSNorm(6, activation="elu")
