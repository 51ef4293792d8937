"""Tensors whose data movement is recorded and not done, so that a convolution can take it over.

A model pads, concatenates a cache, repeats frames, upsamples and permutes, and then convolves. Run
on lazy tensors, its own code does none of that: the convolution reads every frame where it lies.
"""

import trnconv.pytorch.lazy.mode  # noqa: F401 (says what operators on a lazy tensor do)
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

__all__ = ["LazyTensor"]
