"""Calibration of a model: the largest input of every convolution, from samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from trnconv.errors import UnsupportedError
from trnconv.pytorch.backends.arrays import to_array
from trnconv.pytorch.patching.methods import ATTRIBUTE
from trnconv.runtime.ranges import Ranges

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def calibrate(model: nn.Module, run: Callable[[nn.Module], Any]) -> Ranges:
    """Run `run(model)` on sample data and note the largest |x| of each convolution by its name.

    The model must not be patched: the samples are torch's own.
    """
    for name, module in model.named_modules():
        if ATTRIBUTE in module.__dict__ and isinstance(module, _CONVOLUTIONS):
            raise UnsupportedError(f"{name}: the model is patched. Calibrate it before patch_.")
    sampled = _Sampled()
    hooks = [
        module.register_forward_pre_hook(partial(sampled.note, name))
        for name, module in model.named_modules()
        if isinstance(module, _CONVOLUTIONS)
    ]
    try:
        with torch.no_grad():
            run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return sampled.ranges


class _Sampled:
    """Grows while the model runs."""

    def __init__(self) -> None:
        self.ranges = Ranges()

    def note(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Before a convolution runs."""
        del module
        x = args[0]
        self.ranges = self.ranges.with_sample(name, to_array(x.detach().abs().amax().float().cpu()))
