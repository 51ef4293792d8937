"""Reading a weight may have effects: patched models read it as often as torch's own code does."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn.utils import parametrizations, parametrize

from integer_networks import integers, with_integers
from trnconv.pytorch import patch_, patched, unpatch_
from trnconv.pytorch.calibration import calibrate
from trnconv.pytorch.patching.own_code import weight_shape, weight_type

pytestmark = pytest.mark.torch
KINDS = [
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
]


class Counting(nn.Module):
    """Says how often it was called."""

    def __init__(self, change=lambda weight: weight * 1):
        super().__init__()
        self.calls = 0
        self.change = change

    def forward(self, weight):
        self.calls += 1
        return self.change(weight)


def layer_of(kind, change=None):
    layer = with_integers(kind(2, 2, 3))
    counting = Counting() if change is None else Counting(change)
    parametrize.register_parametrization(layer, "weight", counting)
    counting.calls = 0
    return layer, counting


def example_for(kind):
    rank = int(kind.__name__[-2])
    return integers(1, 2, *(4, 5, 6)[:rank], seed=3)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_patching_evaluates_no_weight_and_a_call_one(kind, training, gradients):
    layer, counting = layer_of(kind)
    model, x = nn.Sequential(layer).train(training), example_for(kind)
    with torch.set_grad_enabled(gradients):
        expected = model(x)
        for machine in (model, layer):  # with a session, and without
            counting.calls = 0
            report = patch_(machine, backend="torch")
            str(report)
            assert counting.calls == 0
            assert torch.equal(model(x), expected)
            assert counting.calls == 1
            with parametrize.cached():
                assert torch.equal(model(x), expected)
                assert torch.equal(model(x), expected)
            assert counting.calls == 2
            str(report)
            copy.deepcopy(machine)
            unpatch_(machine)
            assert counting.calls == 2


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_reads_no_weight_besides(kind):
    layer, counting = layer_of(kind)
    calibrate(nn.Sequential(layer), lambda model: model(example_for(kind)))
    assert counting.calls == 1


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_spectral_norm_in_training_goes_one_step_on_in_a_call_and_none_besides(kind):
    torch.manual_seed(0)
    theirs = nn.Sequential(parametrizations.spectral_norm(kind(2, 2, 3))).train()
    ours, x = copy.deepcopy(theirs), example_for(kind)
    before = copy.deepcopy(ours.state_dict())
    patch_(ours, backend="torch")
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in before.items())
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(ours(x), theirs(x))
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_the_older_hooks_of_torch(norm, kind, gradients):
    torch.manual_seed(0)
    theirs = nn.Sequential(getattr(nn.utils, norm)(kind(2, 2, 3)))
    state = theirs.state_dict()
    ours = nn.Sequential(getattr(nn.utils, norm)(kind(2, 2, 3)))
    ours.load_state_dict(state)
    x = example_for(kind)
    report = patch_(ours, backend="torch")
    assert (report.entries[0].weight, report.left_to_torch) == ((2, 2, 3, 3), ())
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            torch.testing.assert_close(ours(x), theirs(x))
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


MADE = {
    "cat": lambda w: torch.cat([w[:, :, :1]] * 3, dim=2),
    "pad": lambda w: nn.functional.pad(w[:, :, 1:], (0, 0) * (w.dim() - 3) + (1, 0)),
    "clone": lambda w: w.clone(),
    "sum": lambda w: w + w.flip(0),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", MADE)
def test_weights_that_are_made_inside_of_the_run(made, kind, gradients):
    layer, _ = layer_of(kind, MADE[made])
    model, x = nn.Sequential(layer), example_for(kind)
    with (
        torch.set_grad_enabled(gradients),
        patched(copy.deepcopy(model), backend="torch") as report,
    ):
        del report
    expected = model(x)
    with patched(model, backend="torch"), torch.set_grad_enabled(gradients):
        assert torch.equal(model(x), expected)
        with parametrize.cached():
            first, second = model(x), model(x)
        assert torch.equal(first, expected)
        assert torch.equal(second, expected)
        assert type(second) is torch.Tensor


class Made(nn.Module):
    """Runs a layer that it makes itself."""

    def __init__(self, kind, make):
        super().__init__()
        self.layer = with_integers(kind(2, 2, 3))
        self.make = make

    def forward(self, x):
        return self.make(self.layer)(x * 1)


def with_cloned_parameters(layer):
    layer.weight = nn.Parameter(layer.weight.clone())
    layer.bias = nn.Parameter(layer.bias.clone())
    return layer


@pytest.mark.parametrize("make", [copy.deepcopy, with_cloned_parameters])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_are_made_inside_of_the_run(kind, make):
    model, x = Made(kind, make), example_for(kind)
    with torch.no_grad():
        expected = model(x)
        with patched(model, backend="torch"):
            assert torch.equal(model(x), expected)
            assert torch.equal(model(x), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_of_a_weight_without_making_it(kind):
    def made_by(change, dtype=torch.float32, *, unsafe=False):
        layer = kind(2, 4, 3)
        layer.weight.requires_grad_(requires_grad=False)
        layer.weight.data = layer.weight.data.to(dtype)
        parametrize.register_parametrization(layer, "weight", Counting(change), unsafe=unsafe)
        return layer

    sizes = tuple(kind(2, 4, 3).weight.shape)
    layers = {
        torch.float64: kind(2, 4, 3).double(),
        torch.bfloat16: made_by(lambda w: w * 1, torch.bfloat16),
        torch.float16: parametrizations.weight_norm(kind(2, 4, 3, dtype=torch.float16)),
        torch.float32: kind(2, 4, 3, device="meta"),
        None: made_by(lambda w: w.float() / 8, torch.int8, unsafe=True),
    }
    for dtype, layer in layers.items():
        assert (weight_type(layer), weight_shape(layer)) == (dtype, sizes)


def test_a_weight_that_is_a_property_of_the_class_is_not_read():
    reads = []

    class Equalized(nn.Conv2d):
        weight = property(lambda self: reads.append(1) or self.raw * 2)

    conv, x = with_integers(nn.Conv2d(2, 2, 3)), integers(1, 2, 4, 4)
    conv.raw = conv._parameters.pop("weight")
    conv.__class__ = Equalized
    model = nn.Sequential(conv)
    with torch.no_grad():
        expected = model(x)
        reads.clear()
        report = patch_(model, backend="torch")
        assert (reads, report.entries[0].weight) == ([], (2, 2, 3, 3))
        assert torch.equal(model(x), expected)
    assert reads == [1]


def test_parametrizations_registered_and_removed_after_patch():
    model, x = nn.Sequential(with_integers(nn.Conv2d(2, 2, 3))), integers(1, 2, 4, 4)
    expected = nn.functional.conv2d(x, model[0].weight * 2, model[0].bias)
    patch_(model, backend="torch")
    parametrize.register_parametrization(model[0], "weight", Counting(lambda w: w * 2))
    with torch.no_grad():
        assert torch.equal(model(x), expected)
        parametrize.remove_parametrizations(model[0], "weight")
        assert torch.equal(model(x), expected)
    unpatch_(model)
    assert torch.equal(model(x), expected)


def test_pickles_of_parametrized_models_are_refused_as_torch_refuses_them():
    layer, _ = layer_of(nn.Conv2d)
    model = nn.Sequential(layer)
    patch_(model, backend="torch")
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(model)
