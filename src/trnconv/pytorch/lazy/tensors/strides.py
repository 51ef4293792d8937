"""The strides that torch would give: a lazy tensor has them, wherever its elements lie.

Frames that a convolution of images made lie as a video does, and cost nothing as frames. To the
model they are images one after the other. An operator that reads elements wherever they lie gets
them so (`Traits.any_order`), and its result is recorded as those images; every other gets them in
order, by a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.base.traits import mapped, tensors_in
from trnconv.pytorch.lazy.frames.video import LazyVideo
from trnconv.pytorch.lazy.tensors.as_images import put_in_order
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf, laid_out_as
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor, meta_of

Tensor = torch.Tensor
# Of each axis: stride, padding, dilation; and groups.
ConvOptions = tuple[Sequence[int], Sequence[int], Sequence[int], int]
_COPYING_PADS = ("aten::replication_pad", "aten::reflection_pad")


def on_meta(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives of tensors that are laid out as these, without data."""
    metas, keywords = mapped(Tensor, meta_of, (args, kwargs))
    if "device" in keywords:
        keywords = {**keywords, "device": torch.device("meta")}
    with unseen():
        meta = func(*metas, **keywords)
        if func.name() == "aten::convolution":  # on meta, it leaves its result in order
            x, weight, _, *options, _, _, groups = args
            memory_format = format_of_result(x, weight, (*options, groups))
            return meta.contiguous(memory_format=memory_format)
        if func.name().startswith(_COPYING_PADS):  # and so do these
            return meta.contiguous(memory_format=suggest_memory_format(metas[0]))
        return meta


def format_of_result(x: Tensor, weight: Tensor, options: ConvOptions) -> torch.memory_format:
    """The order in which torch would leave the result of a convolution: its own answer on a CPU."""
    if x.dim() not in (4, 5) or (x.is_contiguous() and weight.is_contiguous()):
        return torch.contiguous_format
    stride, padding, dilation, groups = options
    transposed, none = False, [0] * (x.dim() - 2)
    with unseen():
        backend = torch._C._select_conv_backend(  # noqa: SLF001 (as torch's compilers ask)
            x, weight, None, stride, padding, dilation, transposed, none, groups, None
        )
        memory_format: torch.memory_format = torch._C._conv_determine_backend_memory_format(  # noqa: SLF001
            x, weight, backend
        )
    return memory_format


def in_order(lazy: LazyTensor, is_a_layer: Callable[[], bool]) -> Tensor:
    """The value, with its strides. A copy that a layer of torch's asks for is not the model's."""
    put_in_order(lazy)
    elements = lazy.elements()
    if not laid_out_as(elements, lazy.view_of.meta):
        lazy.view_of.cell.for_a_layer = is_a_layer()
    return lazy.view_of.put_in_order(elements)


def as_torch_lays(result: Any, func: Any, args: Any, kwargs: Any, context: PatchContext) -> Any:
    """The result of an operator on elements that lie anywhere, with the strides of torch's."""
    if not isinstance(result, Tensor):
        return result
    meta = on_meta(func, args, kwargs)
    if laid_out_as(result, meta):
        return result
    video = LazyVideo.of(result)
    if video is None or video.shape != meta.shape:
        fresh = torch.empty_strided(
            meta.shape, meta.stride(), dtype=result.dtype, device=result.device
        )
        return fresh.copy_(result)
    return LazyTensor(ViewOf(LazyCell(meta, video, context), meta), result.device)


def recorded_as_torch_lays(recorded: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A record with the strides that torch gives, where operands do not lie in order themselves."""
    operands = list(tensors_in((args, kwargs)))
    if not isinstance(recorded, LazyTensor) or all(map(Tensor.is_contiguous, operands)):
        return recorded
    if any(recorded is operand for operand in operands):  # it was written to
        return recorded
    return laid_as(recorded, on_meta(func, args, kwargs))


def laid_as(recorded: LazyTensor, meta: Tensor) -> LazyTensor | Tensor:
    """A record that nobody has seen yet, with the strides of a meta tensor."""
    view_of = recorded.view_of
    if laid_out_as(view_of.meta, meta):
        return recorded
    if view_of.meta is view_of.cell.meta and not view_of.cell.is_viewed:
        recorded.lies_as(meta)
        return recorded
    return view_of.cell.restrided(recorded.value(), meta)
