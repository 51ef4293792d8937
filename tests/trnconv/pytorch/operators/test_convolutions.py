"""The ops under torch's machinery: opcheck, gradcheck, compile, export, func, autocast, layouts.

gradcheck wants float64 because its differences lose half the digits of what they are taken of. The
maps are linear in each argument, so differences have no error but rounding, whatever the step; with
small integers and a step of 1 nothing is rounded, and the comparison is exact: no tolerance at all.
"""

import shutil

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch import functional, nn
from trnconv.pytorch.backends import registry, simulator
from trnconv.pytorch.backends.conv_call import ConvSpec, words_of
from trnconv.pytorch.operators import convolutions

pytestmark = pytest.mark.torch

EXACT = {"eps": 1.0, "atol": 0.0, "rtol": 0.0}
ONLY_FLOAT32 = pytest.mark.filterwarnings("ignore:.*not a double precision floating:UserWarning")


def integers(*shape, seed=0, wants_gradient=True):
    drawn = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.float().requires_grad_(wants_gradient)


SPEC = ConvSpec((1, 2, 1), (0, 1, 0), (0, 0, 1), (1, 1, 2), 2, activation="silu")
WINDOW = (SPEC.numbers(), "nkisim")


def op_calls(*, wants_gradient):
    x = integers(2, 4, 1, 5, 6, wants_gradient=wants_gradient)
    w = integers(6, 2, 1, 2, 3, seed=1, wants_gradient=wants_gradient)
    y = convolutions.convolution(x, w, *WINDOW)
    dy = integers(*y.shape, seed=2, wants_gradient=wants_gradient)
    bias, residual = integers(6, wants_gradient=False), integers(*y.shape, wants_gradient=False)
    options = (SPEC.numbers(), words_of(SPEC), False, "nkisim")
    fused = ([x.detach()], w.detach(), bias, residual, None, *options)
    return {
        "convolution": (convolutions.convolution, (x, w, *WINDOW)),
        "input_gradient": (convolutions.input_gradient, (dy, w, list(x.shape), *WINDOW)),
        "weight_gradient": (convolutions.weight_gradient, (x, dy, [1, 2, 3], *WINDOW)),
        "fused_convolution": (convolutions.fused_op, fused),
    }


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("name", ["convolution", "input_gradient", "weight_gradient"])
def test_opcheck(name, wants_gradient):
    op, arguments = op_calls(wants_gradient=wants_gradient)[name]
    checked = torch.library.opcheck(op, arguments)
    assert set(checked.values()) == {"SUCCESS"}


def test_opcheck_of_the_fused_op():
    op, arguments = op_calls(wants_gradient=False)["fused_convolution"]
    assert set(torch.library.opcheck(op, arguments).values()) == {"SUCCESS"}


CHECKED = {
    "conv1d": ((1, 2, 4), (2, 1, 2), {"groups": 2, "padding": 1}),
    "conv2d": ((1, 1, 3, 3), (2, 1, 2, 2), {"stride": 2, "padding": 1}),
    "conv3d": ((1, 1, 2, 2, 3), (1, 1, 2, 1, 2), {"padding": (1, 0, 0)}),
    "conv_transpose1d": ((1, 2, 3), (2, 1, 2), {"stride": 2}),
}


@ONLY_FLOAT32
@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck_is_exact(name):
    x_shape, w_shape, options = CHECKED[name]
    function = getattr(functional, name)
    bias = integers(w_shape[0] if "transpose" not in name else w_shape[1], seed=2)
    given = (integers(*x_shape), integers(*w_shape, seed=1), bias)
    assert torch.autograd.gradcheck(lambda *all_of: function(*all_of, **options), given, **EXACT)


@ONLY_FLOAT32
@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
def test_gradgradcheck_is_exact(name):
    x, w = integers(1, 1, 3), integers(1, 1, 2, seed=1)
    function = getattr(functional, name)
    dy = integers(*function(x, w).shape, seed=2)
    assert torch.autograd.gradgradcheck(function, (x, w), (dy,), **EXACT)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_only_what_wants_a_gradient_gets_one(wanted, monkeypatch):
    computed = []
    kept = simulator.compute
    monkeypatch.setattr(
        simulator, "compute", lambda call, given: computed.append(call.wanted) or kept(call, given)
    )
    given = [integers(1, 2, 4), integers(3, 2, 2), integers(3)]
    for number, each in enumerate(given):
        each.requires_grad_(number in wanted)
    functional.conv1d(*given).sum().backward()
    assert tuple(n for n, each in enumerate(given) if each.grad is not None) == wanted
    needed = [name for n, name in enumerate(("input gradient", "weight gradient")) if n in wanted]
    assert sorted(computed) == sorted(["output", *needed])


class Stack(torch.nn.Module):
    """Down and up again, with integers for weights: sums are exact, in every order."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        for number, each in enumerate(self.parameters()):
            each.data = integers(*each.shape, seed=number, wants_gradient=False)

    def forward(self, x):
        return self.up(torch.relu(self.down(x)))


def outputs_and_gradients(model, x):
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y, *[each.grad for each in model.parameters()]]


NO_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++")
COMPILERS = ["eager", "aot_eager", pytest.param("inductor", marks=NO_COMPILER)]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiled_as_one_graph_the_results_are_equal(compiler):
    model, x = Stack(), integers(2, 2, 6, 8)
    compiled = torch.compile(model, fullgraph=True, backend=compiler)
    found, eager = outputs_and_gradients(compiled, x), outputs_and_gradients(model, x)
    assert all(torch.equal(one, other) for one, other in zip(found, eager, strict=True))
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))


def test_a_compiled_function_notices_that_the_surroundings_ask_for_another_backend():
    from trnconv import pytorch

    x, w = integers(1, 2, 5), integers(2, 2, 2)
    compiled = torch.compile(lambda x: functional.conv1d(x, w), fullgraph=True, backend="eager")
    asked = []
    for name in ("nkisim", "torch"):
        with pytorch.backend(name), pytest.MonkeyPatch.context() as patch:
            module = registry.BACKENDS[pytorch.Backend(name)]
            kept = module.compute
            patch.setattr(module, "compute", lambda *a, k=kept, n=name: asked.append(n) or k(*a))
            compiled(x)
    assert asked == ["nkisim", "torch"]


def test_an_end_compiles_too():
    x, w, residual = integers(2, 5), integers(3, 2, 2), integers(3, 4)
    compiled = torch.compile(functional.conv1d, fullgraph=True, backend="eager")
    found = compiled(x, w, activation="relu", residual=residual)
    assert torch.equal(found, torch.relu(torch.nn.functional.conv1d(x, w) + residual))
    with torch.no_grad():
        assert torch.equal(compiled(x, w, activation="relu", residual=residual), found)


def test_sizes_may_be_dynamic():
    w = integers(3, 2, 3)
    compiled = torch.compile(
        lambda x: functional.conv1d(x, w, padding=1), fullgraph=True, backend="eager", dynamic=True
    )
    for batch, length in ((2, 5), (3, 9)):
        x = integers(batch, 2, length)
        assert torch.equal(compiled(x), torch.nn.functional.conv1d(x, w, padding=1))


def test_export_keeps_the_ops_and_a_free_batch():
    model, x = Stack(), torch.randn(2, 2, 6, 8)
    batch = torch.export.Dim("batch", min=1, max=8)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert any(name.startswith("trnconv.") for name in called)
    more = torch.randn(3, 2, 6, 8)
    assert torch.equal(exported.module()(more), model(more))


def test_vmap_is_a_loop_over_the_mapped_axis():
    x, w = integers(2, 3, 2, 5), integers(3, 4, 2, 2)
    mapped = torch.vmap(functional.conv1d, in_dims=(1, 0), out_dims=1)(x, w)
    looped = torch.stack([functional.conv1d(x[:, n], w[n]) for n in range(3)], dim=1)
    assert torch.equal(mapped, looped)


def test_gradients_of_each_sample_by_vmap_of_grad():
    x, w = integers(3, 2, 5), integers(4, 2, 2)

    def loss(w, sample):
        return functional.conv1d(sample, w, padding=1).square().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
    for number, sample in enumerate(x):
        (alone,) = torch.autograd.grad(loss(w, sample), w)
        assert torch.equal(each[number], alone)


def test_functional_call_and_jacrev():
    model, x = nn.Conv1d(1, 1, 2, bias=False), integers(1, 1, 4)
    found = torch.func.jacrev(lambda w: torch.func.functional_call(model, {"weight": w}, (x,)))(
        model.weight
    )
    windows = x.detach().unfold(2, 2, 1)  # each output is linear in w: its row is its window
    assert torch.equal(found.reshape(3, 2), windows.reshape(3, 2))


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_torch_does(dtype, wants_gradient):
    model = Stack()
    model.requires_grad_(wants_gradient)
    x = torch.randn(1, 2, 6, 8)
    with torch.autocast("cpu", dtype):
        down = model.down(x)
        theirs = torch.nn.functional.conv2d(x, model.down.weight, model.down.bias, 2, 1)
        up = model.up(down)
    assert down.dtype == up.dtype == theirs.dtype == dtype
    again = model.down.to(dtype)(x.to(dtype))
    assert torch.equal(down, again)


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_shapes_without_values(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    place = FakeTensorMode() if device == "fake" else torch.device("meta")
    with place:
        model, x = Stack(), torch.empty(2, 2, 6, 8)
        y = model(x)
        assert y.shape == (2, 2, 6, 8)
        assert y.device.type == ("cpu" if device == "fake" else "meta")
        y.sum().backward()
    assert model.down.weight.grad.shape == model.down.weight.shape


LAYOUTS = {
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "strided": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x[:1].expand(2, -1, -1, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_count_and_not_how_they_lie(layout):
    x = LAYOUTS[layout](integers(2, 2, 4, 5, wants_gradient=False))
    w = LAYOUTS[layout](integers(2, 2, 3, 3, wants_gradient=False))
    assert not x.is_contiguous()
    found = functional.conv2d(x, w, padding=1)
    assert torch.equal(found, torch.nn.functional.conv2d(x, w, padding=1))


def test_channels_last_in_three_dimensions_and_gradients_of_strided_outputs():
    x, w = integers(2, 2, 3, 4, 5), integers(3, 2, 2, 2, 2)
    last = x.to(memory_format=torch.channels_last_3d)
    dx, dw = torch.autograd.grad(functional.conv3d(last, w)[..., ::2].sum(), (x, w))
    right = torch.autograd.grad(torch.nn.functional.conv3d(last, w)[..., ::2].sum(), (x, w))
    assert torch.equal(dx, right[0])
    assert torch.equal(dw, right[1])


def test_inference_mode():
    model = Stack()
    with torch.inference_mode():
        x = torch.randn(1, 2, 6, 8)
        y = model(x)
    assert y.is_inference()
    with torch.no_grad():
        assert torch.equal(y, model(x.clone()))
