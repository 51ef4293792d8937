"""One thread for torch: its small operators only wait for each other on more; and a device."""

import sys

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def compiled_anew():
    """Tests that compile the same code would together pass torch's limit of recompilations."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


@pytest.fixture
def jit():
    """A double of nki.jit."""
    from neuron_doubles import FakeJit

    return FakeJit()


@pytest.fixture(params=["xla", "torch_neuron", "xla, one core", "torch_neuron, one core"])
def on_device(request, jit, monkeypatch):
    """Tensors of this test are on a Neuron device that has this adapter; "cpu" plays it."""
    from neuron_doubles import FakeNkiOp
    from trnconv.pytorch.backends import adapters, choice, packed_weights

    monkeypatch.setattr(choice, "NEURON_DEVICES", ("cpu",))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    ways = {
        "xla": lambda: adapters.XlaAdapter(jit),
        "torch_neuron": lambda: adapters.TorchNeuronAdapter(FakeNkiOp(), jit),
        "xla, one core": lambda: adapters.XlaAdapter(jit, cores=1),
        "torch_neuron, one core": lambda: adapters.TorchNeuronAdapter(FakeNkiOp(), jit, cores=1),
    }
    adapters.use_adapter(ways[request.param]())
    yield jit
    adapters.use_adapter(None)
    packed_weights.forget_packed_weights()
