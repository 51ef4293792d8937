"""The neuron backend: the same kernels on a device, through an adapter.

Inputs, outputs and gradients stay on the device. Fast forms are taken for layers that were
calibrated: nobody looks at the data here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from trnconv.geometry import ConvShape, TransposedShape, input_gradient_shape
from trnconv.kernels.weight_gradient import weight_gradient
from trnconv.packing import forward_filters
from trnconv.plan import weight_gradient_work
from trnconv.plan.accuracy import ALWAYS_DIRECT, Policy
from trnconv.plan.ends import PLAIN_END, End
from trnconv.plan.weight_gradient import WeightGradientPlan
from trnconv.pytorch.adapters import require_adapter
from trnconv.pytorch.arrays import Array, dtype_name, to_array, to_tensor
from trnconv.pytorch.extras import Extras
from trnconv.pytorch.geometry import Splice, Window
from trnconv.pytorch.prepared import MOST_PIECES, Direct, Fast, prepared
from trnconv.runtime import LaunchOptions, plan_for
from trnconv.runtime.weight_gradient import plan_for as plan_gradient

_TARGET = "trn2"
_PLANS = 4096  # shapes of a process; a large model has some hundreds


def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    extras: Extras,
) -> torch.Tensor:
    """x * w + bias, and the end that `extras` asks for, in one kernel."""
    shape = window.forward(x.shape, w.shape)
    residual = extras.residual
    if residual is not None:
        residual = residual.reshape(shape.batch, shape.c_out, *shape.out_sizes()).contiguous()
    y = _launch(_Call(shape, extras.end, policy=extras.policy), (x,), w, bias, residual)
    return y.reshape(shape.batch, shape.c_out, *shape.out_sizes()[3 - len(window.stride) :])


def spliced(
    pieces: list[torch.Tensor],
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    splice: Splice,
) -> torch.Tensor:
    """A convolution of frames in several tensors, in one kernel; more than three are joined."""
    if len(pieces) > MOST_PIECES:
        pieces = [torch.cat(pieces, dim=2)]
    shape = splice.shape([piece.shape for piece in pieces], w.shape)
    frames = tuple(piece.shape[2] for piece in pieces) if len(pieces) > 1 else ()
    end = splice.end(residual=residual is not None)
    call = _Call(shape, end, frames, splice.reproducible, splice.policy)
    added = None if residual is None else residual.contiguous()
    depth, height, width = shape.out_sizes()
    return _launch(call, tuple(pieces), w, bias, added)[:, :, :depth, :height, :width]


def input_gradient(
    dy: torch.Tensor, w: torch.Tensor, x_shape: list[int], window: Window
) -> torch.Tensor:
    """The transposed convolution of dy that has the shape of x, by the same kernel."""
    shape = input_gradient_shape(window.forward(x_shape, w.shape))
    depth, height, width = shape.out
    dx = _launch(_Call(shape), (dy,), w, None, None)
    return dx[:, :, :depth, :height, :width].reshape(x_shape)


def filter_gradient(
    x: torch.Tensor, dy: torch.Tensor, kernel: list[int], window: Window
) -> torch.Tensor:
    """The gradient of w, summed in float32 and rounded once to the type of x."""
    shape = window.forward(x.shape, [dy.shape[1], x.shape[1] // window.groups, *kernel])
    plan, work, masks = _gradient_work(shape, dtype_name(x))
    folded = plan.shape
    tensors = (
        x.reshape(folded.batch, folded.c_in, *folded.size).contiguous(),
        dy.reshape(folded.batch, folded.c_out, *folded.out_sizes()).contiguous(),
        to_tensor(masks).to(x.device),
        to_tensor(work.place_table()).to(x.device),
    )
    dw, _ = require_adapter().call(weight_gradient, tensors, work.recipe)
    return _filters(dw, plan).reshape(dy.shape[1], -1, *kernel).to(x.dtype)


@dataclass(frozen=True)
class _Call:
    """What is planned once."""

    shape: ConvShape | TransposedShape
    end: End = PLAIN_END
    frames: tuple[int, ...] = ()  # of each piece, if there are several
    reproducible: bool = False
    policy: Policy = ALWAYS_DIRECT


def _launch(
    call: _Call,
    pieces: tuple[torch.Tensor, ...],
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    shape, device = call.shape, pieces[0].device
    ready = _prepared(call, dtype_name(pieces[0]))
    operands = ready.operands(
        w,
        lambda: _filters_of(to_array(w.cpu()), shape),
        None if bias is None else to_array(bias.cpu()),
        device,
    )
    sizes = (shape.batch, shape.c_in, -1, *shape.size[1:])
    x = tuple(piece.reshape(sizes).contiguous() for piece in pieces)
    tensors = (*x, *operands, residual)
    y: torch.Tensor = require_adapter().call(ready.kernel(len(x)), tensors, ready.recipe)
    return y


def _filters_of(w: Array, shape: ConvShape | TransposedShape) -> Array:
    """w [C_out, C_in / groups, KD, KH, KW]; a transposed convolution's comes the other way."""
    if isinstance(shape, ConvShape):
        return w.reshape(shape.c_out, -1, *shape.kernel)
    return forward_filters(w.reshape(shape.c_in, -1, *shape.kernel), shape.groups)


def _filters(dw: torch.Tensor, plan: WeightGradientPlan) -> torch.Tensor:
    """dw of the kernel -> [C_out, C_in / groups, KD, KH, KW]; between groups it is dropped."""
    depth, height, width = plan.shape.kernel
    ins, outs = plan.shape.c_in // plan.groups, plan.shape.c_out // plan.groups
    rows = dw.reshape(-1, plan.pack, outs, depth, width, height, plan.pack, ins)
    own = rows.diagonal(dim1=1, dim2=6)  # [packs, outs, depth, width, height, ins, pack]
    return own.permute(0, 6, 1, 5, 2, 4, 3).reshape(plan.shape.c_out, ins, depth, height, width)


@lru_cache(_PLANS)
def _prepared(call: _Call, dtype: str) -> Direct | Fast:
    launch = LaunchOptions(
        _TARGET, end=call.end, reproducible=call.reproducible, policy=_checked(call.policy)
    )
    return prepared(plan_for(call.shape, dtype, launch, call.frames)[0], call.shape)


def _checked(policy: Policy) -> Policy:
    """Without calibration somebody would have to look at the data, which is on the device."""
    return policy if policy.x_max is not None else ALWAYS_DIRECT


@lru_cache(_PLANS)
def _gradient_work(shape: ConvShape, dtype: str) -> tuple[WeightGradientPlan, Any, Array]:
    plan = plan_gradient(shape, _TARGET, dtype)
    return plan, weight_gradient_work.work_out(plan), weight_gradient_work.mask_image(plan)
