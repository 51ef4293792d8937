"""Masks that are causal by frame, found by the operators that a model makes them of.

    where(frame_of_key <= frame_of_query, 0, -inf)
    mask = full(-inf); mask[i, :keys_of(i)] = 0 for every i

The comparison of two index vectors, each along an axis of its own, is recorded with what it says if
their values are known (`index_values.py`); so are the numbers chosen by it, and casts. Rows that
are filled one by one are counted. An attention (`attentions.py`) asks for the frames. Whoever else
looks at a mask has it made.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import torch

from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.attention.deferred_mask import (
    ComparedMask,
    FilledMask,
    MaskKind,
    PendingMask,
    causal_frame,
)
from trnconv.pytorch.lazy.attention.index_values import values_of
from trnconv.pytorch.lazy.base.pending_reads import readers, unseen
from trnconv.pytorch.lazy.frames.video import AxisOrder, FrameRun, LazyVideo
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf
from trnconv.pytorch.lazy.tensors.context import PatchContext, Recorder
from trnconv.pytorch.lazy.tensors.operator_call import Operator
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor
_QUERIES, _KEYS = 0, 1


def finds_attention(context: PatchContext) -> bool:
    """Whether attention may be a kernel of ours: not where bits are promised, nor in bands."""
    own = context.rewrites.fuse_attention and not context.reproducible
    return own and context.spread is None


def _compared(*, least: bool, equal: bool) -> Recorder:
    """A key is seen where its index is at most (`least`) that of the query, `equal` or less."""

    def record(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
        if kwargs or len(args) != 2 or not finds_attention(context):
            return NotImplemented
        if not all(isinstance(arg, Tensor) and arg.dim() == 2 for arg in args):
            return NotImplemented
        left, right = args
        along = {_axis_of(left): left, _axis_of(right): right}
        if set(along) != {_QUERIES, _KEYS}:
            return NotImplemented
        keys_left = along[_KEYS] is left
        frames = _frame_tokens(along, keys_at_most=keys_left == least, equal=equal)
        if frames is None or not runs_kernels(left, context.backend):
            return NotImplemented
        return _recorded(MaskKind.seen, frames, torch.bool, Operator(func, args, kwargs), context)

    return record


def _axis_of(x: Tensor) -> int | None:
    """The axis along which a matrix has values of its own; None if along both, or neither."""
    moving = [axis for axis in (_QUERIES, _KEYS) if x.shape[axis] > 1 and x.stride(axis)]
    return moving[0] if len(moving) == 1 else None


def _frame_tokens(along: dict[Any, Tensor], *, keys_at_most: bool, equal: bool) -> int | None:
    """Tokens of a frame, if every query sees its frame and all before; None if it does not."""
    rows, columns = values_of(along[_QUERIES]), values_of(along[_KEYS])
    if rows is None or columns is None or not keys_at_most:
        return None
    with unseen():
        queries, keys = rows[:, 0].numpy(), columns[0].numpy()
    if (np.diff(keys) < 0).any():
        return None
    seen = np.searchsorted(keys, queries, side="right" if equal else "left")
    return causal_frame(seen, len(keys))


def _chosen(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """where(seen, 0, -inf); torch makes tensors of the numbers."""
    mask = _compared_mask(args[0], MaskKind.seen)
    if mask is None or kwargs or tuple(map(_number, args[1:])) != (0, -inf):
        return NotImplemented
    if any(isinstance(arg, Tensor) and arg.dim() for arg in args[1:]):
        return NotImplemented
    with unseen():
        dtype = torch.result_type(*args[1:])
    return _recorded(
        MaskKind.added, mask.frame_tokens, dtype, Operator(func, args, kwargs), context
    )


def _number(value: Any) -> float | None:
    """A number, or the only one that a tensor shows; None if it is not known."""
    if isinstance(value, (int, float)):
        return value
    if not isinstance(value, Tensor) or isinstance(value, LazyTensor) or not value.numel():
        return None
    if any(step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1):
        return None
    values = value if value.device.type == "cpu" else values_of(value)
    if values is None:
        return None
    with unseen():
        return float(values.flatten()[0])


def _cast(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """In another type of float: both numbers are exact in all."""
    mask = _compared_mask(args[0], MaskKind.added)
    dtype = kwargs.get("dtype")
    others = {key for key, value in kwargs.items() if key != "dtype" and value is not None}
    if mask is None or others or dtype is None or not dtype.is_floating_point:
        return NotImplemented
    return _recorded(
        MaskKind.added, mask.frame_tokens, dtype, Operator(func, args, kwargs), context
    )


def _filled(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """full([tokens, tokens], -inf)."""
    del func
    size, value, *rest = args
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    if rest or value != -inf or len(size) != 2 or size[0] != size[1] or size[0] < 1:
        return NotImplemented
    if dtype is None or not dtype.is_floating_point or device is None:
        return NotImplemented
    if not finds_attention(context):
        return NotImplemented
    mask = FilledMask((torch.Size((1, 1, 1, *size)), dtype, torch.device(device)))
    return _shown(mask, context) if runs_kernels(mask, context.backend) else NotImplemented


def _head_filled(context: PatchContext, func: Any, args: Any, kwargs: Any) -> Any:
    """mask[row, :keys] = 0, while nobody else has a record of the mask."""
    del context, func
    mask = _base(args[0])
    if not isinstance(mask, FilledMask) or kwargs or _number(args[1]) != 0:
        return NotImplemented  # copy_ may be asked not to block: that is for devices
    known_readers = (mask, args[0].view_of.cell)
    if any(reader not in known_readers for reader in readers(mask.operand_storages())):
        return NotImplemented
    meta, tokens = args[0].view_of.meta, mask.shape[-1]
    row, first = divmod(meta.storage_offset(), tokens)
    if meta.dim() != 1 or first or meta.shape[0] > tokens:
        return NotImplemented
    if meta.shape[0] > 1 and meta.stride(0) != 1:
        return NotImplemented
    mask.fill_head(row, meta.shape[0])
    return args[0]


def _recorded(
    kind: MaskKind, frames: int, dtype: torch.dtype, operator: Operator, context: PatchContext
) -> LazyTensor:
    """The result of an operator that was not called: as large as its operands together."""
    like = operator.args[0]
    shapes = [arg.shape for arg in operator.args if isinstance(arg, Tensor)]
    together = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    sizes = torch.Size((1, 1, 1, *together))
    before = _base(like)
    counted = operator.counted()
    if isinstance(before, ComparedMask):
        counted += before.counted
    layout = (sizes, dtype, like.device)
    return _shown(ComparedMask(kind, frames, layout, operator.later(), counted), context)


def _shown(mask: PendingMask, context: PatchContext) -> LazyTensor:
    """A mask as the matrix that a model sees."""
    video = LazyVideo((FrameRun(mask, 0, 1),), mask.dtype, AxisOrder.video)
    with unseen():
        memory = torch.empty(mask.shape, dtype=mask.dtype, device="meta")
        meta = memory.view(mask.shape[-2:])
    return LazyTensor(ViewOf(LazyCell(memory, video, context, owns=True), meta), mask.device)


def _base(x: Any) -> PendingMask | None:
    if not isinstance(x, LazyTensor) or x.view_of.cell.video is None:
        return None
    base = x.view_of.cell.video.runs[0].base
    return base if isinstance(base, PendingMask) and not base.has_run else None


def _compared_mask(x: Any, kind: MaskKind) -> ComparedMask | None:
    mask = mask_of(x, kind)
    return mask if isinstance(mask, ComparedMask) else None


def mask_of(x: Any, kind: MaskKind) -> PendingMask | None:
    """The mask that x shows all of, for every image the same; None if it shows another, or part."""
    base = _base(x)
    if base is None or base.kind is not kind:
        return None
    meta = x.view_of.meta
    queries, keys = base.shape[-2:]
    whole = meta.dim() >= 2 and tuple(meta.shape[-2:]) == (queries, keys)
    as_it_lies = whole and meta.stride()[-2:] == (keys, 1) and meta.storage_offset() == 0
    outer = zip(meta.shape[:-2], meta.stride()[:-2], strict=True)
    same_for_all = all(size == 1 or not step for size, step in outer)
    return base if as_it_lies and same_for_all else None


RECORDED_MASKS: dict[str, Recorder] = {
    "aten::le.Tensor": _compared(least=True, equal=True),
    "aten::lt.Tensor": _compared(least=True, equal=False),
    "aten::ge.Tensor": _compared(least=False, equal=True),
    "aten::gt.Tensor": _compared(least=False, equal=False),
    "aten::where.self": _chosen,
    "aten::full": _filled,
    **{f"aten::fill_.{kind}": _head_filled for kind in ("Scalar", "Tensor")},
    "aten::copy_": _head_filled,
    "aten::_to_copy": _cast,
}
