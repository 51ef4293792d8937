"""Input gradients by Winograd: as exact as their policy says, whatever the gradient's size."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.algorithms.winograd.error import error_bound
from trnconv.algorithms.winograd.transforms import TRANSFORMS
from trnconv.problem.policy import BF16, FAST, Policy
from trnconv.pytorch import functional
from trnconv.pytorch.backends.gradient_scale import SCALED_MAX, scaled
from trnconv.runtime import simulator

pytestmark = [pytest.mark.torch, pytest.mark.training]

CHANNELS = 96  # the least that fast algorithms take
SIZE = (1, CHANNELS, 6, 8, 24)
BF16_STEP = 2.0**-8


def gradient(accuracy, dy, w, padding, kind=torch.bfloat16):
    x = torch.zeros(SIZE, dtype=kind, requires_grad=True)
    y = functional.conv3d(x, w.to(kind), padding=padding, accuracy=accuracy)
    y.backward(dy.to(kind))
    return x.grad


def exact(dy, w, padding):
    x = torch.zeros(SIZE, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.conv3d(x, w.double(), padding=padding).backward(dy.double())
    return x.grad


def drawn(padding, scale=1.0):
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(CHANNELS, CHANNELS, 3, 3, 3, generator=generator).bfloat16() / 16
    sizes = [n + 2 * p - 2 for n, p in zip(SIZE[2:], padding, strict=True)]
    dy = (torch.randn(1, CHANNELS, *sizes, generator=generator) * scale).bfloat16()
    return dy, w


@pytest.mark.parametrize(
    ("accuracy", "transform"), [(BF16, "F(2,3)"), (FAST, "F(4,3)")], ids=[BF16, FAST]
)
@pytest.mark.parametrize("padding", [(0, 1, 1), (1, 1, 1)], ids=["valid frames", "same"])
def test_errors_stay_within_the_bound_of_the_transform(accuracy, transform, padding, monkeypatch):
    dy, w = drawn(padding)
    asked = []
    prepared = simulator.SimulatedDevice.prepared

    def watched(device, problem):
        found = prepared(device, problem)
        asked.append(found.plans[0].family)
        return found

    monkeypatch.setattr(simulator.SimulatedDevice, "prepared", watched)
    found = gradient(Policy(accuracy, least_macs=0), dy, w, padding)
    assert any("F(" in family for family in asked), asked
    true = exact(dy, w, padding)
    w_sum = w.double().abs().sum(dim=(0, 2, 3, 4)).max().item()
    worst = max(
        error_bound(TRANSFORMS[name], dy.abs().max().item(), w_sum)
        for name in ("F(2,3)", transform)
    )
    rounded = BF16_STEP * (true.abs() + worst)
    assert ((found.double() - true).abs() <= worst + rounded).all()
    assert (found.double() - true).abs().max() > 0  # it was computed, and rounded


def test_tiny_gradients_lose_nothing_to_fp16():
    """2**-100 is far below fp16: the same gradient, scaled, has the same bits."""
    dy, w = drawn((1, 1, 1))
    policy = Policy(BF16, least_macs=0)
    plain = gradient(policy, dy, w, (1, 1, 1))
    tiny = gradient(policy, dy * 2.0**-100, w, (1, 1, 1))
    assert torch.equal(tiny.double() * 2.0**100, plain.double())
    assert plain.abs().max() > 0


@pytest.mark.parametrize(
    ("kind", "size"),
    [(torch.float32, size) for size in (1.0, 1.99, 1e-30, 7.0)]
    + [(torch.bfloat16, 2.0**-100), (torch.float16, 2.0**-14), (torch.float16, 3.5)],
)
def test_scaled_gradients_are_between_one_and_two(kind, size):
    dy = torch.tensor([size, -size / 4], dtype=kind)
    large, undo = scaled(dy)
    assert 1 <= large.abs().max() < 2
    assert torch.equal(large * undo, dy)


@pytest.mark.parametrize(
    ("kind", "size"), [(torch.float32, 3e38), (torch.bfloat16, 3e38), (torch.float16, 65504.0)]
)
def test_the_largest_gradients_stay_in_range(kind, size):
    dy = torch.tensor([size], dtype=kind)
    large, undo = scaled(dy)
    assert 1 <= large < SCALED_MAX
    assert torch.equal(large * undo, dy)


def test_nothing_is_scaled_to_nothing():
    large, undo = scaled(torch.zeros(3))
    assert not large.any()
    assert torch.isfinite(undo)
