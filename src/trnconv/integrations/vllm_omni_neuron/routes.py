"""Who computes a convolution in vllm-omni-neuron, by the rules of its release 0.24.0.0.1.0.

They are facts of its file `autoencoder_kl_wan.py` and of nki-library's `should_use_temporal_unroll`
(2.32), told in our words: one kernel for 3x3x3 and, lifted, for 3x3; one more for few output
channels; the compiler for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.machine import TRN2
from trnconv.geometry import ConvShape

CONV3D, TEMPORAL_UNROLL, COMPILER = "conv3d", "temporal unroll", "compiler"
_LEAST_CHANNELS = 96
_FEW_OUTPUTS = 32
_LEAST_FRAMES = 2
_UNROLL_FRAMES = 4  # column tiles of 32 in an array of 128
_UNROLL_INPUTS = 64  # more than these
_UNROLL_COLUMNS = TRN2.psum_bank_fp32_elems  # more than these: than a PSUM bank holds
_ONES = (1, 1, 1)


@dataclass(frozen=True)
class Route:
    """A kernel of nki-library's, or the compiler, and why not a kernel."""

    kernel: str
    why: str = ""

    @property
    def is_served(self) -> bool:
        """Whether a kernel computes it."""
        return self.kernel != COMPILER


def route_of(shape: ConvShape, *, has_bias: bool = True) -> Route:
    """The route of a call; 2-D ones have one frame and one tap along frames."""
    why = _beyond_their_kernels(shape, has_bias=has_bias)
    if why:
        return Route(COMPILER, why)
    return _lifted(shape) if shape.kernel[0] == 1 else _of_frames(shape)


def _of_frames(shape: ConvShape) -> Route:
    frames, _, columns = shape.out_sizes()
    if shape.pad_before[0] or shape.pad_after[0]:
        return Route(COMPILER, "frames of padding that no cache has replaced")
    if frames < _LEAST_FRAMES:
        return Route(COMPILER, f"{frames} output frame: at least {_LEAST_FRAMES}")
    if shape.c_out > _FEW_OUTPUTS:
        return Route(CONV3D)
    if frames <= _UNROLL_FRAMES and shape.c_in > _UNROLL_INPUTS and columns > _UNROLL_COLUMNS:
        return Route(TEMPORAL_UNROLL)
    return Route(COMPILER, f"{shape.c_out} output channels on {columns} columns: too few")


def _beyond_their_kernels(shape: ConvShape, *, has_bias: bool) -> str:
    taps = "x".join(map(str, shape.kernel))
    if shape.kernel not in ((3, 3, 3), (1, 3, 3)):
        return f"{taps} taps: 3x3x3, or 3x3 lifted"
    if shape.stride != _ONES or shape.dilation != _ONES or shape.groups != 1 or not has_bias:
        return "a stride, a dilation, groups or no bias"
    if (shape.pad_before[1:], shape.pad_after[1:]) != ((1, 1), (1, 1)):
        return "other padding than 1 around a frame"
    wide = min(shape.c_in, shape.c_out) >= _LEAST_CHANNELS
    if shape.kernel[0] == 3 and not wide and shape.c_out > _FEW_OUTPUTS:
        return f"{shape.c_in} -> {shape.c_out} channels: at least {_LEAST_CHANNELS}, or few outputs"
    return ""


def _lifted(shape: ConvShape) -> Route:
    if shape.c_out > _FEW_OUTPUTS and shape.c_in >= _LEAST_CHANNELS:
        return Route(CONV3D)
    return Route(COMPILER, f"{shape.c_in} -> {shape.c_out} channels, lifted from 2-D")
