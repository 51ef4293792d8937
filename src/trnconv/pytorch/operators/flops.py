"""Multiply-adds of our operators, for torch's FlopCounterMode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from trnconv.pytorch.operators import convolutions

_PER_MULTIPLY_ADD = 2


def _of_outputs(
    given: Any, w: Sequence[int], *_rest: Any, out_shape: Sequence[int], **_: Any
) -> int:
    """Each output reads the taps and channels of one filter; epilogues are not counted."""
    del given
    return _PER_MULTIPLY_ADD * prod(out_shape) * prod(w[1:])


def _of_input_gradient(dy: Sequence[int], w: Sequence[int], *_rest: Any, **_: Any) -> int:
    """Each gradient goes to the taps and channels of its filter."""
    return _PER_MULTIPLY_ADD * prod(dy) * prod(w[1:])


def _of_weight_gradient(
    x: Any, dy: Sequence[int], *_rest: Any, out_shape: Sequence[int], **_: Any
) -> int:
    """Each tap of each filter adds up all positions."""
    del x
    return _PER_MULTIPLY_ADD * prod(dy) * prod(out_shape[1:])


_FORMULAS: dict[Any, Callable[..., int]] = {
    convolutions.convolution: _of_outputs,
    convolutions.fused_op: _of_outputs,
    convolutions.input_gradient: _of_input_gradient,
    convolutions.weight_gradient: _of_weight_gradient,
}


def register() -> None:
    """Tell torch."""
    for op, formula in _FORMULAS.items():
        name = op._qualname.removeprefix("trnconv::")  # noqa: SLF001 (custom ops have no other)
        register_flop_formula(getattr(torch.ops.trnconv, name))(formula)
