"""torch.compile on a device "neuron" of doubles: a convolution is one node, its launcher."""

import pytest

torch = pytest.importorskip("torch")

from nkisim.machine import TRN2
from trnconv.pytorch import functional, nn
from trnconv.pytorch.backends import adapters
from trnconv.pytorch.operators.launch_graph import OpaqueOpWarning, with_launches

# Not with the other tests of torch: a process has one private backend, and keeps it.
pytestmark = pytest.mark.contact

VIEWS = ("aten::view", "aten::_unsafe_view", "aten::clone", "aten::slice")


@pytest.fixture(params=["nki-op", "wrap-nki", "lite"])
def doubles(request):
    neuron_tensor = pytest.importorskip("neuron_tensor")
    import torch_doubles

    torch._dynamo.reset()
    torch_doubles.GRAPHS.clear()
    lite = request.param == "lite"
    vendor = torch_doubles.lite_vendor() if lite else torch_doubles.vendor_with_torch()
    workarounds = frozenset({"wrap-nki"} if request.param == "wrap-nki" else ())
    how = {"cores": 2, "machine": TRN2, "workarounds": workarounds}
    adapters.use_adapter(adapters.fitting_adapter("neuron", vendor, **how))
    with torch.no_grad():
        yield torch_doubles
    neuron_tensor.QUEUE.reset()
    adapters.use_adapter(None)


def integers(*shape, seed=0):
    drawn = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.float()


def there(*tensors):
    from neuron_tensor import NeuronTensor

    return [NeuronTensor(tensor) for tensor in tensors]


def here(doubles, tensor):
    doubles.QUEUE.synchronize()
    return tensor.cpu()


def compiled(function, compiler="neuron"):
    return torch.compile(function, backend=with_launches(compiler), dynamic=False, fullgraph=True)


def launches(doubles, graph):
    return [name for name in doubles.ops_in(graph) if name in doubles.LAUNCHERS]


CALLS = {
    "conv1d": ((2, 4, 9), (6, 2, 3), {"groups": 2, "stride": 2, "padding": 1}),
    "conv2d": ((1, 3, 5, 6), (4, 3, 3, 2), {"padding": "same", "dilation": 2}),
    "conv3d": ((1, 4, 1, 4, 5), (6, 4, 1, 3, 3), {}),
    "conv_transpose2d": ((2, 4, 3, 4), (4, 3, 3, 2), {"stride": (2, 3), "padding": 1}),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_graph_of_a_convolution_has_one_launch_and_no_packing(name, doubles):
    x_shape, w_shape, options = CALLS[name]
    x, w = integers(*x_shape), integers(*w_shape, seed=1)
    found = compiled(lambda *given: getattr(functional, name)(*given, **options))(*there(x, w))
    assert torch.equal(here(doubles, found), getattr(torch.nn.functional, name)(x, w, **options))
    (graph,) = doubles.GRAPHS
    assert len(launches(doubles, graph)) == 1
    others = [op for op in doubles.ops_in(graph) if op not in doubles.LAUNCHERS]
    assert set(others) <= set(VIEWS), others
    for node in graph.graph.find_nodes(op="placeholder"):
        sizes = getattr(node.meta.get("val"), "shape", ())
        assert all(isinstance(size, int) for size in sizes), "a size that is a symbol"


def test_images_of_weights_are_inputs_and_follow_what_changes(doubles):
    """One graph; other weights, weights changed in place and other biases are packed before it."""
    call = compiled(functional.conv2d)
    x, w, other = integers(1, 4, 5, 6), integers(3, 4, 3, 3, seed=1), integers(3, 4, 3, 3, seed=2)
    biases = [integers(3, seed=seed) for seed in range(3, 6)]
    moved = there(w)[0]
    for weight, given in ((w, moved), (other, there(other)[0])):
        for bias in biases:
            found = here(doubles, call(*there(x), given, *there(bias)))
            assert torch.equal(found, torch.nn.functional.conv2d(x, weight, bias))
    moved.mul_(2)
    found = here(doubles, call(*there(x), moved, *there(biases[0])))
    assert torch.equal(found, torch.nn.functional.conv2d(x, moved.held, biases[0]))
    assert len(doubles.GRAPHS) == 1


def test_nothing_is_copied_to_the_host_in_a_call_like_the_one_before(doubles):
    call, given = (
        compiled(functional.conv2d),
        there(integers(1, 4, 5, 6), integers(3, 4, 3, 3, seed=1), integers(3, seed=2)),
    )
    here(doubles, call(*given))
    copied = doubles.QUEUE.host_copies
    call(*given)
    call(*given)
    assert doubles.QUEUE.host_copies == copied > 0


def test_a_module_with_a_residual_and_an_activation_is_two_launches(doubles):
    first, second = nn.Conv3d(4, 4, 3, padding=1), nn.Conv3d(4, 4, 1)
    for seed, module in enumerate((first, second)):
        weight = integers(*module.weight.shape, seed=seed)
        for name, value in (("weight", weight), ("bias", integers(4, seed=seed + 5))):
            moved = there(value)[0]
            setattr(module, name, torch.nn.Parameter(moved, requires_grad=False))

    def block(x):
        y = functional.conv3d(x, first.weight, first.bias, padding=1, activation="relu")
        return functional.conv3d(y, second.weight, second.bias, residual=x)

    x, plain = integers(1, 4, 3, 5, 6, seed=9), torch.nn.functional
    y = here(doubles, compiled(block)(*there(x)))
    inner = torch.relu(plain.conv3d(x, first.weight.held, first.bias.held, padding=1))
    assert torch.equal(y, plain.conv3d(inner, second.weight.held, second.bias.held) + x)
    assert len(launches(doubles, *doubles.GRAPHS)) == 2


def test_an_op_that_stays_is_named_and_cannot_be_lowered(doubles):
    """A weight that the graph computes would have to be packed in the middle of it."""
    x, w = integers(1, 4, 5, 6), integers(3, 4, 3, 3, seed=1)
    call = compiled(lambda x, w: functional.conv2d(x, w + 1))
    with (
        pytest.warns(OpaqueOpWarning, match="its weight or bias is computed in the graph"),
        pytest.raises(RuntimeError, match="no lowering for trnconv::fused_convolution"),
    ):
        call(*there(x, w))


def test_without_launches_the_op_hides_the_kernel(doubles):
    x, w = integers(1, 4, 5, 6), integers(3, 4, 3, 3, seed=1)
    call = torch.compile(functional.conv2d, backend="neuron", dynamic=False)
    with pytest.raises(RuntimeError, match="no lowering for trnconv::fused_convolution"):
        call(*there(x, w))


def test_the_backends_name_is_what_an_installed_package_says():
    import re
    from importlib import import_module
    from pathlib import Path

    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    listed = text.partition("[project.entry-points.torch_dynamo_backends]")[2]
    name, module, function = re.match(r'\s*(\w+) = "([\w.]+):(\w+)"', listed).groups()
    assert name == "trnconv"
    assert callable(getattr(import_module(module), function))


def test_on_a_cpu_ops_stay_ops(doubles):
    """nkisim runs there: nothing is to be launched, and nothing is warned of."""
    x, w = integers(1, 4, 5, 6), integers(3, 4, 3, 3, seed=1)
    found = compiled(functional.conv2d, "eager")(x, w)
    assert torch.equal(found, torch.nn.functional.conv2d(x, w))
