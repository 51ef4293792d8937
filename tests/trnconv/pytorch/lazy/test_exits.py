"""What leaves a patched model is a tensor of torch's, whoever else holds it."""

import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from trnconv.pytorch import patch_

pytestmark = pytest.mark.torch


class Keeping(nn.Module):
    """A convolution whose result something else holds when it leaves."""

    def __init__(self, keep):
        super().__init__()
        self.conv, self.keep, self.held = nn.Conv3d(4, 4, 3, padding=1), keep, None

    def forward(self, x):
        y = nn.functional.pad(self.conv(x), (1, 1))
        self.keep(self, y)
        return y


def a_view(model, y):
    model.held = y[:, :, -1:]


def a_view_of_a_view(model, y):
    model.held = y[:, :, 1:][..., :2]


def views_in_a_list(model, y):
    model.held = [y[:, :, :1], y[:, :, 1:], y.transpose(1, 2)]


def a_weak_reference(model, y):
    model.__dict__["held"] = weakref.ref(y)


def itself(model, y):
    model.held = y


def a_parameter_of_it(model, y):
    model.held = nn.Parameter(y.clone(), requires_grad=False)


HOLDERS = [a_view, a_view_of_a_view, views_in_a_list, a_weak_reference, itself, a_parameter_of_it]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("keep", HOLDERS, ids=lambda keep: keep.__name__)
def test_a_result_that_something_holds_leaves_as_a_tensor_of_torchs(keep, mode):
    model, x = Keeping(keep).requires_grad_(requires_grad=False), torch.randn(1, 4, 3, 4, 5)
    with mode():
        expected = model(x)
        patch_(model, backend="torch")
        y = model(x)
    assert type(y) is torch.Tensor
    assert torch.allclose(y, expected, atol=1e-5)
    if keep is a_weak_reference:
        assert model.held() is y
    if keep is a_parameter_of_it:
        assert type(model.held) is nn.Parameter


def test_a_view_that_is_kept_still_shows_the_result():
    model, x = Keeping(a_view).requires_grad_(requires_grad=False), torch.randn(1, 4, 3, 4, 5)
    patch_(model, backend="torch")
    y = model(x)
    y[:, :, -1:] = 7
    assert bool((model.held == 7).all())


def test_a_consumer_may_compile_what_leaves():
    model = Keeping(a_view).requires_grad_(requires_grad=False)
    patch_(model, backend="torch")
    compiled = torch.compile(lambda y: y * 2, fullgraph=True, backend="eager")
    y = model(torch.randn(1, 4, 3, 4, 5))
    assert torch.equal(compiled(y), y * 2)
