"""Operands of a convolution along axes that are cut: how it slides, and what a band reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from trnconv.geometry import ZEROS, with_axis
from trnconv.parallel.receptive_field import ReceptiveField, Sliding
from trnconv.pytorch.lazy.convolutions.operands import ConvOperands, Window3d
from trnconv.pytorch.lazy.frames.video import FrameRun


@dataclass(frozen=True)
class _SizeOnly:
    """In place of a tensor, where only sizes are asked for."""

    shape: torch.Size


def sliding_of(operands: ConvOperands, window: Window3d, cut: int) -> Sliding:
    """The convolution along that axis."""
    before, after = operands.pads[cut]
    return Sliding(
        kernel=window.kernel[cut],
        stride=window.stride[cut],
        dilation=window.dilation[cut],
        before=before,
        after=after,
        upsample=operands.upsample[cut],
        mode=operands.modes[cut],
    )


def sized(
    operands: ConvOperands, axes: Sequence[int], sizes: Sequence[int], images: int = 1
) -> tuple[FrameRun, ...]:
    """Pieces of such sizes along axes, and so many times the images: sizes only."""

    def resized(shape: torch.Size) -> torch.Size:
        result = [images * shape[0], *shape[1:]]
        for axis, size in zip(axes, sizes, strict=True):
            result[2 + axis] = size
        return torch.Size(result)

    return tuple(replace(run, base=_SizeOnly(resized(run.base.shape))) for run in operands.pieces)


def read_as(
    operands: ConvOperands,
    axes: Sequence[int],
    pieces: tuple[FrameRun, ...],
    fields: Sequence[ReceptiveField],
) -> ConvOperands:
    """Other pieces, with padding at true borders only."""
    pads, modes, skip = list(operands.pads), list(operands.modes), operands.skip
    for axis, field in zip(axes, fields, strict=True):
        pads[axis] = (field.before, field.after)
        if field.before <= 0 and field.after <= 0:
            modes[axis] = ZEROS
        skip = with_axis(skip, axis, field.skip)
    return replace(
        operands,
        pieces=pieces,
        pads=(pads[0], pads[1], pads[2]),
        modes=(modes[0], modes[1], modes[2]),
        skip=skip,
    )


def ordered(
    rows: torch.Tensor, axes: Sequence[int], fields: Sequence[ReceptiveField]
) -> torch.Tensor:
    """What was read, with mirrored rows where they are wanted."""
    for axis, field in zip(axes, fields, strict=True):
        if field.order:
            rows = rows.index_select(2 + axis, torch.tensor(field.order, device=rows.device))
    return rows
