"""Images that a convolution makes of frames, wanted in order: it is given images instead.

A convolution of images that lie as the frames of one video leaves its result so too, which costs
nothing as long as they are frames to the model. A norm of images, or an image to be added to, wants
them one after the other. Where its input is smaller than its result, rather the input is put in
order.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from trnconv.pytorch.lazy.base import pending_reads
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.convolutions.deferred_conv import DeferredConv
from trnconv.pytorch.lazy.frames.video import AxisOrder, FrameRun, LazyVideo
from trnconv.pytorch.lazy.tensors.cell import LazyCell
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor

Tensor = torch.Tensor


def put_in_order(x: Tensor) -> None:
    """The convolution of x, if it has not run, is given images in order, where that is less."""
    if not isinstance(x, LazyTensor):
        return
    cell, video = x.view_of.cell, x.view_of.cell.video
    if video is None or not cell.is_a_result or cell.is_viewed:
        return
    run = video.runs[0]
    if not (video.untouched and video.layout is AxisOrder.images and isinstance(run.base, Pending)):
        return
    others = [reader for reader in pending_reads.readers(run.base.reads()) if reader is not cell]
    if any(isinstance(other, LazyCell) and other.is_of(run.base) for other in others):
        return  # it would run twice
    pending = run.base.rewritten(_of_images)
    if pending is not None:
        images = LazyVideo(
            (FrameRun(pending, 0, 1),), video.dtype, AxisOrder.images, from_images=True
        )
        cell.made_of(images)


def _of_images(conv: DeferredConv) -> DeferredConv | None:
    """The same convolution of images; None if it cannot be, or gains nothing."""
    spec, shape = conv.spec, conv.problem
    if len(conv.pieces) > 1 or conv.later is not None or spec.reproducible:
        return None
    if shape.batch > 1 or conv.pieces[0].shape[2] == 1 or conv.w.shape[2] > 1:
        return None
    axes = (spec.stride[0], spec.before[0], spec.after[0], spec.skip[0])
    if axes != (1, 0, 0, 0) or spec.upsample != (1, 1, 1):
        return None
    read = conv.pieces[0].numel() + (0 if conv.residual is None else conv.residual.numel())
    if read >= shape.c_out * torch.Size(shape.out_sizes()).numel():
        return None
    residual = None if conv.residual is None else _as_images(conv.residual)
    return replace(conv, pieces=(_as_images(conv.pieces[0]),), residual=residual)


def _as_images(frames: Tensor) -> Tensor:
    with unseen():
        return frames[0].transpose(0, 1).unsqueeze(2)
