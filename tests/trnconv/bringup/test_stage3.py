"""Stage 3 on a device "neuron" of doubles: its failures, and the adapters that are chosen."""

import pytest

torch = pytest.importorskip("torch")

from bringup_climbs import Stop, bench_with, stop_of
from nkisim.machine import TRN2
from trnconv.bringup import stage3
from trnconv.bringup.ladder import GREEN, OFF, climb
from trnconv.errors import UnsupportedError
from trnconv.pytorch.backends import adapters
from trnconv.pytorch.lazy import session

# Not with the other tests of torch: a process has one private backend, and keeps it.
pytestmark = pytest.mark.contact

FAILURES = {
    "no-nki-op": ("torch-call", "wrap-nki"),
    "device-contiguous": ("torch-view", "host-copies"),
    "no-dispatch-modes": ("torch-vae", "plain-tensors"),
    "no-compile": ("torch-compile", "no-compile"),
    "one-launch-a-graph": ("torch-compile-vae", "no-compile"),
}


@pytest.fixture
def doubles(monkeypatch):
    neuron_tensor = pytest.importorskip("neuron_tensor")
    import torch_doubles

    torch._dynamo.reset()  # a graph of another test would be used as it is
    monkeypatch.setattr(stage3, "_CALLS", 5)
    yield torch_doubles
    neuron_tensor.QUEUE.reset()
    adapters.use_adapter(None)


def stop(doubles, monkeypatch, failures=(), workarounds=()):
    doubles.QUEUE.reset(failures)
    if "no-dispatch-modes" in failures:  # on a device, its tensors are torch's own
        monkeypatch.setattr(session, "foreign_kind", lambda _: "")
    vendor = doubles.vendor_with_torch(failures)
    return stop_of(stage3.checks(), bench_with((), workarounds, monkeypatch, vendor))


def test_every_check_of_torch_runs(doubles, monkeypatch):
    assert stop(doubles, monkeypatch) == Stop(None, None)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_stops_at_its_check_and_passes_with_its_workaround(failure, doubles, monkeypatch):
    check, workaround = FAILURES[failure]
    found = stop(doubles, monkeypatch, (failure,))
    assert (found.check, found.workaround) == (check, workaround), found.words
    assert stop(doubles, monkeypatch, (failure,), (workaround,)) == Stop(None, None)


HOW = {"cores": 2, "machine": TRN2, "workarounds": frozenset()}


def test_the_adapter_follows_from_the_device_and_from_what_is_there(doubles):
    def kind(device, vendor, **changed):
        return type(adapters.fitting_adapter(device, vendor, **(HOW | changed)))

    both, lite, xla = doubles.vendor_with_torch(), doubles.lite_vendor(), doubles.xla_vendor()
    assert kind("neuron", both) is adapters.TorchNeuronAdapter
    assert kind("privateuseone", both) is adapters.TorchNeuronAdapter
    assert kind("neuron", both, workarounds=frozenset({"wrap-nki"})) is adapters.WrapNkiAdapter
    assert kind("neuron", lite) is adapters.WrapNkiAdapter
    assert kind("xla", xla) is adapters.XlaAdapter
    with pytest.raises(UnsupportedError, match="no way to call a kernel there"):
        kind("neuron", xla)


@pytest.mark.parametrize("kind", ["lite", "xla"])
def test_other_stacks_run_every_check_too(kind, doubles, monkeypatch):
    vendor = {"lite": doubles.lite_vendor, "xla": doubles.xla_vendor}[kind]()
    if kind == "xla":
        import neuron_tensor

        monkeypatch.setattr(torch.Tensor, "to", neuron_tensor.moved)
    bench = bench_with((), (), monkeypatch, vendor)
    found = {one.check.name: one.finding for one in climb(stage3.checks(), bench)}
    left_out = {"torch-compile", "torch-compile-vae"} if kind == "xla" else set()
    for name, finding in found.items():
        assert finding.state == (OFF if name in left_out else GREEN), (name, finding.words)
    assert len(found) == len(stage3.checks())


def test_cores_that_the_environment_contradicts_are_refused(doubles, monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    adapters.use_adapter(adapters.fitting_adapter("neuron", doubles.vendor_with_torch(), **HOW))
    with pytest.raises(UnsupportedError, match="export NEURON_LOGICAL_NC_CONFIG=2"):
        adapters.require_adapter("neuron")


def test_weights_and_tables_travel_once(doubles, monkeypatch):
    """Nothing is copied to the host, or packed, in a call like the one before."""

    import neuron_tensor
    from trnconv.pytorch import functional

    adapters.use_adapter(adapters.fitting_adapter("neuron", doubles.vendor_with_torch(), **HOW))
    doubles.QUEUE.reset()
    x, w, bias = (
        neuron_tensor.NeuronTensor(torch.ones(*shape))
        for shape in ((1, 4, 5, 6), (3, 4, 3, 3), (3,))
    )
    functional.conv2d(x, w, bias)
    copied = doubles.QUEUE.host_copies
    functional.conv2d(x, w, bias)
    functional.conv2d(x, w, bias)
    assert doubles.QUEUE.host_copies == copied > 0
    functional.conv2d(x, w, neuron_tensor.NeuronTensor(torch.zeros(3)))
    assert doubles.QUEUE.host_copies == copied + 1  # the bias, and nothing of the weights
