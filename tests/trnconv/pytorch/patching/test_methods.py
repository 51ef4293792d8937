"""What patched convolutions do with what users hand them: torch's answer, or torch's error."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.func import functional_call
from torch.nn.utils import fuse_conv_bn_eval, prune

from integer_networks import integers, with_integers
from trnconv.errors import UnsupportedError
from trnconv.pytorch import patch_, patched, unpatch_

pytestmark = [
    pytest.mark.torch,
    # torch's own, of torch.jit, and of what it does with shapes
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
X = integers(2, 4, 5, 6)


def small_model():
    """A convolution and a transposed one."""
    return with_integers(
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ConvTranspose2d(4, 4, 3, stride=2))
    )


def normed_model():
    norm = nn.BatchNorm2d(4, eps=0)
    norm.running_var.fill_(0.25)
    return with_integers(nn.Sequential(nn.Conv2d(4, 4, 3), norm))


class TwoPlaces(nn.Module):
    """One layer that has three names."""

    def __init__(self):
        super().__init__()
        self.first = small_model()
        self.second = nn.Sequential(self.first[0])
        self.third = self.first[0]

    def forward(self, x):
        return self.third(self.second(x)) + self.first[0](x)


def with_other_layer(model):
    model[0] = with_integers(nn.Conv2d(4, 4, 1), seed=7)
    return model(X)


def with_loaded_state(model, **options):
    model.load_state_dict(
        {name: 2 * value for name, value in model.state_dict().items()}, **options
    )
    return model(X)


def with_other_parameters(model):
    model[0].weight, model[0].bias = nn.Parameter(integers(4, 4, 1, 1, seed=3)), None
    return model(X)


def pruned(model):
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model(X)


def fused(model):
    model[0], model[1] = fuse_conv_bn_eval(model[0], model[1]), nn.Identity()
    return model(X)


def with_attribute(number, name, value):
    def use(model):
        setattr(model[number], name, value)
        return model(X)

    return use


def gradients_of_a_trace(model):
    traced, x = torch.jit.trace(model, X), X.clone().requires_grad_()
    with torch.enable_grad():
        traced(x).square().sum().backward()
    return x.grad


def saved_trace(model):
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, X), file)
    file.seek(0)
    return torch.jit.load(file)(X * 2)


def compiled_in_doubles(model):
    return torch.compile(model.double(), backend="aot_eager", fullgraph=True)(X.double())


USES = {
    "input by its name, transposed": lambda model: model[1](input=X),
    "input by its name": lambda model: model[0](input=X),
    "_conv_forward by names": lambda model: model[0]._conv_forward(
        input=X, weight=model[0].weight, bias=None
    ),
    "output_size": lambda model: model[1](X, output_size=[12, 13]),
    "output_size with channels": lambda model: model[1](X, output_size=[2, 4, 12, 13]),
    "output_size of one": lambda model: model[1](X[0], output_size=[12, 13]),
    "output_size too large": lambda model: model[1](X, output_size=[99, 13]),
    "output_size too short": lambda model: model[1](X, output_size=[99]),
    "no batch": lambda model: model(X[0]),
    "another layer": with_other_layer,
    "the same layer twice": lambda model: nn.Sequential(model[0], model[0])(X),
    "a layer in another model": lambda model: nn.Sequential(nn.ReLU(), model[1])(X),
    "load_state_dict": with_loaded_state,
    "load_state_dict(assign=True)": lambda model: with_loaded_state(model, assign=True),
    "other parameters": with_other_parameters,
    "pruned": pruned,
    "double": lambda model: model.double()(X.double()),
    "double, input in float": lambda model: model.double()(X),
    "half, input in float": lambda model: model.half()(X),
    "integers": lambda model: model(X.long()),
    "complex": lambda model: model(X.to(torch.complex64)),
    "complex weights": lambda model: model.to(torch.complex64)(X.to(torch.complex64)),
    "text": lambda model: model("x"),
    "text, transposed": lambda model: model[1]("x"),
    "an array": lambda model: model(X.numpy()),
    "nothing": lambda model: model(None),
    "channels_last": lambda model: model(X.to(memory_format=torch.channels_last)),
    "expanded": lambda model: model(torch.ones(1, 4, 1, 1).expand(2, 4, 5, 6)),
    "functional_call": lambda model: functional_call(
        model, {name: 2 * value for name, value in model.state_dict().items()}, (X,)
    ),
    "fx": lambda model: torch.fx.symbolic_trace(model)(X),
    "padding as a list": with_attribute(0, "padding", [1, 0]),
    "padding as a list, transposed": with_attribute(1, "padding", [1, 0]),
    "stride as a number": with_attribute(0, "stride", 2),
    "output_padding as a number": with_attribute(1, "output_padding", 1),
    "a mode that transposed ones have not": with_attribute(1, "padding_mode", "circular"),
    "traced": lambda model: torch.jit.trace(model, X)(X * 2),
    "traced, other sizes": lambda model: torch.jit.trace(model, X)(torch.cat([X, X])[..., :5]),
    "traced without a batch": lambda model: torch.jit.trace(model, X[0])(X[1]),
    "traced in doubles": lambda model: torch.jit.trace(model.double(), X.double())(X.double()),
    "gradients of a trace": gradients_of_a_trace,
    "saved trace": saved_trace,
    "frozen trace": lambda model: torch.jit.freeze(torch.jit.trace(model, X))(X * 2),
    "compiled in doubles": compiled_in_doubles,
}


def outcome(use, model, *, gradients):
    try:
        with torch.set_grad_enabled(gradients):
            return use(model)
    except Exception as error:  # noqa: BLE001 (whatever torch raises is the expectation)
        return type(error)


def require_same(make, use, *, gradients, backend="torch"):
    model = make()
    expected = outcome(use, copy.deepcopy(model), gradients=gradients)
    patch_(model, backend=backend)
    ours = outcome(use, model, gradients=gradients)
    if isinstance(expected, type):
        assert isinstance(ours, type), ours
        assert issubclass(ours, expected)
    else:
        assert not isinstance(ours, type), ours
        assert (type(ours), ours.dtype) == (torch.Tensor, expected.dtype)
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("use", USES)
def test_uses_of_patched_modules(use, gradients):
    require_same(small_model, USES[use], gradients=gradients)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_layer_that_has_several_names(gradients):
    require_same(TwoPlaces, lambda model: model(X), gradients=gradients)


@pytest.mark.parametrize("gradients", [False, True])
def test_batch_norms_are_folded_into_patched_convolutions(gradients):
    require_same(normed_model, fused, gradients=gradients)


def traced_model():
    return with_integers(
        nn.Sequential(
            nn.Conv3d(2, 2, 3, padding=1, padding_mode="replicate"),
            nn.ConvTranspose3d(2, 2, 2, stride=3, padding=(0, 1, 0), output_padding=(2, 1, 0)),
        )
    )


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("backend", ["torch", "nkisim"])
def test_traces_take_other_sizes(backend, gradients):
    x, other = integers(1, 2, 3, 4, 5), integers(2, 2, 4, 5, 3, seed=1)

    def traced(model):
        return torch.jit.trace(model, x, check_trace=backend == "torch")(other)

    require_same(traced_model, traced, gradients=gradients, backend=backend)


@pytest.mark.parametrize("part", [lambda model: model, lambda model: model[0]])
def test_scripts_are_refused_in_words_and_possible_after_unpatch(part):
    model = small_model()
    expected = model(X)
    patch_(model, backend="torch")
    with pytest.raises(UnsupportedError, match=r"torch\.jit\.script .* unpatched model"):
        torch.jit.script(part(model))
    with pytest.raises(UnsupportedError, match=r"torch\.jit\.script"):
        torch.jit.script(nn.Sequential(nn.ReLU(), part(model)))
    unpatch_(model)
    assert torch.equal(torch.jit.script(model)(X), expected)


def test_models_go_on_where_they_expect_an_error():
    class Cautious(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 9)

        def forward(self, x):
            try:
                return self.conv(x * 1)
            except RuntimeError:
                return x

    require_same(Cautious, lambda model: model(X), gradients=False)


@pytest.mark.parametrize("lazy", [True, False])
def test_reports_tell_what_fell_back_to_torch(lazy):
    model = small_model()
    with torch.no_grad():
        report = patch_(model, backend="torch", lazy=lazy)
        assert str(report).splitlines()[0] == "2 convolutions patched, 0 left to torch"
        model(X)
        assert report.fell_back() == {}
        model.double()
        model(X.double())
        model(X.double())
    reason = "its weights are torch.float64; kernels take bf16, fp16, fp32."
    assert dict(report.fell_back()) == {("0", reason): 2, ("1", reason): 2}
    lines = str(report).splitlines()
    assert lines[0] == "2 convolutions patched, 0 left to torch; 2 of those patched ran by torch"
    assert lines.count(f"    2 x by torch: {reason}") == 2


def test_what_is_kept_from_the_start_did_not_fall_back():
    model = small_model()
    model[0].double()
    with patched(model, backend="torch") as report, torch.no_grad():
        model[1](model[0](X.double()).float())
    assert [entry.name for entry in report.left_to_torch] == ["0"]
    assert report.fell_back() == {}


def test_reports_have_the_type_that_autocast_computes_in():
    model = small_model()
    with patched(model, backend="torch") as report, torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(X)
        model(X)
    kinds = {(work.module, work.dtype) for work in report.stats.works}
    assert kinds == {(name, dtype) for name in "01" for dtype in ("bfloat16", "float32")}
