"""Gradients of any size for algorithms that compute in fp16: scaled by a power of two, and back.

fp16 ends at 65504 and at 6e-8, where gradients of bf16 go on for thirty more powers of ten. Scaled
to a largest value between 1 and 2, they are in its range whatever they were, and what fp16 rounds
is relative to that largest value, as the error bounds of fast algorithms take it.
"""

from __future__ import annotations

import torch

from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.pytorch.backends.conv_call import INPUT_GRADIENT, ConvCall

SCALED_MAX = 8.0  # less than this: 2, but for what ends near the type's own end
_EXPONENT = 0x7F800000  # of a float32
_STEP = 1 << 23  # one power of two
_BIAS = 127
_REACH = {torch.float16: 14}  # powers of two whose inverse is a normal number, too
_FARTHEST = 125


def is_scaled(call: ConvCall, problem: ConvProblem) -> bool:
    """Whether a call is an input gradient that a fast algorithm may compute."""
    return call.wanted == INPUT_GRADIENT and isinstance(problem.shape, ConvShape)


def scaled(dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A gradient times a power of two, and what undoes it; nobody waits for the largest value."""
    bits = dy.abs().amax().float().view(torch.int32) & _EXPONENT
    reach = _REACH.get(dy.dtype, _FARTHEST)
    bits = bits.clamp((_BIAS - reach) * _STEP, (_BIAS + reach) * _STEP)
    scale = (2 * _BIAS * _STEP - bits).view(torch.float32)
    return dy * scale.to(dy.dtype), bits.view(torch.float32).to(dy.dtype)
