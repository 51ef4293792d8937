"""The neuron backend: the same kernels on a device, through an adapter.

Inputs, outputs and gradients stay on the device. Algorithms that round are taken for layers that
were calibrated: nobody looks at the data here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from trnconv.algorithms.algorithm import with_bias
from trnconv.algorithms.program import Prepared
from trnconv.host.workarounds import HOST_COPIES
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.pytorch.backends.adapters import Adapter, require_adapter
from trnconv.pytorch.backends.arrays import Array, dtype_name, to_array, to_tensor
from trnconv.pytorch.backends.conv_call import INPUT_GRADIENT, ConvCall
from trnconv.pytorch.backends.gradient_scale import SCALED_MAX, is_scaled, scaled
from trnconv.pytorch.backends.on_device import Results, computed, each
from trnconv.pytorch.backends.packed_weights import Images, kept_tables, packed_once
from trnconv.runtime.launch import LaunchOperands, prepare
from trnconv.runtime.plans import plans_for

_LAUNCHES = 4096  # problems of a process; a large model has some hundreds


def compute(call: ConvCall, operands: LaunchOperands) -> Results:
    """One convolution, or a gradient of one."""
    x = operands.inputs[0]
    adapter = require_adapter(x.device.type)
    problem = problem_of(call, operands, adapter)
    device = NeuronDevice(operands, call.wanted, adapter)
    if not is_scaled(call, problem):
        done = computed(call, problem, operands, device)
        return each(done, lambda result: device.dense(result.to(x.dtype)))
    dy, undo = scaled(x)
    result = computed(call, problem, replace(operands, inputs=(dy,)), device)
    return device.dense(result.to(x.dtype) * undo)


def problem_of(call: ConvCall, operands: LaunchOperands, adapter: Adapter) -> ConvProblem:
    """What is asked of the planner; of the operands, sizes and types are enough."""
    # Without calibration somebody would have to look at the data, which is on the device. Gradients
    # need none: they are scaled there.
    policy = None if call.spec.policy.x_max is not None else ALWAYS_DIRECT
    if call.wanted == INPUT_GRADIENT:
        policy = replace(call.spec.policy, x_max=SCALED_MAX)
    return call.problem(operands, dtype_name(operands.inputs[0]), adapter.machine, policy)


@dataclass(frozen=True)
class NeuronDevice:
    """Launches on a Neuron device. `whole` are the operands that weights are packed for."""

    whole: LaunchOperands
    wanted: str
    adapter: Adapter

    def prepared(self, problem: ConvProblem) -> Prepared:
        """Planned and lowered once for each problem, for the cores of the adapter's launches."""
        return _prepared(problem, self.adapter.cores)

    def launch(self, prepared: Prepared, operands: LaunchOperands) -> tuple[Any, ...]:
        """Pack what changed since the last time, and call the kernel."""
        inputs = tuple(self.dense(input_) for input_ in operands.inputs)
        residual = None if operands.residual is None else self.dense(operands.residual)
        packed = self.packed(prepared, operands, inputs[0].device)
        data = (residual, operands.factors, operands.scales)
        *tensors, recipe = prepared.arguments(inputs, packed, *data)
        kernel = prepared.kernel(len(inputs))
        outputs = len(prepared.lowered[0].outputs)
        done = self.adapter.call(kernel, tuple(tensors), recipe, outputs)
        return done if isinstance(done, tuple) else (done,)

    def packed(self, prepared: Prepared, operands: LaunchOperands, device: torch.device) -> Images:
        """What the kernel reads of the filters, on the device."""
        packing = LaunchPacking(prepared, operands, device, self.adapter)
        if self.whole.w is None:  # tables of a gradient follow from its plan alone
            return kept_tables((prepared.plans, device), lambda: packing.pack()[0])
        part = (tuple(operands.w.shape), operands.w.storage_offset())  # of all output channels
        use = (prepared.plans, self.wanted, device, part)
        return packed_once((self.whole.w, self.whole.bias), use, packing)

    def dense(self, tensor: torch.Tensor) -> torch.Tensor:
        """In the order of its dimensions; some runtimes cannot do that on the device."""
        if tensor.is_contiguous() or HOST_COPIES not in self.adapter.workarounds:
            return tensor.contiguous()
        self.adapter.wait()
        return tensor.cpu().contiguous().to(tensor.device)

    def joined(self, pieces: tuple[Any, ...]) -> Any:
        """One tensor, on the device."""
        return torch.cat(pieces, dim=2)

    def empty(self, sizes: tuple[int, ...], like: Any, dtype: str) -> Any:
        """A tensor on the device."""
        kind = getattr(torch, dtype) if dtype else like.dtype
        return torch.empty(sizes, dtype=kind, device=like.device)


@dataclass(frozen=True)
class LaunchPacking:
    """Images of a launch: packed on the host, where the device has ended, and copied to it."""

    prepared: Prepared
    operands: LaunchOperands
    device: torch.device
    adapter: Adapter

    def pack(self) -> tuple[Images, dict[int, Array]]:
        """All of them, and the arrays on the host that have biases, by number."""
        self.adapter.wait()
        arrays = self.prepared.pack(_on_host(self.operands.w), _on_host(self.operands.bias))
        biased = {
            number: arrays[number]
            for number, channels in enumerate(self.prepared.bias_channels())
            if channels is not None
        }
        return tuple(self._there(array) for array in arrays), biased

    def rebias(self, images: Images, kept: dict[int, Array]) -> Images | None:
        """Only the bias is read, and only arrays that have one are copied."""
        channels = self.prepared.bias_channels()
        if not channels:
            return None
        self.adapter.wait()
        bias, made = _on_host(self.operands.bias), list(images)
        for number, array in kept.items():
            own = channels[number]
            assert own is not None
            made[number] = self._there(with_bias(array, own, bias))
        return tuple(made)

    def _there(self, array: Array) -> torch.Tensor:
        return to_tensor(array).to(self.device)


def _on_host(tensor: torch.Tensor | None) -> Array | None:
    return None if tensor is None else to_array(tensor.cpu())


@lru_cache(_LAUNCHES)
def _prepared(problem: ConvProblem, cores: int) -> Prepared:
    return prepare(plans_for(problem, cores))
