"""The nkisim backend: CPU tensors through the NKI kernels.

Weights are packed at every call: that is a hundredth of the time a simulation takes, and whatever
changed a weight, the result is right.
"""

from __future__ import annotations

from dataclasses import replace

from nkisim.machine import find_machine
from trnconv.pytorch.backends.arrays import to_array, to_tensor
from trnconv.pytorch.backends.choice import DEFAULT_SIMULATED, Simulated
from trnconv.pytorch.backends.conv_call import ConvCall
from trnconv.pytorch.backends.gradient_scale import is_scaled, scaled
from trnconv.pytorch.backends.on_device import Results, computed, each
from trnconv.runtime.launch import LaunchOperands
from trnconv.runtime.simulator import SimulatedDevice


def compute(
    call: ConvCall, operands: LaunchOperands, machine: Simulated = DEFAULT_SIMULATED
) -> Results:
    """One convolution, or a gradient of one."""
    x = operands.inputs[0]
    arrays = LaunchOperands(
        tuple(to_array(input_) for input_ in operands.inputs),
        *(
            None if tensor is None else to_array(tensor)
            for tensor in (
                operands.w,
                operands.bias,
                operands.residual,
                operands.factors,
                operands.scales,
            )
        ),
    )
    problem = call.problem(arrays, str(arrays.inputs[0].dtype), find_machine(machine.machine))
    device = SimulatedDevice(machine.cores)
    if not is_scaled(call, problem):
        done = computed(call, problem, arrays, device)
        return each(done, lambda array: to_tensor(array).to(x.dtype))
    dy, undo = scaled(x)
    arrays = replace(arrays, inputs=(to_array(dy),))
    return to_tensor(computed(call, problem, arrays, device)).to(x.dtype) * undo
