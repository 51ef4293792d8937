"""Who computes is asked and never guessed."""

import threading

import pytest

torch = pytest.importorskip("torch")

from trnconv import pytorch
from trnconv.errors import UnsupportedError
from trnconv.pytorch import functional, nn
from trnconv.pytorch.backends import registry
from trnconv.runtime import plans

pytestmark = pytest.mark.torch

X, W = torch.ones(1, 2, 5), torch.ones(3, 2, 2)


class Elsewhere:
    """Stands for a tensor on a device this machine does not have."""

    def __init__(self, kind):
        self.device = torch.device(kind)


@pytest.fixture
def ran(monkeypatch):
    """The backends that computed, in order."""
    names = []
    for one, module in registry.BACKENDS.items():
        kept = module.compute
        monkeypatch.setattr(
            module, "compute", lambda *a, k=kept, n=one.value: names.append(n) or k(*a)
        )
    return names


def test_without_a_word_the_device_decides(monkeypatch):
    monkeypatch.delenv("TRNCONV_BACKEND", raising=False)
    choice = pytorch.choose_backend(X)
    assert choice.backend is pytorch.Backend.nkisim
    assert "cpu" in choice.reason
    assert pytorch.choose_backend(Elsewhere("xla")).backend is pytorch.Backend.neuron
    with pytest.raises(UnsupportedError, match='ask for backend="torch"'):
        pytorch.choose_backend(Elsewhere("cuda"))
    assert pytorch.choose_backend(Elsewhere("cuda"), "torch").backend is pytorch.Backend.torch


def test_the_call_beats_the_context_beats_the_environment(monkeypatch):
    monkeypatch.setenv("TRNCONV_BACKEND", "torch")
    assert "TRNCONV_BACKEND" in pytorch.choose_backend(X).reason
    with pytorch.backend("nkisim"):
        choice = pytorch.choose_backend(X)
        assert choice.backend is pytorch.Backend.nkisim
        assert "surrounding" in choice.reason
        with pytorch.backend("auto"):
            assert pytorch.choose_backend(X).backend is pytorch.Backend.torch
        assert pytorch.choose_backend(X, "torch").reason == "the call asked for it"
    assert pytorch.choose_backend(X).backend is pytorch.Backend.torch


def test_what_was_asked_for_is_what_runs(ran, monkeypatch):
    monkeypatch.delenv("TRNCONV_BACKEND", raising=False)
    functional.conv1d(X, W)
    functional.conv1d(X, W, backend="torch")
    with pytorch.backend(pytorch.Backend.torch):
        functional.conv1d(X, W)
        functional.conv1d(X, W, backend="nkisim")
    monkeypatch.setenv("TRNCONV_BACKEND", "torch")
    functional.conv1d(X, W)
    assert ran == ["nkisim", "torch", "torch", "nkisim", "torch"]


def test_gradients_run_where_the_output_was_computed(ran):
    w = W.clone().requires_grad_()
    x = X.clone().requires_grad_()
    with pytorch.backend("torch"):
        y = functional.conv1d(x, w)
    y.sum().backward()
    assert ran == ["torch"] * 3


def test_a_module_may_ask_for_itself(ran):
    module = nn.Conv1d(2, 3, 2)
    module.backend = "torch"
    module(X)
    assert ran == ["torch"]


def test_a_context_is_left_on_the_way_out_of_an_error():
    def fails():
        with pytorch.backend("torch"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert pytorch.choose_backend(X).backend is pytorch.Backend.nkisim


def test_a_context_does_not_reach_other_threads():
    found = []
    with pytorch.backend("torch"):
        thread = threading.Thread(target=lambda: found.append(pytorch.choose_backend(X).backend))
        thread.start()
        thread.join()
    assert found == [pytorch.Backend.nkisim]


def test_what_cannot_be_is_refused():
    with pytest.raises(UnsupportedError, match="move it to a Neuron device"):
        functional.conv1d(X, W, backend="neuron")
    with pytest.raises(UnsupportedError, match="it simulates CPU tensors"):
        pytorch.choose_backend(Elsewhere("xla"), "nkisim")
    with (
        pytest.raises(UnsupportedError, match="one of auto, neuron, nkisim, torch"),
        pytorch.backend("gpu"),
    ):
        pass


def test_the_torch_backend_computes_the_same():
    w = W.clone().requires_grad_()
    for name, options in (
        ("conv1d", {"padding": 1, "activation": "relu", "residual": torch.ones(1, 3, 6)}),
        ("conv_transpose1d", {"stride": 2}),
    ):
        weight = w if name == "conv1d" else w[:2]
        results = []
        for backend in ("torch", "nkisim"):
            y = getattr(functional, name)(X, weight, backend=backend, **options)
            results.append([y, *torch.autograd.grad(y.sum(), w)])
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_shape_is_planned_once(monkeypatch):
    planned = []
    kept = plans.shared_plans
    monkeypatch.setattr(plans, "shared_plans", lambda asked: planned.append(asked) or kept(asked))
    x = torch.ones(1, 2, 23).requires_grad_()  # a length no other test has
    w = W.clone().requires_grad_()
    for _ in range(2):
        functional.conv1d(x, w).sum().backward()
    asked = [(problem.direction, type(problem.shape).__name__) for problem in planned]
    assert sorted(asked) == [
        ("output", "ConvShape"),
        ("output", "TransposedShape"),
        ("weight gradient", "ConvShape"),
    ]
