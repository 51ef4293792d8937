"""The adapters for Neuron devices, driven by doubles of the documented contracts.

No device was at hand. The doubles hold a call to what is documented (a jitted kernel takes device
tensors and plain records; `nki_op` makes an op of a fully annotated function of tensors), record
it, and run the kernel in nkisim. "cpu" plays the device.
"""

import gc
import weakref

import pytest

from repetition import few

torch = pytest.importorskip("torch")

from neuron_doubles import FakeNkiOp
from trnconv.errors import UnsupportedError
from trnconv.pytorch import functional, nn
from trnconv.pytorch.backends import adapters, choice, packed_weights
from trnconv.runtime.launch import Prepared

pytestmark = pytest.mark.torch


def integers(*shape, seed=0):
    drawn = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.float()


CALLS = {
    "conv1d": ((2, 4, 9), (6, 2, 3), {"groups": 2, "stride": 2, "padding": 1}),
    "conv2d": ((1, 3, 5, 6), (4, 3, 3, 2), {"padding": "same", "dilation": 2}),
    "conv3d": ((1, 2, 3, 4, 5), (3, 2, 2, 3, 3), {"padding": (1, 0, 2)}),
    "depthwise": ((2, 4, 5, 6), (8, 1, 3, 3), {"groups": 4}),
    "conv_transpose2d": ((2, 4, 3, 4), (4, 3, 3, 2), {"stride": (2, 3), "padding": 1}),
    "conv_transpose1d": ((1, 4, 6), (4, 2, 3), {"groups": 2, "stride": 2, "output_padding": 1}),
}


@few(8)
@pytest.mark.parametrize("case", CALLS)
def test_outputs_and_gradients_are_torchs(case, on_device):
    name = {"depthwise": "conv2d"}.get(case, case)
    x_shape, w_shape, options = CALLS[case]
    channels = w_shape[1] * options.get("groups", 1) if "transpose" in name else w_shape[0]
    results = []
    for functions in (functional, torch.nn.functional):
        given = [integers(*x_shape), integers(*w_shape, seed=1), integers(channels, seed=2)]
        given = [each.requires_grad_() for each in given]
        y = getattr(functions, name)(*given, **options)
        dy = integers(*y.shape, seed=3)
        results.append([y, *torch.autograd.grad(y, given, dy)])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    forward = "depthwise" if case == "depthwise" else "forward"
    called = sorted(name.removesuffix("_on_two_cores") for name, _ in on_device.called)
    assert called == sorted([forward, "forward", "weight_gradient"])
    pairs = sum(name.endswith("_on_two_cores") for name, _ in on_device.called)
    assert pairs == (3 if adapters.require_adapter().cores == 2 else 0)


def test_the_end_is_fused_without_gradients(on_device):
    x, w, bias = integers(1, 2, 6), integers(3, 2, 3, seed=1), integers(3, seed=2)
    residual = integers(1, 3, 4, seed=3)
    found = functional.conv1d(x, w, bias, activation="relu", residual=residual)
    assert torch.equal(found, torch.relu(torch.nn.functional.conv1d(x, w, bias) + residual))
    ((_, tensors),) = on_device.called
    assert tensors[-1].shape == (1, 3, 1, 1, 4)


@pytest.mark.parametrize(("configured", "cores"), [(None, 2), ("2", 2), ("1", 1)])
def test_launches_are_as_large_as_the_runtime_is_configured(jit, monkeypatch, configured, cores):
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    if configured:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", configured)
    assert adapters.XlaAdapter(jit).cores == cores
    assert adapters.TorchNeuronAdapter(FakeNkiOp(), jit).cores == cores
    assert adapters.XlaAdapter(jit, cores=1).cores == 1
    with pytest.raises(UnsupportedError, match="3 cores on trn2: a launch has 1 to 2"):
        adapters.XlaAdapter(jit, cores=3)


def test_an_op_is_made_once_for_each_kernel_and_shape(jit, monkeypatch):
    monkeypatch.setattr(choice, "NEURON_DEVICES", ("cpu",))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    nki_op = FakeNkiOp()
    adapters.use_adapter(adapters.TorchNeuronAdapter(nki_op, jit, cores=1))
    w = integers(3, 2, 3)
    for length in (6, 6, 7):
        functional.conv1d(integers(1, 2, length), w)
    adapters.use_adapter(None)
    first, second = nki_op.names
    assert first != second
    assert all(name.startswith("trnconv_neuron::forward_") for name in nki_op.names)


@pytest.fixture
def packings(monkeypatch):
    """How often weights were packed."""
    counted = []
    kept = Prepared.pack
    monkeypatch.setattr(Prepared, "pack", lambda *a: counted.append(1) or kept(*a))
    return counted


def test_weights_are_packed_once_for_each_version(on_device, packings):
    module, x = nn.Conv1d(2, 3, 2, bias=False), integers(1, 2, 5)
    module.weight.data = integers(3, 2, 2, seed=1)
    for _ in range(2):
        assert torch.equal(module(x), torch.nn.functional.conv1d(x, module.weight))
    assert len(packings) == 1
    with torch.no_grad():
        module.weight.mul_(2)
    assert torch.equal(module(x), torch.nn.functional.conv1d(x, module.weight))
    assert len(packings) == 2
    module.load_state_dict({"weight": integers(3, 2, 2, seed=2)})
    assert torch.equal(module(x), torch.nn.functional.conv1d(x, module.weight))
    assert len(packings) == 3


@pytest.mark.parametrize("case", ["direct", "depthwise", "without, then with"])
def test_a_changed_bias_packs_no_weights(case, on_device, packings):
    """Every call has another bias, as a new tensor or in place; weights are packed once."""
    groups = 4 if case == "depthwise" else 1
    x, w = integers(1, 4, 5, 6), integers(8, 4 // groups, 3, 3, seed=1)
    bias = integers(8, seed=2)
    given = [None, bias] if case == "without, then with" else [bias]
    given += [integers(8, seed=seed) for seed in range(3, 6)]
    for each in given:
        y = functional.conv2d(x, w, each, groups=groups)
        assert torch.equal(y, torch.nn.functional.conv2d(x, w, each, groups=groups))
    given[-1].mul_(2)
    y = functional.conv2d(x, w, given[-1], groups=groups)
    assert torch.equal(y, torch.nn.functional.conv2d(x, w, given[-1], groups=groups))
    assert len(packings) == 1


def test_forward_and_input_gradient_pack_apart_even_if_their_plans_are_equal(on_device, packings):
    x, w = integers(1, 2, 5).requires_grad_(), integers(2, 2, 1, seed=1)
    (dx,) = torch.autograd.grad(functional.conv1d(x, w).sum(), x)
    (right,) = torch.autograd.grad(torch.nn.functional.conv1d(x, w).sum(), x)
    assert torch.equal(dx, right)
    assert len(packings) == 2


def test_a_change_through_data_needs_a_word(on_device):
    w, x = integers(3, 2, 2), integers(1, 2, 5, seed=1)
    functional.conv1d(x, w)
    w.data.mul_(2)
    packed_weights.forget_packed_weights()
    assert torch.equal(functional.conv1d(x, w), torch.nn.functional.conv1d(x, w))


def test_packed_weights_do_not_keep_parameters_alive(on_device):
    module = nn.Conv1d(2, 3, 2)
    with torch.no_grad():
        module(integers(1, 2, 5))
    assert len(packed_weights._kept) == 1
    alive = weakref.ref(module.weight)
    del module
    on_device.called.clear()
    gc.collect()
    assert alive() is None
    assert len(packed_weights._kept) == 0


def test_tensors_of_inference_mode_have_no_version_and_are_packed_each_time(on_device, packings):
    with torch.inference_mode():
        w, x = integers(3, 2, 2), integers(1, 2, 5)
        for _ in range(2):
            functional.conv1d(x, w)
    assert len(packings) == 2


def test_without_a_toolchain_a_device_is_refused(monkeypatch):
    monkeypatch.setattr(choice, "NEURON_DEVICES", ("cpu",))
    with pytest.raises(UnsupportedError, match="Install the vendor's nki"):
        functional.conv1d(integers(1, 2, 5), integers(3, 2, 2))


def test_the_vendors_toolchain_is_known_by_what_install_says(monkeypatch):
    """nkisim.install() says "nki <version> at <path>" of it, and "nkisim <version>" of ours."""
    monkeypatch.setattr(adapters._nki, "SOURCE", "nki 0.6.0 at somewhere")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert isinstance(adapters.require_adapter(), adapters.XlaAdapter)
    adapters.use_adapter(None)
    monkeypatch.setattr(adapters._nki, "SOURCE", "nkisim 0.1.0")
    with pytest.raises(UnsupportedError, match="no Neuron toolchain"):
        adapters.require_adapter()


@pytest.mark.parametrize("legalise", [True, False])
def test_the_pass_for_tensors_written_twice_is_asked_for(legalise):
    """NKI 0.7's switch makes a new kernel; one without it is called as it is."""
    asked = []

    class Jitted:
        def __init__(self, switched):
            self.switched = switched

        def __call__(self, *_):
            asked.append(self.switched)

        def enable_non_ssa_legalization(self):
            return Jitted(switched=True)

    def jit(_):
        return Jitted(switched=False)

    tensor = torch.zeros(1)
    adapters.XlaAdapter(jit, legalise=legalise, cores=1).call(len, (tensor,), "recipe", 1)
    options = {"legalise": legalise, "cores": 1}
    ops = adapters.TorchNeuronAdapter(lambda *_, **__: lambda op: op, jit, **options)
    ops.call(len, (tensor,), "recipe", 1)
    assert asked == [legalise, legalise]
