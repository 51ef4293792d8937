"""patch_, unpatch_, patched: a model on our kernels, and back to what it was."""

import copy
import functools
import io
import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from integer_networks import CONVOLUTIONS, integers, small_decoder, with_integers
from recorded_convolutions import Recorder
from trnconv.errors import UnsupportedError
from trnconv.pytorch import patch_, patched, unpatch_

pytestmark = pytest.mark.torch


def run(model, *inputs):
    with torch.no_grad():
        return model(*inputs)


def attributes(model):
    """Every attribute of every instance, by identity."""
    return {
        name: {key: id(value) for key, value in vars(module).items()}
        for name, module in model.named_modules()
    }


def names(entries):
    return {entry.name for entry in entries}


@pytest.mark.parametrize("backend", ["nkisim", "torch"])
def test_a_patched_model_gives_the_same_bits(backend):
    model, x = small_decoder()
    expected = run(model, x)
    report = patch_(model, backend=backend)
    assert torch.equal(run(model, x), expected)
    assert names(report.patched) == set(CONVOLUTIONS)
    assert report.left_to_torch == ()
    assert {work.module for work in report.stats.works} == set(CONVOLUTIONS)
    assert not report.stats.left_to_torch
    assert not report.stats.repeated


def test_no_convolution_of_a_patched_model_is_torchs():
    model, x = small_decoder()
    with Recorder() as before:
        run(model, x)
    assert len(before.calls) == len(CONVOLUTIONS)
    patch_(model)
    with Recorder() as after:
        run(model, x)
    assert after.calls == []


def test_unpatching_restores_bits_and_attributes():
    model, x = small_decoder()
    before, expected = attributes(model), run(model, x)
    patch_(model)
    assert attributes(model) != before
    run(model, x)
    unpatch_(model)
    assert attributes(model) == before
    assert torch.equal(run(model, x), expected)


def test_classes_and_torch_stay_as_they_are():
    model, _ = small_decoder()
    kinds = {type(module) for module in model.modules()}
    before = {kind: dict(vars(kind)) for kind in (*kinds, nn.Conv3d, torch.Tensor)}
    functions = dict(vars(nn.functional))
    patch_(model)
    assert all(dict(vars(kind)) == attributes for kind, attributes in before.items())
    assert dict(vars(nn.functional)) == functions


def test_an_instances_own_methods_come_back():
    model, x = small_decoder()
    plain = model.causal.forward
    model.causal.forward = lambda h: plain(h) * 2
    model.forward = functools.partial(lambda own, x: own(x) + 1, model.forward)
    before, expected = attributes(model), run(model, x)
    with patched(model) as report:
        assert torch.equal(run(model, x), expected)
        assert {work.module for work in report.stats.works} == set(CONVOLUTIONS)
    assert attributes(model) == before
    assert torch.equal(run(model, x), expected)


def test_a_model_wrapped_since_is_not_unpatched():
    model, _ = small_decoder()
    patch_(model)
    ours = model.forward
    model.forward = functools.partial(ours)
    with pytest.raises(UnsupportedError, match="forward of the model was replaced after patch_"):
        unpatch_(model)
    model.forward = ours
    unpatch_(model)


def test_unpatching_a_model_that_is_not_patched_changes_nothing():
    model, _ = small_decoder()
    before = attributes(model)
    unpatch_(model)
    assert attributes(model) == before


def test_patching_twice_is_refused():
    model, x = small_decoder()
    patch_(model)
    with pytest.raises(UnsupportedError, match="patched already: unpatch_ it first"):
        patch_(model)
    with pytest.raises(UnsupportedError, match="patched already"):
        patch_(nn.Sequential(model))
    unpatch_(model)
    patch_(model)
    run(model, x)


def test_a_context_unpatches_after_an_exception():
    model, x = small_decoder()
    before, expected = attributes(model), run(model, x)
    with pytest.raises(KeyError, match="mine"), patched(model):
        raise KeyError("mine")
    with pytest.raises(RuntimeError), patched(model):
        run(model, integers(1, 3, 3, 4, 5))
    assert attributes(model) == before
    assert torch.equal(run(model, x), expected)
    with patched(model):
        assert torch.equal(run(model, x), expected)


@pytest.mark.parametrize("shape", [(1, 3, 3, 4, 5), (2, 3, 4), (1, 2, 3, 4)])
def test_what_torch_refuses_is_refused(shape):
    model, _ = small_decoder()
    with pytest.raises(Exception, match=r".") as theirs:
        run(model, integers(*shape))
    with patched(model), pytest.raises(type(theirs.value)):
        run(model, integers(*shape))


def test_a_single_convolution_can_be_a_model():
    model, x = with_integers(nn.Conv3d(2, 3, 2)), integers(1, 2, 3, 4, 5)
    expected = run(model, x)
    report = patch_(model)
    assert torch.equal(run(model, x), expected)
    assert [work.module for work in report.stats.works] == [""]
    assert isinstance(run(model, x), torch.Tensor)


def test_modules_of_torch_alone_can_be_a_model():
    model = with_integers(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Conv2d(3, 2, 1))
    )
    x = integers(2, 2, 5, 6)
    expected = run(model, x)
    with patched(model) as report:
        assert torch.equal(run(model, x), expected)
    assert {work.module for work in report.stats.works} == {"0", "2"}


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(2, 2, 3, padding=1)
        self.other = self.one

    def forward(self, x):
        return self.other(self.one(x))


def test_a_module_under_two_names_is_patched_once():
    model, x = with_integers(Shared()), integers(1, 2, 4, 5)
    expected = run(model, x)
    with patched(model) as report:
        assert torch.equal(run(model, x), expected)
        assert names(report.entries) == {"one"}


# Which convolutions


@pytest.mark.parametrize("refused", CONVOLUTIONS)
def test_a_refused_convolution_is_torchs_and_gets_what_torch_would(refused):
    model, x = small_decoder()
    with Recorder() as theirs:
        expected = run(model, x)
    report = patch_(model, filter_fn=lambda name, _: name != refused)
    with Recorder() as left:
        assert torch.equal(run(model, x), expected)
    assert left.calls == [theirs.calls[CONVOLUTIONS.index(refused)]]
    assert [(entry.name, entry.reason) for entry in report.left_to_torch] == [
        (refused, "filter_fn refused it")
    ]
    assert dict(report.stats.left_to_torch) == {(refused, "filter_fn refused it"): 1}
    assert refused not in {work.module for work in report.stats.works}


class CalledAsFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 2, 1, 3, 3))
        self.back = nn.Parameter(torch.empty(3, 2, 2, 2, 2))

    def forward(self, x):
        h = nn.functional.conv3d(x, self.weight, padding=(0, 1, 1))
        return nn.functional.conv_transpose3d(input=h, weight=self.back, stride=2)


@pytest.mark.parametrize("taken", [True, False])
def test_convolutions_called_as_functions(taken):
    model = with_integers(nn.ModuleDict({"inner": CalledAsFunctions()}))["inner"]
    x = integers(1, 2, 2, 4, 5)
    with Recorder() as theirs:
        expected = run(model, x)
    with patched(model, filter_fn=lambda *_: taken) as report, Recorder() as left:
        assert torch.equal(run(model, x), expected)
    assert left.calls == ([] if taken else theirs.calls)
    assert sum(report.stats.works.values()) == (2 if taken else 0)
    assert sum(report.stats.left_to_torch.values()) == (0 if taken else 2)


class Double(nn.Module):
    """Half of it in float64, which kernels do not have."""

    def __init__(self):
        super().__init__()
        self.single = nn.Conv3d(2, 2, (2, 1, 1))
        self.wide = nn.Conv3d(2, 2, 3, padding=1, dtype=torch.float64)
        self.back = nn.ConvTranspose3d(2, 2, 2, dtype=torch.float64)

    def forward(self, x):
        h = self.single(torch.cat([x[:, :, :1], x], dim=2))
        h = self.back(self.wide(nn.functional.pad(h.double(), (1, 0))))
        return nn.functional.conv3d(h, self.wide.weight).float()


def test_unsupported_types_are_kept_with_a_reason():
    model, x = with_integers(Double()), integers(1, 2, 3, 4, 5)
    expected = run(model, x)
    report = patch_(model)
    assert torch.equal(run(model, x), expected)
    assert names(report.patched) == {"single"}
    assert all(
        "torch.float64; kernels take bf16, fp16, fp32" in one.reason for one in report.left_to_torch
    )
    assert {name for name, _ in report.stats.left_to_torch} == {"wide", "back", ""}


def test_unsupported_types_are_refused_if_that_is_asked_for():
    model, _ = with_integers(Double()), None
    before = attributes(model)
    with pytest.raises(UnsupportedError, match=r'wide: .*float64.*on_unsupported="keep"'):
        patch_(model, on_unsupported="raise")
    assert attributes(model) == before
    report = patch_(model, lambda name, _: name == "single", on_unsupported="raise")
    assert names(report.patched) == {"single"}


def test_an_unknown_wish_is_refused():
    with pytest.raises(UnsupportedError, match="on_unsupported='ignore': keep or raise"):
        patch_(small_decoder()[0], on_unsupported="ignore")


# Copies, states, files


def test_a_deep_copy_is_patched_and_independent():
    model, x = small_decoder()
    expected = run(model, x)
    report = patch_(model)
    twin = copy.deepcopy(model)
    unpatch_(model)
    with Recorder() as recorder:
        assert torch.equal(run(twin, x), expected)
    assert recorder.calls == []
    assert not report.stats.works
    twin.causal.weight.data.zero_()
    assert not torch.equal(run(twin, x), expected)
    assert torch.equal(run(model, x), expected)
    unpatch_(twin)
    with Recorder() as recorder:
        run(twin, x)
    assert len(recorder.calls) == len(CONVOLUTIONS)


def through_a_file(model):
    written = io.BytesIO()
    torch.save(model, written)
    written.seek(0)
    return torch.load(written, weights_only=False)


@pytest.mark.parametrize(
    "carried",
    [lambda model: pickle.loads(pickle.dumps(model)), through_a_file],  # noqa: S301 (our own)
    ids=["pickle", "torch.save"],
)
def test_a_saved_model_is_patched(carried):
    model, x = small_decoder()
    expected = run(model, x)
    patch_(model)
    loaded = carried(model)
    with Recorder() as recorder:
        assert torch.equal(run(loaded, x), expected)
    assert recorder.calls == []
    unpatch_(loaded)
    assert attributes(loaded).keys() == attributes(model).keys()
    assert torch.equal(run(loaded, x), expected)


class Scaled(nn.Module):
    """A convolution, and an attribute that a copy may have otherwise."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.scale = 2.0

    def forward(self, x):
        return self.conv(x) * self.scale


class WithItsOwnState(Scaled):
    def __getstate__(self):
        return {**self.__dict__, "told": True}


@pytest.mark.parametrize("kind", [Scaled, WithItsOwnState])
def test_a_shallow_copy_has_its_own_attributes(kind):
    """It runs as its class says; the modules it shares with its origin stay patched."""
    model, x = with_integers(kind()), integers(1, 2, 4, 5)
    expected = run(model, x)
    report = patch_(model, backend="torch")
    copied, conv = copy.copy(model), copy.copy(model.conv)
    copied.scale, conv.padding = 4.0, (0, 0)
    assert hasattr(copied, "told") == (kind is WithItsOwnState)
    assert torch.equal(run(copied, x), 2 * expected)
    assert torch.equal(run(model, x), expected)
    assert torch.equal(run(conv, x), run(model.conv, x)[:, :, 1:-1, 1:-1])
    assert copied.conv is model.conv
    assert sum(report.stats.works.values()) == 3
    before = model.forward
    model.forward = functools.partial(before)
    assert "forward" not in vars(copied)
    for other in (copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):  # noqa: S301
        assert torch.equal(run(other, x), 2 * expected)


def test_a_shallow_copy_has_what_its_origin_had_before():
    model, x = with_integers(Scaled()), integers(1, 2, 4, 5)
    expected = run(model, x)
    model.forward = functools.partial(lambda own, x: own(x) + 1, model.forward)
    patch_(model, backend="torch")
    assert torch.equal(run(copy.copy(model), x), expected + 1)
    unpatch_(model)
    assert "__getstate__" not in vars(model)


def test_states_are_those_of_the_unpatched_model():
    model, x = small_decoder()
    other, _ = small_decoder(seed=50)
    keys = list(model.state_dict())
    expected = run(other, x)
    patch_(model)
    assert list(model.state_dict()) == keys
    model.load_state_dict(other.state_dict(), strict=True)
    assert torch.equal(run(model, x), expected)
    unpatched, _ = small_decoder()
    unpatched.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(run(unpatched, x), expected)


def test_casting_a_patched_model_casts_its_weights():
    model, x = small_decoder()
    patch_(model)
    model.to(torch.bfloat16)
    y = run(model, x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()


# Gradients, compilation, surroundings


def gradients_of(model, x):
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = model(x)
    y.backward(integers(*y.shape, seed=7))
    return [y.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("backend", ["nkisim", "torch"])
def test_gradients_are_those_of_the_unpatched_model(backend):
    model, x = small_decoder()
    expected = gradients_of(model, x)
    with patched(model, backend=backend), Recorder() as recorder:
        ours = gradients_of(model, x)
    for result, wanted in zip(ours, expected, strict=True):
        assert torch.equal(result, wanted)
    assert recorder.calls == []


def test_a_training_step_moves_the_weights_alike():
    ours, x = small_decoder()
    theirs, _ = small_decoder()
    patch_(ours)
    for model in (ours, theirs):
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-10)
        model(x).abs().sum().backward()
        optimizer.step()
    for (name, ours_now), (_, theirs_now) in zip(
        ours.named_parameters(), theirs.named_parameters(), strict=True
    ):
        assert torch.equal(ours_now, theirs_now), name
    assert not torch.equal(ours.causal.weight, small_decoder()[0].causal.weight)


class OfParts(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 2, 3, padding=1)

    def forward(self, parts):
        return self.conv(torch.cat(parts["chunks"], dim=2))


def test_gradients_reach_inputs_in_lists_of_a_frozen_model():
    model = with_integers(OfParts()).requires_grad_(requires_grad=False)
    grads = []
    for patching in (False, True):
        chunks = [integers(1, 2, 2, 3, 3, seed=seed).requires_grad_() for seed in range(2)]
        if patching:
            patch_(model)
        model({"chunks": chunks}).sum().backward()
        grads.append([chunk.grad for chunk in chunks])
    assert all(torch.equal(left, right) for left, right in zip(*grads, strict=True))


def test_compiled_in_one_graph_it_is_the_same():
    model, x = small_decoder()
    expected = run(model, x)
    patch_(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(run(compiled, x), expected)
    assert torch.equal(run(model, x), expected)
    torch.compiler.reset()


def test_the_convolutions_of_a_compiled_graph_are_ours():
    model, x = small_decoder()
    patch_(model)
    called = []

    def listing(graph, _inputs):
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    run(torch.compile(model, fullgraph=True, backend=listing), x)
    torch.compiler.reset()
    assert sum(name.startswith("trnconv.") for name in called) == len(CONVOLUTIONS)
    assert not any("conv" in name for name in called if not name.startswith("trnconv."))


def test_inference_mode():
    model, x = small_decoder()
    expected = run(model, x)
    patch_(model)
    with torch.inference_mode():
        assert torch.equal(model(x), expected)
        assert torch.equal(model(x.clone()), expected)


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d])
def test_autocast_decides_the_type_as_it_does_for_torch(kind):
    sizes = {nn.Conv1d: (5,), nn.Conv3d: (3, 4, 5)}.get(kind, (4, 5))
    model, x = with_integers(nn.Sequential(kind(2, 2, 1))), integers(1, 2, *sizes)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x)
        patch_(model)
        ours = model(x)
    assert ours.dtype == expected.dtype == torch.bfloat16
    assert torch.equal(ours, expected)


def test_hooks_see_what_they_would():
    model, x = small_decoder()
    shapes = {}

    def keep(name):
        def hook(_module, inputs, output):
            shapes[name].append((inputs[0].shape, output.shape, float(output.sum())))

        return hook

    for name, module in model.named_modules():
        shapes[name] = []
        module.register_forward_hook(keep(name))
    doubled = model.images.register_forward_hook(lambda *seen: seen[-1] * 2)
    expected = run(model, x)
    patch_(model)
    assert torch.equal(run(model, x), expected)
    assert all(len(seen) == 2 for seen in shapes.values())
    assert all(theirs == ours for theirs, ours in shapes.values())
    doubled.remove()


def test_the_hooks_of_the_whole_model_get_tensors():
    model, x = small_decoder()
    kinds = []
    model.register_forward_pre_hook(lambda _, inputs: kinds.append(type(inputs[0])))
    model.register_forward_hook(lambda *seen: kinds.append(type(seen[-1])))
    patch_(model)
    run(model, x)
    assert kinds == [torch.Tensor, torch.Tensor]


def test_batches_without_elements():
    model, x = small_decoder()
    nothing = x[:0]
    expected = run(model, nothing)
    patch_(model, backend="torch")
    assert torch.equal(run(model, nothing), expected)
    assert expected.shape[0] == 0


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (nn.Conv1d, (2, 7)),
        (nn.Conv2d, (2, 5, 6)),
        (nn.Conv3d, (2, 4, 5, 6)),
        (nn.ConvTranspose3d, (2, 3, 3, 4)),
    ],
)
def test_inputs_without_a_batch(kind, shape):
    model, x = with_integers(nn.Sequential(kind(2, 3, 2))), integers(*shape)
    expected = run(model, x)
    patch_(model)
    assert torch.equal(run(model, x), expected)


# What a model returns


@dataclass
class Output:
    sample: torch.Tensor
    parts: list


@dataclass(frozen=True)
class FrozenOutput:
    sample: torch.Tensor


Pair = namedtuple("Pair", ["first", "second"])  # noqa: PYI024 (what models return)


class Returning(nn.Module):
    def __init__(self, arranged):
        super().__init__()
        self.conv = nn.Conv3d(2, 2, (3, 1, 1), padding=(1, 0, 0))
        self.arranged = arranged

    def forward(self, x):
        return self.arranged(self.conv(x))


ARRANGED = {
    "tensor": (lambda y: y, lambda out: [out]),
    "tuple": (lambda y: (y, None, y.clone()), lambda out: [out[0], out[2]]),
    "named tuple": (lambda y: Pair(y, y + y), lambda out: [out.first, out.second]),
    "list": (lambda y: [y, [y[:, :, :1]]], lambda out: [out[0], out[1][0]]),
    "dictionary": (lambda y: {"y": y, "all": [y]}, lambda out: [out["y"], *out["all"]]),
    "record": (lambda y: Output(y, [y + 1]), lambda out: [out.sample, *out.parts]),
    "frozen record": (FrozenOutput, lambda out: [out.sample]),
}


@pytest.mark.parametrize("arrangement", ARRANGED)
def test_results_are_tensors_wherever_they_are(arrangement):
    arranged, tensors_of = ARRANGED[arrangement]
    model, x = with_integers(Returning(arranged)), integers(1, 2, 3, 4, 5)
    expected = run(model, x)
    patch_(model)
    ours = run(model, x)
    assert type(ours) is type(expected)
    for result, wanted in zip(tensors_of(ours), tensors_of(expected), strict=True):
        assert type(result) is torch.Tensor
        assert torch.equal(result, wanted)


def test_a_cache_in_a_dictionary_goes_from_call_to_call():
    class Chunked(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv3d(2, 2, (3, 1, 1))

        def forward(self, x, cache):
            before = [cache["frames"]] if cache else [x[:, :, :1]] * 2
            frames = torch.cat([*before, x], dim=2)
            return self.conv(frames), OrderedDict(frames=frames[:, :, -2:].clone())

    model, chunks = with_integers(Chunked()), integers(1, 2, 9, 3, 4).split([1, 4, 4], dim=2)

    def decoded():
        cache, outputs = None, []
        for chunk in chunks:
            y, cache = run(model, chunk, cache)
            outputs.append(y)
        return torch.cat(outputs, dim=2)

    expected = decoded()
    with patched(model):
        assert torch.equal(decoded(), expected)
