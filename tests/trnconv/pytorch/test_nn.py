"""The modules are torch's, but for who computes."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import parametrize

from trnconv.pytorch import nn

pytestmark = pytest.mark.torch

MADE = {
    "Conv1d": ((2, 4, 3), {"stride": 2, "padding": "valid"}, (2, 2, 7)),
    "Conv2d": ((2, 4, (3, 2)), {"padding": (1, 0), "groups": 2}, (2, 2, 5, 6)),
    "Conv3d": ((2, 3, 2), {"dilation": 2, "bias": False}, (1, 2, 3, 4, 5)),
    "ConvTranspose1d": ((2, 4, 3), {"stride": 2, "output_padding": 1}, (2, 2, 5)),
    "ConvTranspose2d": ((2, 4, 3), {"stride": 2, "groups": 2}, (2, 2, 4, 3)),
    "ConvTranspose3d": ((2, 3, 2), {"padding": 1}, (1, 2, 3, 3, 4)),
}


def integers(*shape, seed=0):
    """Small ones: sums are exact, so results are equal in whatever order they are computed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).float()


def made(name, kinds=nn, seed=0):
    arguments, options, shape = MADE[name]
    module = getattr(kinds, name)(*arguments, **options)
    for number, each in enumerate(module.parameters()):
        each.data = integers(*each.shape, seed=seed + number)
    return module, integers(*shape, seed=9)


def saved_and_loaded(module):
    written = io.BytesIO()
    torch.save(module, written)
    written.seek(0)
    return torch.load(written, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),  # noqa: S301 (our own bytes)
    "torch.save": saved_and_loaded,
}


@pytest.mark.parametrize("name", MADE)
def test_a_module_is_one_of_torchs_and_says_so(name):
    ours, _ = made(name)
    theirs, _ = made(name, torch.nn)
    assert isinstance(ours, getattr(torch.nn, name))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", MADE)
def test_modules_start_with_torchs_random_weights(name):
    arguments, options, _ = MADE[name]
    states = []
    for kinds in (nn, torch.nn):
        torch.manual_seed(0)
        states.append(getattr(kinds, name)(*arguments, **options).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", MADE)
def test_states_load_strictly_both_ways(name):
    ours, x = made(name)
    theirs, _ = made(name, torch.nn, seed=5)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert torch.equal(ours(x), theirs(x))
    ours, _ = made(name)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert torch.equal(theirs(x), ours(x))


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_equal_and_apart(way):
    module, x = made("Conv2d")
    module.backend = "torch"
    copied = COPIES[way](module)
    assert type(copied) is nn.Conv2d
    assert copied.backend == "torch"
    assert torch.equal(copied(x), module(x))
    with torch.no_grad():
        copied.weight.zero_()
    assert module.weight.any()


@pytest.mark.parametrize("name", MADE)
def test_to_changes_the_type_that_is_computed_in(name):
    module, x = made(name)
    assert module.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_hooks_run():
    module, x = made("Conv1d")
    seen = []
    module.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
    module.register_forward_hook(lambda _, __, y: y + 1)
    module.register_full_backward_hook(lambda *_: seen.append("backward"))
    y = module(x.requires_grad_())
    y.sum().backward()
    assert seen == [(2, 2, 7), "backward"]
    assert torch.equal(y, torch.nn.functional.conv1d(x, *module.parameters(), 2) + 1)


def test_a_parametrised_weight_has_gradients_of_its_parts():
    """Directions of length 2 and integers: weight_norm divides by powers of two, exactly."""
    module, x = made("Conv2d")
    theirs, _ = made("Conv2d", torch.nn)
    grads = []
    for each in (module, theirs):
        each.weight.data = (
            torch.tensor([1.0, 0, -1, 1, 0, 1]).reshape(1, 1, 3, 2).repeat(4, 1, 1, 1)
        )
        torch.nn.utils.parametrizations.weight_norm(each)
        each(x).square().sum().backward()
        grads.append({name: one.grad for name, one in each.named_parameters()})
    assert len(grads[0]) == 3  # bias, length and direction
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[1])


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
def test_padding_modes(mode):
    arguments = {"padding": (1, 2), "padding_mode": mode}
    ours = nn.Conv2d(2, 3, 3, bias=False, **arguments)
    theirs = torch.nn.Conv2d(2, 3, 3, bias=False, **arguments)
    ours.weight.data = integers(3, 2, 3, 3)
    theirs.load_state_dict(ours.state_dict())
    x = integers(1, 2, 5, 6, seed=1)
    assert torch.equal(ours(x), theirs(x))


def test_a_transposed_module_takes_an_output_size():
    module, x = made("ConvTranspose2d")
    assert module(x, output_size=(10, 8)).shape == (2, 4, 10, 8)
    with pytest.raises(ValueError, match="requested an output size"):
        module(x, output_size=(20, 8))


def test_unpickled_by_torch_with_weights_only_the_state_is_enough():
    module, _ = made("Conv3d")
    written = io.BytesIO()
    torch.save(module.state_dict(), written)
    written.seek(0)
    state = torch.load(written, weights_only=True)
    made("Conv3d", torch.nn)[0].load_state_dict(state, strict=True)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_a_call_reads_a_parametrized_weight_once(name, gradients):
    calls = []

    class Counting(torch.nn.Module):
        def forward(self, weight):
            calls.append(name)
            return weight * 2

    module, x = made(name)
    module.backend = "torch"
    parametrize.register_parametrization(module, "weight", Counting())
    calls.clear()
    with torch.set_grad_enabled(gradients):
        module(x)
    assert calls == [name]
