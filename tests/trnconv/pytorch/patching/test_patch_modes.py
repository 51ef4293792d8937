"""What a patched model does under torch's modes, hooks and transforms, and with its users' code."""

import copy
import inspect
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from integer_networks import integers, small_decoder, with_integers
from trnconv.errors import UnsupportedError
from trnconv.pytorch import patch_, patched
from trnconv.pytorch.lazy import LazyTensor

pytestmark = pytest.mark.torch
DEPRECATED = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own use


class Causal(nn.Module):
    """Pads, joins and convolves, with a function of the user's in between."""

    def __init__(self, between=lambda h: h):
        super().__init__()
        self.first = nn.Conv3d(2, 2, 3, padding=(0, 1, 1))
        self.second = nn.Conv3d(2, 2, 1)
        self.between = between

    def forward(self, x):
        h = self.first(torch.cat([x[:, :, :1], x[:, :, :1], x], dim=2))
        return self.second(self.between(h))


def causal(between=lambda h: h):
    return with_integers(Causal(between)).requires_grad_(requires_grad=False), integers(
        1, 2, 3, 4, 5
    )


USES = {
    "isinstance": lambda h: h if isinstance(h, torch.Tensor) and torch.is_tensor(h) else None,
    "format": lambda h: h if f"{h.sum():.1f} {h}" else None,
    "from either side": lambda h: 2.0 * (1 - h) + (h - 1) * 2,
    "deepcopy": copy.deepcopy,
    "pickle": lambda h: pickle.loads(pickle.dumps(h)),  # noqa: S301 (our own)
    "torch.tensor": lambda h: torch.as_tensor(h.tolist()),
    "numpy": lambda h: torch.from_numpy(h.numpy().copy()),
    "pytree": lambda h: torch.utils._pytree.tree_map(lambda leaf: leaf + 1, [h])[0],
    "vmap": torch.func.vmap(lambda one: one * 2),
    "dlpack": torch.from_dlpack,
    "cond": lambda h: (
        h + torch.cond(torch.tensor(1) > 0, lambda: torch.ones(()), lambda: -torch.ones(()))
    ),
}


@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("use", USES)
def test_a_lazy_tensor_is_used_as_any_tensor(use, grad_mode):
    model, x = causal(USES[use])
    with grad_mode():
        expected = model(x)
        with patched(model, backend="torch"):
            ours = model(x)
    assert type(ours) is torch.Tensor
    assert torch.equal(ours, expected)


def test_einops_functions_and_layers():
    einops = pytest.importorskip("einops")
    from einops.layers.torch import Rearrange

    layer = Rearrange("b c t h w -> (b t) c h w")

    def between(h):
        images = einops.rearrange(h, "b c t h w -> (b t) c h w")
        assert torch.equal(images, layer(h))
        grown = einops.repeat(images, "n c h w -> n c (h 2) w")
        return einops.rearrange(grown, "(b t) c h w -> b c t h w", b=1)

    model, x = causal(between)
    with torch.no_grad():
        expected = model(x)
        with patched(model, backend="torch") as report:
            assert torch.equal(model(x), expected)
    assert {work.module for work in report.stats.works} == {"first", "second"}


class Standardised(nn.Conv3d):
    """Computes with other weights than it has: the override must not be dropped."""

    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight * 2, bias)


def test_a_convolution_with_its_own_computation_is_kept_with_a_reason():
    model, x = causal()
    model.first = Standardised(2, 2, 3, padding=(0, 1, 1))
    model.second._conv_forward = lambda x, *_: x * 3
    with_integers(model).requires_grad_(requires_grad=False)
    expected = model(x)
    with patched(model, backend="torch") as report:
        assert torch.equal(model(x), expected)
    reasons = {entry.name: entry.reason for entry in report.left_to_torch}
    assert reasons["first"] == "Standardised has its own _conv_forward."
    assert reasons["second"] == "its _conv_forward was replaced on the instance."


class Doubled(nn.ConvTranspose3d):
    def forward(self, x, output_size=None):
        return 2 * super().forward(x, output_size)


def test_a_transposed_convolution_with_its_own_forward_is_kept():
    model, x = with_integers(nn.Sequential(Doubled(2, 2, 2))), integers(1, 2, 2, 3, 4)
    with torch.no_grad():
        expected = model(x)
        with patched(model) as report:
            assert torch.equal(model(x), expected)
    assert [entry.reason for entry in report.left_to_torch] == ["Doubled has its own forward."]


def test_hooks_see_plain_tensors():
    model, x = causal()
    seen = []
    for module in (model.first, model.second, model):
        module.register_forward_pre_hook(lambda _, given: seen.append(type(given[0])))
        module.register_forward_hook(lambda _, given, made: seen.extend(map(type, (*given, made))))
    expected = model(x)
    seen.clear()
    with patched(model, backend="torch"):
        assert torch.equal(model(x), expected)
    assert seen
    assert set(seen) == {torch.Tensor}


def test_hooks_that_change_weights_and_results():
    model, x = causal()

    def change(module, _given, made):
        module.weight.data.zero_()
        return made.mul_(2)

    model.first.register_forward_hook(change)
    expected = model(x)
    fresh, _ = causal()
    model.load_state_dict(fresh.state_dict())
    with patched(model, backend="torch"):
        assert torch.equal(model(x), expected)


def test_weights_replaced_by_a_noted_cast_are_right():
    model, x = causal()

    def between(h):
        model.second.weight.data = model.second.weight.data.double().float() * 1
        model.second.weight.data = model.second.weight.data.to(torch.float64).to(torch.float32)
        return h

    expected = model(x)
    model.between = between
    with patched(model, backend="torch"):
        assert torch.equal(model(x), expected)
    assert torch.equal(model.second.weight, causal()[0].second.weight)
    assert torch.equal(model(x), expected)


class Keeping(nn.Module):
    """Results hide in a closure, a generator and an object."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 2, 1)
        self.hidden = []

    def forward(self, x):
        y = self.conv(nn.functional.pad(x, (1, 1)))
        self.hidden = [lambda: y, (each for each in [y]), type("Distribution", (), {"mean": y})()]
        return {"y": y, "parts": (y[:, :1],)}


def test_nothing_lazy_leaves():
    model, x = with_integers(Keeping()).requires_grad_(requires_grad=False), integers(1, 2, 2, 3, 4)
    with patched(model, backend="torch"):
        out = model(x)
        closure, generator, distribution = model.hidden
        results = [out["y"], *out["parts"], closure(), next(generator), distribution.mean]
    assert [type(each) for each in results] == [torch.Tensor] * 5
    assert all(each is out["y"] for each in (results[0], results[2], results[3], results[4]))


@DEPRECATED
def test_forward_mode_is_refused_in_words():
    model, x = causal()
    with (
        patched(model, backend="torch"),
        pytest.raises(UnsupportedError, match="reverse mode only"),
    ):
        torch.func.jvp(model, (x,), (torch.ones_like(x),))
    with patched(model, backend="torch"), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(UnsupportedError, match="jacrev"):
            model(dual)


def test_gradients_say_that_rewrites_were_off():
    model, x = small_decoder()
    report = patch_(model, backend="torch")
    model(x).sum().backward()
    assert "1 x without rewrites: gradients are on: rewrites and fast algorithms were off" in str(
        report
    )


def test_without_lazy_tensors_only_convolutions_are_ours():
    model, x = causal(lambda h: h if type(h) is torch.Tensor else None)
    expected = model(x)
    with patched(model, lazy=False, backend="torch") as report:
        assert torch.equal(model(x), expected)
    assert not report.stats.works


def test_signatures_are_the_models():
    model, _ = causal()
    expected = inspect.signature(model.forward)
    patch_(model)
    assert inspect.signature(model.forward) == expected


def test_flops_are_counted():
    model, x = causal()
    with FlopCounterMode(display=False) as theirs:
        model(x)
    patch_(model, backend="torch")
    with FlopCounterMode(display=False) as ours:
        model(x)
    assert ours.get_total_flops() == theirs.get_total_flops() > 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_and_exported(backend):
    model, x = causal()
    expected = model(x)
    patch_(model, backend="torch")
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        assert torch.equal(compiled(x), expected)
        assert torch.equal(torch.export.export(model, (x,)).module()(x), expected)
    torch.compiler.reset()


def test_a_compiled_part_of_a_patched_model():
    model, x = causal(torch.compile(lambda h: h * 2 + 1, backend="aot_eager"))
    expected = model(x)
    with patched(model, backend="torch"):
        assert torch.equal(model(x), expected)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@DEPRECATED
def test_traced_by_jit():
    model, x = causal()
    expected = model(x)
    patch_(model, backend="torch")
    with torch.no_grad():
        assert torch.equal(torch.jit.trace(model, (x,))(x), expected)


def test_threads():
    model, _ = causal()
    clips = [integers(1, 2, 3, 4, 5, seed=seed) for seed in range(4)]
    expected = [model(x) for x in clips]
    results = {}
    with patched(model, backend="torch"):
        workers = [
            threading.Thread(target=lambda at=at: results.update({at: model(clips[at])}))
            for at in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert all(torch.equal(results[at], expected[at]) for at in range(4))


def test_casts_after_patching_behave_as_before():
    model, x = causal()
    expected = copy.deepcopy(model).double()(x.double())
    report = patch_(model, backend="torch")
    model.double()
    assert torch.equal(model(x.double()), expected)
    assert {name for name, _ in report.stats.left_to_torch} == {"first", "second"}


def test_after_a_failure_nothing_lazy_is_left():
    kept = []

    def between(h):
        kept.append(nn.functional.pad(h, (1, 1)))
        raise KeyError("mine")

    model, x = causal(between)
    with patched(model, backend="torch"), pytest.raises(KeyError, match="mine"):
        model(x)
    assert not any(isinstance(each, LazyTensor) for each in kept)
