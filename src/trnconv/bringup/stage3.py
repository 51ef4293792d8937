"""Stage 3: torch. From one convolution to a whole autoencoder, eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, Check, Finding
from trnconv.bringup.probes.probe import integers
from trnconv.errors import UnsupportedError
from trnconv.host.workarounds import HOST_COPIES, NO_COMPILE, PLAIN_TENSORS, WRAP_NKI

STAGE: Final = 3
_CALLS: Final = 100
_VIDEO: Final = (1, 3, 3, 8, 12)
_X, _W = (1, 8, 3, 6, 7), (12, 8, 3, 3, 3)


def checks() -> tuple[Check, ...]:
    """From one call to a compiled module."""
    listed: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
        ("torch-call", "one convolution of tensors on the device", _one_call, WRAP_NKI),
        ("torch-bias", f"{_CALLS} calls with another bias each", _many_calls, ""),
        ("torch-view", "an input that is a view", _of_view, HOST_COPIES),
        ("torch-block", "two convolutions with an activation and a residual", _block, ""),
        ("torch-gradients", "gradients of input and of filters", _gradients, ""),
        ("torch-vae", "a patched autoencoder, decoded in chunks", _vae, PLAIN_TENSORS),
        ("torch-compile", "a convolution under torch.compile", _compiled, NO_COMPILE),
        ("torch-compile-vae", "a patched decoder under torch.compile", _compiled_vae, NO_COMPILE),
    )
    return tuple(
        Check(STAGE, name, asks, partial(_asked, ask), workaround)
        for name, asks, ask, workaround in listed
    )


def _asked(ask: Callable[[Any], str], bench: Bench) -> Finding:
    """Whether what is computed on the device equals torch on the CPU, in integers."""
    if find_spec("torch") is None:
        return Finding(OFF, "torch is not installed")
    with _on_device(bench) as on:
        if on.device == "xla" and ask in (_compiled, _compiled_vae):
            return Finding(OFF, "torch-xla compiles whatever runs: torch.compile is not asked")
        wrong = ask(on)
    return Finding(RED, wrong) if wrong else Finding(GREEN, "equal to torch")


class _OnDevice:
    """Tensors of a device and back; simulated ones stay where they are."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.device = device_type(bench) if bench.runner.is_device else "cpu"

    def put(self, tensor: Any) -> Any:
        """A tensor, or a model, on the device."""
        return tensor.to(self.device) if self.device != "cpu" else tensor

    def get(self, tensor: Any) -> Any:
        """A tensor on the host, when the device is done."""
        if self.device != "cpu":
            from trnconv.pytorch.backends.adapters import require_adapter  # noqa: PLC0415

            require_adapter(self.device).wait()
        return tensor.detach().cpu()

    def compiled(self, function: Any) -> Any:
        """Under torch.compile, with launches in the graph."""
        import torch  # noqa: PLC0415 (the other stages need none)

        from trnconv.pytorch.operators.launch_graph import with_launches  # noqa: PLC0415

        compiler = "neuron" if self.bench.runner.is_device else "eager"
        return torch.compile(function, backend=with_launches(compiler), dynamic=False)

    def drawn(self, seed: int, *shape: int) -> Any:
        """Integers on the host."""
        import torch  # noqa: PLC0415 (the other stages need none)

        return torch.from_numpy(integers(seed, *shape, most=2))


def device_type(bench: Bench) -> str:
    """The torch device of the packages that are here."""
    vendor = bench.vendor
    if vendor.torch_neuronx is not None or vendor.lite is not None:
        return "neuron"
    if vendor.torch_xla is not None:
        return "xla"
    raise UnsupportedError(
        "stage 3 on a device: none of torch_neuronx, libtorch_neuronx_lite and torch_xla can be"
        " imported. Install TorchNeuron, or stop after stage 2."
    )


@contextmanager
def _on_device(bench: Bench) -> Iterator[_OnDevice]:
    """Everything inside is computed by the adapter that fits."""
    on = _OnDevice(bench)
    from trnconv.pytorch.backends import adapters  # noqa: PLC0415 (the other stages need no torch)

    if bench.runner.is_device:
        how = {"cores": bench.cores, "machine": bench.machine, "workarounds": bench.workarounds}
        adapters.use_adapter(adapters.fitting_adapter(on.device, bench.vendor, **how))
    try:
        yield on
    finally:
        adapters.use_adapter(None)


def _difference(result: Any, expected: Any) -> str:
    if result.shape != expected.shape:
        return f"shape {tuple(result.shape)}, {tuple(expected.shape)} expected"
    wrong = int((result != expected).sum())
    return f"{wrong} of {expected.numel()} values are not torch's" if wrong else ""


def _one_call(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import functional  # noqa: PLC0415

    x, w, bias = on.drawn(1, *_X), on.drawn(2, *_W), on.drawn(3, _W[0])
    y = functional.conv3d(on.put(x), on.put(w), on.put(bias), padding=1)
    return _difference(on.get(y), torch.nn.functional.conv3d(x, w, bias, padding=1))


def _many_calls(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import functional  # noqa: PLC0415

    x, w = on.drawn(1, 1, 4, 1, 4, 5), on.drawn(2, 6, 4, 1, 3, 3)
    there = on.put(x), on.put(w)
    for number in range(_CALLS if on.bench.runner.is_device else 3):
        bias = on.drawn(10 + number, 6)
        y = functional.conv3d(*there, on.put(bias))
        wrong = _difference(on.get(y), torch.nn.functional.conv3d(x, w, bias))
        if wrong:
            return f"call {number}: {wrong}"
    return ""


def _of_view(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import functional  # noqa: PLC0415

    x, w = on.drawn(1, *_X), on.drawn(2, *_W)
    y = functional.conv3d(on.put(x).transpose(3, 4), on.put(w))
    return _difference(on.get(y), torch.nn.functional.conv3d(x.transpose(3, 4), w))


def _block(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import functional  # noqa: PLC0415

    plain = torch.nn.functional
    x, w = on.drawn(1, 1, 8, 3, 6, 7), on.drawn(2, 8, 8, 3, 3, 3)
    v = on.drawn(3, 8, 8, 1, 1, 1)
    with torch.no_grad():
        there = on.put(x)
        first = functional.conv3d(there, on.put(w), padding=1, activation="relu")
        y = functional.conv3d(first, on.put(v), residual=there)
        expected = plain.conv3d(torch.relu(plain.conv3d(x, w, padding=1)), v) + x
    return _difference(on.get(y), expected)


def _gradients(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch.backends.conv_call import ConvSpec  # noqa: PLC0415
    from trnconv.pytorch.operators import convolutions  # noqa: PLC0415

    x, w = (on.drawn(seed, *shape).requires_grad_() for seed, shape in ((1, _X), (2, _W)))
    y = torch.nn.functional.conv3d(x, w)
    dy = on.drawn(4, *y.shape)
    expected = torch.autograd.grad(y, (x, w), dy)
    there = [on.put(tensor.detach()) for tensor in (x, w, dy)]
    numbers = ConvSpec().numbers()
    dx = convolutions.input_gradient(there[2], there[1], list(_X), numbers, "auto")
    dw = convolutions.weight_gradient(there[0], there[2], list(_W[2:]), numbers, "auto")
    wrong = [
        _difference(on.get(gradient), other)
        for gradient, other in zip((dx, dw), expected, strict=True)
    ]
    return "; ".join(difference for difference in wrong if difference)


def _compiled(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import functional  # noqa: PLC0415

    x, w = on.drawn(1, 1, 4, 1, 4, 5), on.drawn(2, 6, 4, 1, 3, 3)

    def doubled(tensor: Any, filters: Any) -> Any:
        return functional.conv3d(tensor, filters) * 2

    with torch.no_grad():
        y = on.compiled(doubled)(on.put(x), on.put(w))
    return _difference(on.get(y), 2 * torch.nn.functional.conv3d(x, w))


def _vae(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import patched  # noqa: PLC0415
    from trnconv.pytorch.networks.causal_vae import CausalVae  # noqa: PLC0415

    x = on.drawn(1, *_VIDEO)
    with torch.no_grad():
        expected, model = CausalVae()(x), on.put(CausalVae())
        with patched(model):
            y = model(on.put(x))
    return _difference(on.get(y), expected)


def _compiled_vae(on: _OnDevice) -> str:
    import torch  # noqa: PLC0415

    from trnconv.pytorch import patched  # noqa: PLC0415
    from trnconv.pytorch.networks.causal_vae import CausalVae  # noqa: PLC0415

    with torch.no_grad():
        plain, model = CausalVae(), on.put(CausalVae())
        z = plain.encode(on.drawn(1, *_VIDEO))
        with patched(model):
            y = on.compiled(model.decoder)(on.put(z))
        expected = plain.decoder(z)
    return _difference(on.get(y), expected)
