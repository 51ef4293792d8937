"""The neuron backend: our kernels on a device, through the frameworks' documented entry points.

Two ways exist to call an NKI kernel from PyTorch. With torch-xla, a kernel decorated with `nki.jit`
is called on XLA tensors. With TorchNeuron, the call is wrapped by `torch_neuronx.nki_op`. Both are
one method here. Neither has been run by us: no device was at hand. Tests drive them with doubles
that record what the contracts say.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from trnconv import _nki
from trnconv.errors import UnsupportedError
from trnconv.kernels.forward import forward
from trnconv.packing import pack_bias, pack_places, pack_weights
from trnconv.plan.ends import BEFORE, NO_RESIDUAL, end_of
from trnconv.plan.work_out import work_out
from trnconv.pytorch.arrays import to_array, to_tensor
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Window
from trnconv.runtime import LaunchOptions, plan_for


class Adapter(Protocol):
    """Calls a kernel with device tensors and everything else it takes."""

    def call(self, kernel: Any, *args: Any) -> torch.Tensor:
        """The kernel's output, on the device."""


class XlaAdapter:
    """torch-xla: a jitted kernel is called like a function."""

    def __init__(self, jit: Any) -> None:
        self._jit = jit

    def call(self, kernel: Any, *args: Any) -> torch.Tensor:
        """Compile and call; the result stays lazy until torch-xla synchronises."""
        result: torch.Tensor = self._jit(kernel)(*args)
        return result


class TorchNeuronAdapter:
    """TorchNeuron: `wrap` is `torch_neuronx.nki_op`'s way to call a kernel eagerly."""

    def __init__(self, wrap: Any) -> None:
        self._wrap = wrap

    def call(self, kernel: Any, *args: Any) -> torch.Tensor:
        """Wrap and call."""
        result: torch.Tensor = self._wrap(kernel)(*args)
        return result


_adapter: Adapter | None = None


def use_adapter(adapter: Adapter | None) -> None:
    """The adapter for this process; None forgets it."""
    global _adapter  # noqa: PLW0603 (one device runtime a process)
    _adapter = adapter


def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    extras: Extras,
) -> torch.Tensor:
    """Weights are packed on the host; x stays on the device."""
    place = NO_RESIDUAL if extras.residual is None else BEFORE
    launch = LaunchOptions(end=end_of(extras.activation, place, ""))
    adapter = _require_adapter()
    shape = window.forward(x.shape, w.shape)
    plan = plan_for(shape, str(x.dtype).removeprefix("torch."), launch)[0]
    work = work_out(plan, shape)
    rank = len(window.stride)
    w5 = to_array(w.cpu()).reshape(shape.c_out, -1, *shape.kernel)
    on_host = (
        pack_weights(w5, plan.problem, work),
        pack_bias(None if bias is None else to_array(bias.cpu()), work),
        pack_places(work),
    )
    packed = [to_tensor(each).to(x.device) for each in on_host]
    x5 = x.reshape(shape.batch, shape.c_in, *shape.size)
    y = adapter.call(forward, x5, *packed, extras.residual, work.recipe)
    return y.reshape(shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :])


def input_gradient(
    dy: torch.Tensor, w: torch.Tensor, x_shape: list[int], window: Window
) -> torch.Tensor:
    """Not wired yet."""
    del dy, w, x_shape, window
    raise UnsupportedError(
        "gradients on a Neuron device: wired for the forward pass so far. Train with"
        ' backend="torch", or simulate on a CPU.'
    )


def filter_gradient(
    x: torch.Tensor, dy: torch.Tensor, kernel: list[int], window: Window
) -> torch.Tensor:
    """Not wired yet."""
    return input_gradient(x, dy, kernel, window)


def _require_adapter() -> Adapter:
    if _adapter is not None:
        return _adapter
    if _nki.SOURCE != "nki":
        raise UnsupportedError(
            "a Neuron tensor, but no Neuron toolchain: `import nki` finds nkisim. Install the"
            " vendor's nki, or move the tensor to the CPU to simulate."
        )
    import nki  # noqa: PLC0415 (the vendor's, present by now)

    return XlaAdapter(nki.jit)
