"""The torch backend has all that kernels fuse."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.problem.epilogue import ACTIVATIONS, IDENTITY
from trnconv.pytorch.backends.aten import finished

pytestmark = pytest.mark.torch

SUM = torch.linspace(-3, 3, 25, dtype=torch.float64)


@pytest.mark.parametrize("name", [*ACTIVATIONS, "leaky_relu:0.1", "elu"])
def test_every_activation_of_a_kernel_is_one_of_torchs(name):
    ended = finished(SUM, name, None)
    assert ended.shape == SUM.shape
    assert torch.equal(ended, SUM) == (name == IDENTITY)


def test_a_residual_comes_before_the_activation():
    assert torch.equal(finished(SUM, "relu", -SUM), torch.zeros_like(SUM))
