"""A call of torch on a device of the runtime, simulated or real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem, flipped_filters
from trnconv.pytorch.backends.conv_call import INPUT_GRADIENT, ConvCall
from trnconv.runtime import compute
from trnconv.runtime.compute import Device
from trnconv.runtime.convolve import forward_filters
from trnconv.runtime.launch import LaunchOperands

Results = torch.Tensor | tuple[torch.Tensor, ...]  # several: y, if it is stored, and its norm


def each(done: Any, change: Callable[[Any], torch.Tensor]) -> Results:
    """A result as a caller gets it, or each of several."""
    return tuple(map(change, done)) if isinstance(done, tuple) else change(done)


def computed(call: ConvCall, problem: ConvProblem, operands: LaunchOperands, device: Device) -> Any:
    """The result of a call, as an array or tensor of the device."""
    if call.wanted == WEIGHT_GRADIENT:
        return compute.weight_gradient(problem, operands, device)[0]
    if call.wanted == INPUT_GRADIENT:
        w = forward_filters(operands.w, call.spec.groups)
        plain = isinstance(problem.shape, ConvShape)
        operands = replace(operands, w=flipped_filters(w) if plain else w)
    return compute.convolution(problem, operands, device)
