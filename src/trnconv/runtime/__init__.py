"""Running convolutions: the only layer that launches kernels."""

from trnconv.runtime.convolve import Convolved, convolve

__all__ = ["Convolved", "convolve"]
