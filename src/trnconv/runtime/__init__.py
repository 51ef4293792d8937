"""Running convolutions: the only layer that launches kernels."""

from trnconv.runtime.convolve import (
    Convolved,
    LaunchOptions,
    convolve,
    convolve_pieces,
    convolve_shape,
    convolve_transposed,
    plan_for,
)
from trnconv.runtime.launch import time_plan, trace_plan

__all__ = [
    "Convolved",
    "LaunchOptions",
    "convolve",
    "convolve_pieces",
    "convolve_shape",
    "convolve_transposed",
    "plan_for",
    "time_plan",
    "trace_plan",
]
