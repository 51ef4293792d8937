"""Convolutions are kept, all else is computed again: the same gradients with fewer bytes."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from trnconv.pytorch import nn
from trnconv.pytorch.operators import convolutions
from trnconv.pytorch.operators.checkpoint_policy import keep_convolutions

pytestmark = [pytest.mark.torch, pytest.mark.training]


class Block(torch.nn.Module):
    def __init__(self, kinds, channels=8):
        super().__init__()
        self.norm = nn.ChannelRMSNorm(channels, activation="silu")
        self.first = kinds.Conv3d(channels, channels, 3)
        self.second = kinds.Conv3d(channels, channels, 1)

    def forward(self, x):
        padded = torch.nn.functional.pad(self.norm(x), (1, 1, 1, 1, 2, 0))
        return x + self.second(torch.nn.functional.silu(self.first(padded)))


def gradients(block, x, run):
    leaf = x.clone().requires_grad_()
    block.zero_grad()
    run(block, leaf).square().sum().backward()
    return [leaf.grad, *(weight.grad.clone() for weight in block.parameters())]


def with_policy(block, x):
    contexts = partial(create_selective_checkpoint_contexts, keep_convolutions)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)


def without_policy(block, x):
    return checkpoint(block, x, use_reentrant=False)


def alone(block, x):
    return block(x)


def counted(monkeypatch):
    """Calls of our kernels of convolutions, from now on."""
    calls, compute = [], convolutions.compute

    def noted(call, *rest):
        calls.append(call)
        return compute(call, *rest)

    monkeypatch.setattr(convolutions, "compute", noted)
    return calls


@pytest.mark.parametrize("kinds", [nn, torch.nn], ids=["trnconv", "torch"])
def test_gradients_are_the_same(kinds):
    torch.manual_seed(0)
    block, x = Block(kinds), torch.randn(1, 8, 3, 4, 6)
    plain, *others = (gradients(block, x, run) for run in (alone, with_policy, without_policy))
    for found in others:
        assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))


@pytest.mark.parametrize(("run", "forwards"), [(with_policy, 2), (without_policy, 4)])
def test_convolutions_run_again_without_the_policy_only(run, forwards, monkeypatch):
    torch.manual_seed(0)
    block, x = Block(nn), torch.randn(1, 8, 3, 4, 6)
    calls = counted(monkeypatch)
    gradients(block, x, run)
    assert len(calls) == forwards + 2 + 2  # to x and to weights
