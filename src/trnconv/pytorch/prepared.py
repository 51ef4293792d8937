"""What the host prepares for a launch on a device: the kernel, its recipe and the packed operands.

Weights are packed once a version. A bias is packed at every call: it is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from trnconv.kernels.fast_of_several import fast_of_one, fast_of_three, fast_of_two
from trnconv.kernels.forward import forward
from trnconv.kernels.forward_of_several import forward_of_three, forward_of_two
from trnconv.packing import pack_bias, pack_places, pack_weights
from trnconv.plan import fast_work, work_out
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.fast_plan import FastPlan
from trnconv.plan.question import Plan, Shape
from trnconv.pytorch.arrays import Array, to_tensor
from trnconv.pytorch.packed import packed_once
from trnconv.runtime.fast_packing import (
    pack_bias_columns,
    pack_fast_places,
    pack_fast_weights,
    pack_scales,
)

MOST_PIECES = 3
Filters = Callable[[], Array]  # [C_out, C_in / groups, KD, KH, KW], on the host


@dataclass(frozen=True)
class Direct:
    """A direct convolution."""

    plan: ConvPlan
    shape: Shape
    work: work_out.Work

    @property
    def recipe(self) -> Any:
        """For the kernel."""
        return self.work.recipe

    def kernel(self, pieces: int) -> Callable[..., Any]:
        """The kernel for an input in so many tensors."""
        return (forward, forward_of_two, forward_of_three)[pieces - 1]

    def operands(
        self, w: torch.Tensor, filters: Filters, bias: Array | None, device: torch.device
    ) -> tuple[torch.Tensor, ...]:
        """Weights, bias and places."""
        weights = packed_once(
            w,
            (self.shape, self.plan, device),
            lambda: to_tensor(pack_weights(filters(), self.plan.problem, self.work)).to(device),
        )
        rest = (pack_bias(bias, self.work), pack_places(self.work))
        return (weights, *(to_tensor(each).to(device) for each in rest))


@dataclass(frozen=True)
class Fast:
    """A fast one: the constants hold a scale of each channel beside its bias."""

    plan: FastPlan
    work: fast_work.FastWork

    @property
    def recipe(self) -> Any:
        """For the kernel."""
        return self.work.recipe

    def kernel(self, pieces: int) -> Callable[..., Any]:
        """The kernel for an input in so many tensors."""
        return (fast_of_one, fast_of_two, fast_of_three)[pieces - 1]

    def operands(
        self, w: torch.Tensor, filters: Filters, bias: Array | None, device: torch.device
    ) -> tuple[torch.Tensor, ...]:
        """Transformed weights, constants and places."""
        weights = packed_once(
            w,
            (self.plan, device, "weights"),
            lambda: to_tensor(pack_fast_weights(filters(), self.plan)).to(device),
        )
        scales = packed_once(
            w,
            (self.plan, device, "scales"),
            lambda: to_tensor(pack_scales(filters(), self.plan)).to(device),
        )
        added = to_tensor(pack_bias_columns(bias, self.plan)).to(device)
        return weights, scales + added, to_tensor(pack_fast_places(self.work)).to(device)


def prepared(plan: Plan, shape: Shape) -> Direct | Fast:
    """Of a plan for one core."""
    if isinstance(plan, FastPlan):
        return Fast(plan, fast_work.work_out(plan))
    return Direct(plan, shape, work_out.work_out(plan, shape))
