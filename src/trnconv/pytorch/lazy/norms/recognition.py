"""Norms, found by the operators that a model makes them of.

    x / max(|x|, eps) * factor * gamma + beta         torch.nn.functional.normalize, then a scale
    x * rsqrt(mean(x^2) + eps) * gamma + beta         the same with a root and a division
    group_norm(x)                                     one function
    group_norm(x) * scale + shift                     with videos of a lower resolution, upsampled

Every operator on the way is recorded, with what it means for the norm; if what follows is no part
of one, torch does as recorded. A cast in between is part of it: a kernel rounds once, at the end.
Nothing is recorded on the torch backend and in reproducible mode; group norms are not in bands of
several ranks.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import torch

from trnconv.problem.epilogue import IDENTITY
from trnconv.pytorch.lazy.base.pending_reads import alias_of, unseen
from trnconv.pytorch.lazy.frames.video import AxisOrder
from trnconv.pytorch.lazy.norms.deferred_norm import DeferredNorm, LowVideo, NormPart
from trnconv.pytorch.lazy.norms.norm_parts import (
    CHANNELS,
    LAST,
    TO_CHANNELS_LAST,
    TYPES,
    RecognizedPart,
    frames_along,
    is_per_channel,
    is_source,
    lies_in_order,
    part_of,
    rank_of,
    recorded,
    source_in_memory,
    source_of,
)
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf
from trnconv.pytorch.lazy.tensors.context import PatchContext, Recorder
from trnconv.pytorch.lazy.tensors.operator_call import Operator
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor
from trnconv.pytorch.operators.norm_call import FRAME_GROUPS, GROUPS, LENGTH, MEAN_SQUARE, NormCall

Tensor = torch.Tensor
# torch divides by max(|x|, eps), a kernel by the root of |x|^2 + eps^2: not the same where |x| is
# not much longer than eps. Activations are, if eps is torch's default; a larger one is torch's.
_LARGEST_LENGTH_EPS = 1e-12


def _lengths(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """linalg_vector_norm(x, 2, [channels], keepdim=True)."""
    if kwargs or len(args) != 4:
        return NotImplemented
    x, order, dims, keep = args
    if order != 2 or not keep or dims is None or len(dims) != 1:
        return NotImplemented
    axis = dims[0] % x.dim()
    source = source_of(x, axis, context) if lies_in_order(x, axis) else None
    if source is None:
        return NotImplemented
    norm = DeferredNorm(source, axis, NormCall(LENGTH), context)
    return recorded(NormPart.lengths, norm, x.dtype, Operator(func, args, kwargs))


def _squares(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """x^2, of a video as the model or as its channels stand last."""
    x, exponent = args
    if kwargs or not isinstance(x, Tensor) or not _is_number(exponent) or exponent != 2:
        return NotImplemented
    for axis in (CHANNELS, LAST):
        source = source_of(x, axis, context) if lies_in_order(x, axis) else None
        if source is not None:
            norm = DeferredNorm(source, axis, NormCall(MEAN_SQUARE), context)
            return recorded(NormPart.squares, norm, x.dtype, Operator(func, args, kwargs))
    return NotImplemented


def _means(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """mean(x^2, [channels], keepdim=True)."""
    del context
    squares = part_of(args[0], NormPart.squares)
    if squares is None or kwargs or len(args) != 3 or not args[2]:
        return NotImplemented
    dims = args[1]
    if dims is None or [dim % args[0].dim() for dim in dims] != [squares.norm.axis]:
        return NotImplemented
    return recorded(NormPart.means, squares.norm, squares.dtype, Operator(func, args, kwargs))


def _at_least(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """clamp_min(lengths, eps)."""
    del context
    lengths = part_of(args[0], NormPart.lengths)
    if lengths is None or kwargs or not _is_number(args[1]):
        return NotImplemented
    if lengths.norm.call.eps != 0 or not 0 < args[1] <= _LARGEST_LENGTH_EPS:
        return NotImplemented
    norm = _with_call(lengths.norm, eps=float(args[1]))
    return recorded(NormPart.lengths, norm, lengths.dtype, Operator(func, args, kwargs))


def _root(to: NormPart) -> Recorder:
    """sqrt or rsqrt of the mean of squares."""

    def record(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        del context
        means = part_of(args[0], NormPart.means)
        if means is None or means.norm.call.eps <= 0:
            return NotImplemented
        return recorded(to, means.norm, means.dtype, Operator(func, args, kwargs))

    return record


def _quotient(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """x / lengths, or x / root of the mean."""
    del context
    x, below = args
    part = None if kwargs else part_of(below, NormPart.lengths, NormPart.roots)
    if part is None or part.norm.call.eps <= 0:
        return NotImplemented
    return _whole_of(x, part, Operator(func, args, kwargs))


def _product(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """x * 1 / root of the mean, or a norm times a number, or a number for each channel."""
    del context
    if kwargs:
        return NotImplemented
    operator = Operator(func, args, kwargs)
    for x, other in (args, args[::-1]):
        part = part_of(other, NormPart.inverses)
        if part is not None:
            return _whole_of(x, part, operator)
        whole = part_of(x, NormPart.whole)
        if whole is not None:
            return _scaled(whole, other, operator)
    return NotImplemented


def _whole_of(x: Any, part: RecognizedPart, operator: Operator) -> Any:
    norm = part.norm
    if not is_source(x, norm):
        return NotImplemented
    dtype = torch.promote_types(x.dtype, part.dtype)
    return recorded(NormPart.whole, norm, dtype, operator)


def _scaled(whole: RecognizedPart, other: Any, operator: Operator) -> Any:
    norm = whole.norm
    if norm.call.activation != IDENTITY:
        return NotImplemented
    if norm.by_groups:
        low = None if norm.scale is not None else _low(other, norm)
        if low is None:
            return NotImplemented
        return recorded(NormPart.scaled, replace(norm, scale=low), whole.dtype, operator)
    number = _is_number(other)
    if norm.beta is not None or not (number or _is_gamma(other, norm)):
        return NotImplemented
    if number:
        scaled = _with_call(norm, factor=norm.call.factor * float(other))
        return recorded(NormPart.whole, scaled, whole.dtype, operator)
    dtype = torch.promote_types(whole.dtype, other.dtype)
    return recorded(NormPart.whole, replace(norm, gamma=alias_of(other)), dtype, operator)


def _is_gamma(value: Any, norm: DeferredNorm) -> bool:
    return norm.gamma is None and is_per_channel(value, norm, rank_of(norm))


def _low(x: Any, norm: DeferredNorm) -> LowVideo | None:
    """A video of a lower resolution for one that has group norms; None if it is none."""
    video = frames_along(x, CHANNELS) if isinstance(x, LazyTensor) else None
    source = norm.source
    if video is None or video.sizes != source.sizes or video.dtype != source.dtype:
        return None
    plain = source.layout is AxisOrder.video and source.sizes[0] == 1 and norm.call.kind == GROUPS
    return LowVideo.of(video) if plain else None


def _sum(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """The mean of squares + eps; a norm + a number for each channel, or + 0."""
    del context
    if kwargs or len(args) != 2:
        return NotImplemented
    x, other = args
    operator = Operator(func, args, kwargs)
    for term, added in (args, args[::-1]):
        scaled = part_of(term, NormPart.scaled)
        if scaled is not None:
            return _modulated(scaled, added, operator)
    means, whole = part_of(x, NormPart.means), part_of(x, NormPart.whole)
    if whole is not None:
        return _shifted(whole, other, operator)
    if means is None or not _is_number(other) or means.norm.call.eps != 0:
        return NotImplemented
    return recorded(NormPart.means, _with_call(means.norm, eps=float(other)), means.dtype, operator)


def _modulated(scaled: RecognizedPart, added: Any, operator: Operator) -> Any:
    """A group norm times a video, plus another that is upsampled alike."""
    norm = scaled.norm
    low = _low(added, norm)
    if norm.scale is None or low is None:
        return NotImplemented
    if (low.factor, low.frame_map) != (norm.scale.factor, norm.scale.frame_map):
        return NotImplemented
    return recorded(NormPart.whole, replace(norm, shift=low), scaled.dtype, operator)


def _shifted(whole: RecognizedPart, other: Any, operator: Operator) -> Any:
    norm = whole.norm
    if norm.call.activation != IDENTITY or norm.by_groups:
        return NotImplemented
    if _is_number(other) and other == 0:
        return recorded(NormPart.whole, norm, whole.dtype, operator)
    if norm.beta is not None or not is_per_channel(other, norm, rank_of(norm)):
        return NotImplemented
    dtype = torch.promote_types(whole.dtype, other.dtype)
    return recorded(NormPart.whole, replace(norm, beta=alias_of(other)), dtype, operator)


def _cast(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """A norm in another type; or a video whose channels stand last, in a wider one."""
    x, dtype = args[0], kwargs.get("dtype")
    if set(kwargs) != {"dtype"} or dtype is None or not isinstance(x, Tensor):
        return NotImplemented
    whole = part_of(x, NormPart.whole)
    if whole is not None and dtype in TYPES:
        return recorded(NormPart.whole, whole.norm, dtype, Operator(func, args, kwargs))
    if x.dim() != 5 or not lies_in_order(x, LAST) or source_of(x, LAST, context) is None:
        return NotImplemented
    video = frames_along(x, LAST)
    cast = None if video is None else video.in_dtype(dtype)
    if cast is None:
        return NotImplemented
    with unseen():
        memory = torch.empty(cast.shape, dtype=dtype, device="meta")
        meta = memory.permute(TO_CHANNELS_LAST)
    return LazyTensor(ViewOf(LazyCell(memory, cast, context), meta), x.device)


def group_normed(
    context: PatchContext,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """torch.nn.functional.group_norm; its ATen operator has statistics for results as well.

    In bands, statistics are of all ranks together: `trnconv.parallel` has them.
    """
    source = None if context.spread is not None else source_in_memory(x, CHANNELS, context)
    weights = [tensor for tensor in (weight, bias) if tensor is not None]
    if source is None or source.sizes[1] % groups or (weight is None) != (bias is None):
        return NotImplemented
    if x[0, 0].numel() * x.shape[1] == groups:
        return NotImplemented  # torch refuses one value a group
    if x.dtype != source.dtype or any(isinstance(tensor, LazyTensor) for tensor in weights):
        return NotImplemented
    kind = FRAME_GROUPS if source.layout is AxisOrder.images and source.sizes[2] > 1 else GROUPS
    gamma = None if weight is None else alias_of(weight)
    beta = None if bias is None else alias_of(bias)
    norm = DeferredNorm(source, CHANNELS, NormCall(kind, eps, groups), context, gamma, beta)
    operator = Operator(torch.group_norm, (x, groups, weight, bias, eps), {})
    return recorded(NormPart.whole, norm, x.dtype, operator)


def _with_call(norm: DeferredNorm, **changes: Any) -> DeferredNorm:
    return replace(norm, call=replace(norm.call, **changes))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


RECORDED_NORMS: dict[str, Recorder] = {
    "aten::linalg_vector_norm": _lengths,
    "aten::pow.Tensor_Scalar": _squares,
    "aten::mean.dim": _means,
    "aten::clamp_min": _at_least,
    "aten::sqrt": _root(NormPart.roots),
    "aten::rsqrt": _root(NormPart.inverses),
    "aten::div.Tensor": _quotient,
    **{f"aten::mul.{kind}": _product for kind in ("Tensor", "Scalar")},
    **{f"aten::add.{kind}": _sum for kind in ("Tensor", "Scalar")},
    "aten::_to_copy": _cast,
}
