"""Convolutions of frames that follow each other are one convolution of all of them.

Models cut long inputs to bound their memory, and causal ones convolve a cache with the first frames
of a chunk, and the chunk by itself. Where what one of them reads goes on where the other ends, with
the halo in between, and their results are put one behind the other, they run as one.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from trnconv.geometry import CIRCULAR, ZEROS
from trnconv.problem.launches import launches
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.lazy.convolutions.deferred_conv import DeferredConv, PendingConv, are_same
from trnconv.pytorch.lazy.frames.materialize import stored
from trnconv.pytorch.lazy.frames.video import FrameRun, LazyVideo, spliced
from trnconv.pytorch.lazy.fusion.convolution import counted, run_of, with_fold
from trnconv.pytorch.lazy.norms.proven_range import with_proven_range
from trnconv.pytorch.lazy.tensors.context import PatchContext

Tensor = torch.Tensor


def joined(video: LazyVideo, context: PatchContext) -> LazyVideo:
    """The same frames; results of convolutions that continue each other are of one."""
    if context.spread is not None:
        return video
    runs = list(video.runs[:1])
    for run in video.runs[1:]:
        whole = _whole(runs[-1], run, context)
        if whole is None:
            runs.append(run)
        else:
            runs[-1] = whole
    return replace(video, runs=tuple(runs))


def _whole(before: FrameRun, after: FrameRun, context: PatchContext) -> FrameRun | None:
    first, second = before.base, after.base
    if not (isinstance(first, PendingConv) and isinstance(second, PendingConv)):
        return None
    if first is second or not (before.whole and after.whole):
        return None
    both = first.continued_by(second, lambda early, late: _of_both(early, late, context))
    return None if both is None else FrameRun(both, 0, both.shape[2])


def _of_both(
    first: DeferredConv, second: DeferredConv, context: PatchContext
) -> DeferredConv | None:
    if not _is_one_layer(first, second) or not (_is_bare(first) and _is_bare(second)):
        return None
    spec = _spec_of_both(first.spec, second.spec)
    video = None if spec is None else _input_of_both(first, second)
    if spec is None or video is None:
        return None
    runs = video.runs
    policy = with_proven_range(context.policy_for(first.module), runs, context)
    joint = replace(
        first,
        pieces=tuple(stored(run) for run in runs),
        spec=replace(spec, accuracy=policy.text()),
        counted=(*first.counted, *second.counted, *counted(runs)),
    )
    problem = joint.problem
    if len(runs) > 1 and len(launches(problem)) > 1:
        return None
    frames = first.problem.out_sizes()[0] + second.problem.out_sizes()[0]
    if problem.out_sizes()[0] != frames:
        return None
    first.stats.joined[first.module] += 1
    return with_fold(joint)


def _is_one_layer(first: DeferredConv, second: DeferredConv) -> bool:
    if (first.module, first.backend) != (second.module, second.backend):
        return False
    if first.bias is None or second.bias is None:
        return first.bias is second.bias and are_same(first.w, second.w)
    return are_same(first.w, second.w) and are_same(first.bias, second.bias)


def _is_bare(conv: DeferredConv) -> bool:
    """Whether nothing else went into it."""
    return conv.residual is None and conv.scale_shift is None and conv.later is None


def _spec_of_both(first: ConvSpec, second: ConvSpec) -> ConvSpec | None:
    """Padding of frames is before the first and after the second only."""
    between = first.after[0] or second.before[0] or first.skip[0] or second.skip[0]
    wrapped = CIRCULAR in (first.modes[0], second.modes[0])
    if between or wrapped or first.upsample[0] != 1 or _of_planes(first) != _of_planes(second):
        return None
    modes = {
        spec.modes[0]
        for spec, padded in ((first, first.before[0]), (second, second.after[0]))
        if padded
    }
    if len(modes) > 1:
        return None
    mode = modes.pop() if modes else ZEROS
    return replace(first, after=(second.after[0], *first.after[1:]), modes=(mode, *first.modes[1:]))


def _of_planes(spec: ConvSpec) -> ConvSpec:
    """All but the padding of frames, and what is known of the input's range."""
    return replace(
        spec,
        before=(0, *spec.before[1:]),
        after=(0, *spec.after[1:]),
        modes=(ZEROS, *spec.modes[1:]),
        accuracy="",
    )


def _input_of_both(first: DeferredConv, second: DeferredConv) -> LazyVideo | None:
    """The frames of both without those that both read; None if they do not follow each other.

    They have to lie in one memory: a kernel of many pieces is none the better for it.
    """
    former, latter = _video(first), _video(second)
    if former is None or latter is None:
        return None
    frames = former.sizes[2]
    made = first.problem.out_sizes()[0] * first.spec.stride[0]
    halo = first.spec.before[0] + frames - made
    if not 0 <= halo <= min(frames, latter.sizes[2]):
        return None
    behind, ahead = former.frames(frames - halo, frames), latter.frames(0, halo)
    alone = former.frames(0, frames - halo)
    if behind is None or ahead is None or alone is None:
        return None
    if halo > 0 and behind.runs != ahead.runs:
        return None
    both = spliced([alone, latter])
    pieces = len(first.pieces) + len(second.pieces)
    return both if both is not None and len(both.runs) < pieces else None


def _video(conv: DeferredConv) -> LazyVideo | None:
    return spliced([LazyVideo((run_of(piece),), piece.dtype) for piece in conv.pieces])
