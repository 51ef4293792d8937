"""Activations that the Scalar engine has no function for, of several instructions on two engines.

Leaky ReLU is max(z, s z) for a slope s in (0, 1], and ELU is min(exp(z) - 1, max(z, 0)), because
exp(z) - 1 is never below z. Of the two operands, one is rounded to the output's type before they
are compared. Rounding keeps the order of numbers: the result is that of float32, rounded once.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.direct.core import Core


def leaky_relu(
    core: Core,
    written: nl.NkiTensor,
    done: nl.NkiTensor,
    bias: nl.NkiTensor,
    scaled: nl.NkiTensor,
) -> None:
    """written = max(done + bias, slope * done + scaled); `scaled` is the bias times the slope."""
    slope = core.recipe.slope
    if core.recipe.scalar_adds:
        nisa.activation(dst=written, op=nl.copy, data=done, scale=slope, bias=scaled)
    else:
        nisa.tensor_scalar(
            dst=written, data=done, op0=nl.multiply, operand0=slope, op1=nl.add, operand1=scaled
        )
    nisa.scalar_tensor_tensor(
        dst=written, data=done, op0=nl.add, operand0=bias, op1=nl.maximum, operand1=written
    )


def leaky_relu_of_sum(core: Core, written: nl.NkiTensor, z: nl.NkiTensor) -> None:
    """written = max(z, slope * z), with z in PSUM, or in `written` itself."""
    slope = core.recipe.slope
    if core.recipe.in_place:
        nisa.activation(dst=written, op=nl.copy, data=z, scale=slope)
        nisa.tensor_tensor(dst=written, data1=z, data2=written, op=nl.maximum)
    else:
        nisa.scalar_tensor_tensor(
            dst=written, data=z, op0=nl.multiply, operand0=slope, op1=nl.maximum, operand1=z
        )


def elu(core: Core, written: nl.NkiTensor, done: nl.NkiTensor, bias: nl.NkiTensor | None) -> None:
    """written = min(exp(z) - 1, max(z, 0)) for z = done [+ bias]; exp(z) takes the place of `done`.

    Vector and Scalar engine take turns at max(z, 0), which every table of functions has.
    """
    if not core.next_on_vector():
        nisa.activation(dst=written, op=nl.relu, data=done, bias=bias)
    elif bias == None:
        nisa.tensor_scalar(dst=written, data=done, op0=nl.maximum, operand0=0.0)
    else:
        nisa.tensor_scalar(
            dst=written, data=done, op0=nl.add, operand0=bias, op1=nl.maximum, operand1=0.0
        )
    nisa.activation(dst=done, op=nl.exp, data=done, bias=bias)
    nisa.scalar_tensor_tensor(
        dst=written, data=done, op0=nl.add, operand0=-1.0, op1=nl.minimum, operand1=written
    )
