"""The backends by name; each has one entry point, `compute`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trnconv.problem import borders
from trnconv.pytorch.backends import aten, neuron, simulator
from trnconv.pytorch.backends.choice import Backend, asked_for, choose_backend, machine_of
from trnconv.pytorch.backends.conv_call import INPUT_GRADIENT, ConvCall
from trnconv.pytorch.backends.on_device import Results
from trnconv.runtime.launch import LaunchOperands

BACKENDS: dict[Backend, Any] = {
    Backend.nkisim: simulator,
    Backend.torch: aten,
    Backend.neuron: neuron,
}


def compute(call: ConvCall, operands: LaunchOperands, backend: str) -> torch.Tensor:
    """One result, by the backend asked for; see `compute_all`."""
    (result,) = compute_all(call, operands, backend)
    return result


def compute_all(call: ConvCall, operands: LaunchOperands, backend: str) -> tuple[torch.Tensor, ...]:
    """By the backend asked for, decided when an op runs: so it is under torch.compile too.

    Results lie in order, as the ops' fake kernels say; torch's own may follow the input's strides.
    """
    name, machine = machine_of(backend)
    chosen = choose_backend(operands.inputs[0], name).backend
    if machine is None:
        return _in_order(_with_borders(BACKENDS[chosen].compute, call, operands))
    asked_for(chosen, machine.machine, machine.cores)  # refused unless it is simulated
    return _in_order(
        _with_borders(lambda part, given: simulator.compute(part, given, machine), call, operands)
    )


def _with_borders(
    compute_one: Callable[[ConvCall, LaunchOperands], Any], call: ConvCall, operands: LaunchOperands
) -> Results:
    """A call; where padding has values, the input gradient of the padded input is folded."""
    if call.wanted != INPUT_GRADIENT:
        result: Results = compute_one(call, operands)
        return result

    dx: torch.Tensor = borders.input_gradient(
        call.forward_shape(operands), lambda shape: compute_one(call.with_input(shape), operands)
    )
    return dx


def _in_order(done: Results) -> tuple[torch.Tensor, ...]:
    results = done if isinstance(done, tuple) else (done,)
    return tuple(result.contiguous() for result in results)
