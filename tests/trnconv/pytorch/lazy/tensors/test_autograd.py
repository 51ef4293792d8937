"""Gradients of tensors that neither a model's parameters nor its arguments show."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.utils.checkpoint import checkpoint

from trnconv.pytorch import patch_

pytestmark = pytest.mark.torch
TOLERANCE = 1e-4  # of sums of squares of some hundred numbers below 10, in float32


class Scaled(torch.autograd.Function):
    """A function of somebody's own: what it saves stays in C++ until the backward pass."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).sum().reshape(1)


class Frozen(nn.Module):
    """A convolution without parameters that want a gradient, and something beside it."""

    def __init__(self, beside):
        super().__init__()
        self.conv, self.beside = nn.Conv3d(4, 4, 3, padding=1), beside
        self.requires_grad_(requires_grad=False)

    def forward(self, x):
        return self.beside(self, x)


def low_rank(leaf):
    """A LoRA: its weights belong to nobody that the model knows."""
    return lambda model, x: (
        model.conv(x) + nn.functional.conv3d(x, leaf * torch.ones(4, 4, 3, 3, 3), padding=1)
    )


BESIDE = {
    "a factor": lambda leaf: lambda model, x: model.conv(model.conv(x) * leaf),
    "a low rank": low_rank,
    "own function": lambda leaf: lambda model, x: Scaled.apply(model.conv(x), leaf),
    "padding after": lambda leaf: lambda model, x: nn.functional.pad(model.conv(x) * leaf, (1, 1)),
    "a checkpoint": lambda leaf: (
        lambda model, x: checkpoint(
            lambda y: model.conv(y) * leaf, model.conv(x), use_reentrant=False
        )
    ),
    "a weight": lambda leaf: (
        lambda model, x: model.conv._conv_forward(x, model.conv.weight * leaf, None)
    ),
    "in a view": lambda leaf: lambda model, x: in_a_view(model.conv(x), leaf),
    "in memory": lambda leaf: lambda model, x: in_memory(model.conv(x), leaf),
    "in a cache": lambda leaf: lambda model, x: torch.cat([model.conv(x), x * leaf], 2),
}


def in_a_view(y, leaf):
    first = y[:, :, :1]
    y[:, :, 1:] = y[:, :, 1:].clone() * leaf
    return y + first * leaf


def in_memory(y, leaf):
    out = torch.zeros_like(y)
    view = out[:, :, :1]
    out[:, :, :1] = y[:, :, :1] * leaf
    out[:, :, 1:] = y[:, :, 1:]
    return out * view.sum()


@pytest.mark.parametrize("backend", ["torch", "nkisim"])
@pytest.mark.parametrize("name", BESIDE)
def test_a_hidden_leaf_of_a_frozen_model_gets_the_unpatched_models_gradient(name, backend):
    x, gradients = torch.randn(1, 4, 3, 4, 5), []
    leaf = torch.full((1,), 0.5, requires_grad=True)
    model = Frozen(BESIDE[name](leaf))
    patched_model = copy.copy(model)
    patched_model.__dict__ = {**model.__dict__, "_modules": copy.deepcopy(model._modules)}
    patch_(patched_model, backend=backend)
    for run in (model, patched_model):
        leaf.grad = None
        y = run(x)
        y.square().mean().backward()
        assert type(y) is torch.Tensor
        gradients.append(leaf.grad.clone())
    assert torch.allclose(*gradients, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_backward_pass_inside_of_the_model_runs_on_tensors_of_torchs():
    def guided(model, x):
        latent = x.clone().requires_grad_()
        loss = model.conv(nn.functional.pad(latent, (1, 1))).square().sum()
        return torch.autograd.grad(loss, latent)[0]

    model, x = Frozen(guided), torch.randn(1, 4, 3, 4, 5)
    expected = model(x)
    patch_(model, backend="torch")
    gradient = model(x)
    assert type(gradient) is torch.Tensor
    assert torch.allclose(gradient, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_report_says_what_autograd_took():
    leaf = torch.ones(1, requires_grad=True)
    model = Frozen(lambda model, x: model.conv(x) * leaf)
    report = patch_(model, backend="torch")
    model(torch.randn(1, 4, 3, 4, 5))
    assert "1 x without rewrites: operators on tensors that require grad" in str(report)


def test_without_such_a_tensor_nothing_is_left_to_torch_and_nothing_is_recorded():
    model = Frozen(lambda model, x: model.conv(nn.functional.pad(x, (1, 1))))
    report = patch_(model, backend="torch")
    y = model(torch.randn(1, 4, 3, 4, 5))
    assert not y.requires_grad
    assert not report.stats.eager
    assert not report.stats.copies
