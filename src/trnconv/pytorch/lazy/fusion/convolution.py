"""A convolution of a lazy tensor: it takes over what was recorded of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from trnconv.errors import UnsupportedError
from trnconv.geometry import ConvShape
from trnconv.problem.epilogue import is_composed
from trnconv.problem.launches import launches
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.backends.kernel_place import runs_kernels
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import Counted
from trnconv.pytorch.lazy.base.pending_reads import alias_of, unseen
from trnconv.pytorch.lazy.convolutions.deferred_conv import ByTorch, DeferredConv, PendingConv
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.lazy.convolutions.modelled_time import (
    folding_wins,
    is_planned,
    upsampled_before,
)
from trnconv.pytorch.lazy.convolutions.operands import (
    ConvOperands,
    Window3d,
    commuting,
    frame_pattern,
    operands_of,
)
from trnconv.pytorch.lazy.frames.materialize import done, stored
from trnconv.pytorch.lazy.frames.stored_frames import StoredFrames
from trnconv.pytorch.lazy.frames.video import AxisOrder, FrameRun, LazyVideo
from trnconv.pytorch.lazy.fusion.channel_cells import cells_of
from trnconv.pytorch.lazy.fusion.epilogue_choice import adds_lines, takes_composed
from trnconv.pytorch.lazy.norms.prologues import scaled_input
from trnconv.pytorch.lazy.norms.proven_range import with_proven_range
from trnconv.pytorch.lazy.tensors.as_images import put_in_order
from trnconv.pytorch.lazy.tensors.cell import LazyCell, ViewOf, as_memory, require_movable
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.strides import format_of_result
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor
from trnconv.pytorch.lazy.tensors.videos import as_video, lines_of, video_of
from trnconv.pytorch.operators.norms import place_of

Tensor = torch.Tensor
_ORDERS = {1: AxisOrder.lines, 2: AxisOrder.images, 3: AxisOrder.video}  # by rank


def unsupported_type(weights: torch.dtype) -> str:
    """Why kernels do not take weights of this type; empty if they do."""
    taken = (torch.bfloat16, torch.float16, torch.float32)
    return "" if weights in taken else f"its weights are {weights}; kernels take bf16, fp16, fp32."


def convolved(x: Tensor, filters: Filters, context: PatchContext) -> LazyTensor | None:
    """The result, not yet run; None if x is no video, and no lines, that a convolution takes."""
    video = lines_of(x) if filters.rank == 1 and context.spread is None else video_of(x)
    if not _takes(video, filters):
        if context.spread is not None:
            context.spread.require_local(filters)
        return None
    assert video is not None
    window = filters.window()
    with passing():
        kept, pattern, moved = _reduced(video, window, context)
        pending = PendingConv(_deferred(kept, filters, window, context))
    runs = pattern or (FrameRun(pending, 0, pending.shape[2]),)
    scaled = tuple(replace(run, base=pending, scale=moved) for run in runs)
    result = LazyVideo(scaled, video.dtype, video.layout, from_images=video.from_images)
    return _in_format(
        _result(result, context), format_of_result(x, filters.weight, filters.options)
    )


def _result(video: LazyVideo, context: PatchContext) -> LazyTensor:
    memory = as_memory(video)
    return LazyTensor(ViewOf(LazyCell(memory, video, context, owns=True), memory), video.device)


def _in_format(result: LazyTensor, memory_format: torch.memory_format) -> LazyTensor:
    if memory_format is not torch.contiguous_format:
        with unseen():
            result.lies_as(result.view_of.meta.contiguous(memory_format=memory_format))
    return result


def _takes(video: LazyVideo | None, filters: Filters) -> bool:
    wanted = _ORDERS[filters.rank]
    if video is None or video.layout is not wanted or not all(video.sizes):
        return False
    return video.dtype == video.runs[0].base.dtype and filters.fit(video)


def _reduced(
    video: LazyVideo, window: Window3d, context: PatchContext
) -> tuple[LazyVideo, tuple[FrameRun, ...], tuple[int, int]]:
    """The video without repeated frames and upsampled pixels that the window cannot tell apart."""
    pattern: tuple[FrameRun, ...] = ()
    moved = (1, 1)
    if not context.rewrites.before_upsample:
        return video, pattern, moved
    if (distinct := frame_pattern(video, window)) is not None:
        video, pattern = distinct
    if (commuted := commuting(video, window)) is not None:
        video, factors = commuted
        moved = (factors[1], factors[2])
    return video, pattern, moved


def _deferred(
    video: LazyVideo, filters: Filters, window: Window3d, context: PatchContext
) -> DeferredConv:
    """The convolution with all it can take over; the rest is done first."""
    operands = operands_of(video, window)
    if operands is not None and not _may_take(operands, filters, window, context):
        operands = None
    if operands is None:
        operands = _after_movement(video, window, context)
    if context.spread is not None:
        operands = context.spread.extended(operands, window, filters, context)
    module = filters.module or context.stats.module
    policy = with_proven_range(context.policy_for(module), operands.pieces, context)
    spec = replace(spec_of(operands, window, context), accuracy=policy.text())
    weight = (*filters.weight.shape[:2], *window.kernel)
    scaled = None
    if operands.later is None:  # what is on its way from other ranks is normed already
        scaled = scaled_input(
            operands.pieces, problem_of(operands, window, weight, context), policy
        )
    if scaled is None:
        pieces = tuple(stored(run) for run in operands.pieces)
    else:
        pieces, spec = (scaled.x,), replace(spec, prologue_activation=scaled.activation)
    weights = [tensor for tensor in (filters.weight, filters.bias) if tensor is not None]
    w = alias_of(filters.weight)
    with unseen():
        w = w.reshape(*w.shape[:2], *window.kernel)
    bias = None if filters.bias is None else alias_of(filters.bias)
    conv = DeferredConv(
        pieces=pieces,
        w=w,
        bias=bias,
        spec=spec,
        module=module,
        stats=context.stats,
        counted=(*counted(operands.pieces), *(Counted.of(weight) for weight in weights)),
        backend=context.backend,
        scale_shift=None if scaled is None else scaled.scale_shift,
        later=operands.later,
    )
    return with_fold(conv)


def with_fold(conv: DeferredConv) -> DeferredConv:
    """The same; if it upsamples, with the convolution that it takes the place of."""
    if conv.spec.upsample == (1, 1, 1):
        return conv
    return replace(conv, instead_of=upsampled_before(conv.problem))


def _after_movement(video: LazyVideo, window: Window3d, context: PatchContext) -> ConvOperands:
    """The operands of a video made real, but for padding between bands of several ranks."""
    axes = () if context.spread is None else context.spread.axes
    if not axes:
        whole = run_of(done(replace(video, layout=AxisOrder.video), context.stats))
        return ConvOperands((whole,), window.padding, (window.mode,) * 3)
    inside = [(0, 0) if at in axes else pair for at, pair in enumerate(video.pads)]
    across = [pair if at in axes else (0, 0) for at, pair in enumerate(video.pads)]
    bare = replace(video, layout=AxisOrder.video, pads=(inside[0], inside[1], inside[2]))
    band = run_of(done(bare, context.stats))
    pads = (across[0], across[1], across[2])
    recorded = LazyVideo((band,), video.dtype, pads=pads, modes=video.modes)
    operands = operands_of(recorded, window)
    if operands is None:
        raise UnsupportedError(
            f"{context.stats.module or 'a convolution'}: {video.modes[axes[0]]} padding and then"
            f" {window.mode} padding, across bands of a video. Cut the other axis."
        )
    return operands


def frames_of(run: FrameRun) -> StoredFrames:
    """What a run is some frames of, in memory; a convolution still to run, runs."""
    base = run.base
    stored_base = run_of(base.result()).base if isinstance(base, Pending) else base
    assert isinstance(stored_base, StoredFrames)
    return stored_base


def run_of(frames: Tensor) -> FrameRun:
    """All of a tensor [N, C, T, H, W]."""
    video = LazyVideo.of(frames)
    assert video is not None
    return video.runs[0]


def counted(runs: Sequence[FrameRun]) -> tuple[Counted, ...]:
    """What must not have changed when they are read later."""
    return tuple(run.base.counted for run in runs if isinstance(run.base, StoredFrames))


def spec_of(operands: ConvOperands, window: Window3d, context: PatchContext) -> ConvSpec:
    """What a kernel does to the operands, without its policy and its epilogue."""
    pads = operands.pads
    return ConvSpec(
        stride=window.stride,
        before=(pads[0][0], pads[1][0], pads[2][0]),
        after=(pads[0][1], pads[1][1], pads[2][1]),
        dilation=window.dilation,
        groups=window.groups,
        modes=operands.modes,
        upsample=operands.upsample,
        skip=operands.skip,
        reproducible=context.reproducible,
    )


def _may_take(
    operands: ConvOperands, filters: Filters, window: Window3d, context: PatchContext
) -> bool:
    """Whether the convolution is allowed, able and better off to do it. All ranks agree."""
    spread = context.spread
    weight = (*filters.weight.shape[:2], *window.kernel)
    each = [operands] if spread is None else spread.every(operands, window)
    problems = [problem_of(rank_operands, window, weight, context) for rank_operands in each]
    if len(operands.pieces) > 1 and any(len(launches(problem)) > 1 for problem in problems):
        return False
    if operands.upsample == (1, 1, 1):
        return True
    if not context.rewrites.fold_upsample:
        return False
    whole = operands if spread is None else spread.whole(operands, window)
    return folding_wins(problem_of(whole, window, weight, context))


def problem_of(
    operands: ConvOperands, window: Window3d, weight: tuple[int, ...], context: PatchContext
) -> ConvShape:
    """The problem in integers; of the operands, sizes are enough."""
    sizes = [
        (*run.base.shape[:2], run.stop - run.start, *run.base.shape[3:]) for run in operands.pieces
    ]
    return spec_of(operands, window, context).shape(sizes, weight)


def plus(left: Any, right: Any) -> LazyTensor | None:
    """A sum, as the epilogue of the larger convolution among the two."""
    terms = [(term, other) for term, other in ((left, right), (right, left)) if _open(term)]
    terms.sort(key=lambda pair: -_macs(pair[0]))
    for term, other in terms:
        seen = term.video()
        fused = _plus_cells(seen, other, term.view_of.cell.context.backend)
        if fused is not None:
            return _instead(term, fused)
        added = _base_like(other, seen, term.view_of.cell.context)
        fused = None if added is None else seen.runs[0].base.plus(*added)
        lines = seen.layout is AxisOrder.lines
        if fused is not None and (not lines or adds_lines(fused, term.view_of.cell.context)):
            return _instead(term, fused)
    return None


def _plus_cells(seen: LazyVideo, other: Any, backend: str) -> Pending | None:
    """A convolution with a residual of lower resolution, if a kernel reads that; else None."""
    cells = cells_of(other.video()) if isinstance(other, LazyTensor) else None
    base = seen.runs[0].base
    if cells is None or not isinstance(base, PendingConv) or seen.layout is not AxisOrder.video:
        return None
    source, coarse = cells
    fused = base.plus_cells(source.tensor, coarse, source.counted)
    if fused is None or not runs_kernels(fused, backend):
        return None
    machine, cores = place_of(fused, backend)
    problem = fused.problem(machine)
    return fused if problem is not None and is_planned(problem, cores) else None


def activated(x: Any, activation: str, by_torch: ByTorch) -> LazyTensor | None:
    """An activation, as the epilogue of a convolution.

    Blocks of lines add what they activate: where a convolution's own result may still be read when
    the activated one is needed, it runs without, once, and the activation is `by_torch`.
    """
    if not _open(x):
        return None
    video = x.video()
    assert video is not None
    cell, base = x.view_of.cell, video.runs[0].base
    lines, sizes = video.layout is AxisOrder.lines, video.sizes
    if is_composed(activation) and not takes_composed(base, activation, cell.context, lines=lines):
        return None
    fused = base.activated(activation)
    if lines and isinstance(fused, PendingConv):
        fused.unless_read(cell, lambda y: as_video(by_torch(y), AxisOrder.lines, sizes))
    return None if fused is None else _instead(x, fused)


def _open(value: Any) -> bool:
    """Just the result of a convolution that has not run."""
    if not isinstance(value, LazyTensor):
        return False
    video = value.video()
    if video is None or not video.untouched or not isinstance(video.runs[0].base, Pending):
        return False
    return not video.runs[0].base.has_run


def _macs(value: LazyTensor) -> int:
    video = value.video()
    assert video is not None
    macs: int = video.runs[0].base.macs
    return macs


def _base_like(
    value: Any, like: LazyVideo, context: PatchContext
) -> tuple[Tensor, tuple[Counted, ...]] | None:
    """A tensor of the same shape, as [N, C, T, H, W] in the same layout; None if it is not."""
    if not isinstance(value, Tensor) or value.shape != like.shape:
        return None
    if value.dtype != like.dtype:
        return None
    if like.from_images and context.spread is None:
        put_in_order(value)
    video = video_of(value)
    with passing():
        if video is not None and (video.layout, video.sizes) == (like.layout, like.sizes):
            require_movable(video, context)
            made = done(replace(video, layout=AxisOrder.video), context.stats)
            return made, counted(video.runs)
        seen = value.elements() if isinstance(value, LazyTensor) else value
    counts = () if isinstance(value, LazyTensor) else (Counted.of(value),)
    return as_video(seen, like.layout, like.sizes), counts


def _instead(x: LazyTensor, pending: Pending) -> LazyTensor:
    video = x.video()
    assert video is not None
    runs = (replace(video.runs[0], base=pending),)
    return _result(replace(video, runs=runs), x.view_of.cell.context)
