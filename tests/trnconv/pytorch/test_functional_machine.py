"""machine=, cores=, reproducible= and padding modes of torch's functions: those of the arrays'."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nkisim
import trnconv
from integer_networks import integers
from trnconv.errors import UnsupportedError
from trnconv.pytorch import causal_conv3d, functional, nn
from trnconv.pytorch.backends import simulator
from trnconv.pytorch.backends.choice import Simulated, asked_for, machine_of

pytestmark = pytest.mark.torch

MODES = ("zeros", "replicate", "reflect", "circular")


@pytest.fixture
def seen(monkeypatch):
    """The calls that nkisim computed, with their machines."""
    calls, compute = [], simulator.compute

    def spy(call, operands, *machine):
        calls.append((call, *machine))
        return compute(call, operands, *machine)

    monkeypatch.setattr(simulator, "compute", spy)
    return calls


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(("machine", "cores"), [("trn1", 1), ("trn2", 2), ("trn3", 2)])
@pytest.mark.parametrize("mode", MODES)
def test_a_machine_gives_the_bits_that_it_gives_arrays(seen, mode, machine, cores):
    x, w, bias = random(2, 8, 6, 7), random(12, 8, 3, 3, seed=1), random(12, seed=2)
    options = {"padding": 1, "padding_mode": mode, "machine": machine, "cores": cores}
    with torch.no_grad():
        ours = functional.conv2d(x, w, bias, **options)
    theirs = trnconv.conv2d(x.numpy(), w.numpy(), bias.numpy(), **options)
    assert np.array_equal(ours.numpy(), theirs)
    assert seen[0][1] == Simulated(machine, cores)


def test_transposed_and_causal_ones_have_a_machine_too(seen):
    x, w = integers(1, 4, 3, 4, 5), integers(4, 4, 3, 3, 3, most=2)
    machine = {"machine": "trn3", "cores": 2}
    ours = functional.conv_transpose3d(x, w, **machine)
    theirs = trnconv.conv_transpose3d(x.numpy(), w.numpy(), **machine)
    assert np.array_equal(ours.numpy(), theirs)
    assert torch.equal(causal_conv3d(x, w, **machine)[0], causal_conv3d(x, w)[0])
    assert [machine for _, *machine in seen] == [[Simulated("trn3", 2)]] * 2 + [[]]


def test_gradients_run_on_the_machine_of_the_output(seen):
    x, w = integers(1, 4, 6, 5).requires_grad_(), integers(4, 4, 3, 3, most=2).requires_grad_()
    functional.conv2d(x, w, padding=1, machine="trn1").sum().backward()
    assert [machine for _, *machine in seen] == [[Simulated("trn1", 1)]] * 3
    expected = torch.autograd.grad(torch.nn.functional.conv2d(x, w, padding=1).sum(), (x, w))
    assert torch.equal(x.grad, expected[0])
    assert torch.equal(w.grad, expected[1])


def test_modules_and_compiled_functions_have_a_machine(seen):
    module = nn.Conv2d(4, 4, 3, padding=1).requires_grad_(requires_grad=False)
    x = random(1, 4, 5, 6)
    expected = module(x)
    module.machine, module.cores, module.reproducible = "trn3", 2, True
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), expected, rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
    call, machine = seen[-1]
    assert machine == Simulated("trn3", 2)
    assert call.spec.reproducible


@pytest.mark.parametrize("backend", ["torch", "neuron"])
def test_a_machine_is_refused_where_none_is_simulated(backend):
    x, w = integers(1, 4, 6, 5), integers(4, 4, 3, 3)
    with pytest.raises(UnsupportedError, match=r'machine="trn3".*that nkisim simulates'):
        functional.conv2d(x, w, machine="trn3", backend=backend)


def test_the_environment_may_ask_for_torch_too(monkeypatch):
    monkeypatch.setenv("TRNCONV_BACKEND", "torch")
    x, w = integers(1, 4, 6, 5), integers(4, 4, 3, 3)
    with pytest.raises(UnsupportedError, match=r"cores=2.*that nkisim simulates"):
        functional.conv2d(x, w, cores=2)


def test_unknown_machines_are_refused():
    x, w = integers(1, 4, 6, 5), integers(4, 4, 3, 3)
    with pytest.raises(nkisim.NkiValidationError, match="trn9"):
        functional.conv2d(x, w, machine="trn9")


def test_what_ops_are_told_can_be_read_back():
    assert machine_of(asked_for("nkisim")) == ("nkisim", None)
    assert machine_of(asked_for(None, "trn2+column-tiles", 2)) == (
        "auto",
        Simulated("trn2+column-tiles", 2),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_reproducible_rows_have_the_bits_of_the_whole(dtype):
    """Sums of some thousand terms, whose order shows in the last bits."""
    x, w = random(1, 96, 12, 33, dtype=dtype), random(32, 96, 3, 3, seed=1, dtype=dtype)
    with torch.no_grad():
        whole = functional.conv2d(x, w, reproducible=True)
        parts = [functional.conv2d(x[:, :, at : at + 4], w, reproducible=True) for at in (0, 2, 8)]
    joined = torch.cat([parts[0], parts[1]], 2)
    assert torch.equal(joined, whole[:, :, :4])
    assert torch.equal(parts[2], whole[:, :, 8:])
    if dtype == torch.float32:
        theirs = trnconv.conv2d(x.numpy(), w.numpy(), reproducible=True)
        assert np.array_equal(whole.numpy(), theirs)


def test_reproducible_is_refused_where_it_cannot_be():
    x, w = integers(1, 4, 6, 5), integers(4, 4, 3, 3).requires_grad_()
    with pytest.raises(UnsupportedError, match=r"with gradients.*no_grad"):
        functional.conv2d(x, w, reproducible=True)
    with pytest.raises(UnsupportedError, match="order of its sums is its own"):
        functional.conv2d(x, w.detach(), reproducible=True, backend="torch")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_without_gradients_there_is_one_kernel_and_one_rounding(seen, mode, dtype):
    """Whole numbers: sums are exact, so the result is the exact one, rounded once to the type.

    They are large enough for the type to round them, so that two roundings differ from one.
    """
    most = {torch.float16: 40, torch.bfloat16: 9}[dtype]
    x = integers(1, 4, 7, 9, most=most).to(dtype)
    w = integers(5, 4, 3, 3, most=most, seed=1).to(dtype)
    bias = integers(5, most=9, seed=2).to(dtype)
    residual = (integers(1, 5, 7, 9, most=99, seed=3) / 8).to(dtype)
    with torch.no_grad():
        y = functional.conv2d(
            x, w, bias, padding=1, padding_mode=mode, residual=residual, accuracy="direct"
        )
    named = "constant" if mode == "zeros" else mode
    wide = torch.nn.functional.pad(x.double(), (1, 1, 1, 1), mode=named)
    exact = torch.nn.functional.conv2d(wide, w.double(), bias.double()) + residual.double()
    assert torch.equal(y, exact.float().to(dtype))
    twice = (exact - residual.double()).float().to(dtype) + residual
    assert not torch.equal(twice, y), "the residual was not fused, and nobody would notice"
    ((call,),) = seen
    assert call.spec.modes == ("zeros", mode, mode)
    assert call.spec.before == (0, 1, 1)
    assert call.spec.accuracy.startswith("direct")
