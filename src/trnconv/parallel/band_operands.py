"""Operands of a convolution along the axis that is cut: how it slides, and what a band reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from trnconv.geometry import ZEROS, with_axis
from trnconv.parallel.rows_read import Reading, Sliding
from trnconv.pytorch.lazy.operands import ConvOperands, Window3d
from trnconv.pytorch.lazy.video import FrameRun


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


def sized(operands: ConvOperands, cut: int, rows: int, images: int = 1) -> tuple[FrameRun, ...]:
    """Pieces with so many rows, and so many times the images: sizes only."""
    return tuple(
        replace(run, base=_SizeOnly(_with_rows(run.base.shape, 2 + cut, rows, images)))
        for run in operands.pieces
    )


def _with_rows(shape: torch.Size, dim: int, rows: int, images: int) -> torch.Size:
    sizes = list(shape)
    sizes[0], sizes[dim] = images * sizes[0], rows
    return torch.Size(sizes)


def read_as(
    operands: ConvOperands, cut: int, pieces: tuple[FrameRun, ...], own: Reading
) -> ConvOperands:
    """Other pieces, with padding at true borders only."""
    pads, modes = list(operands.pads), list(operands.modes)
    pads[cut] = (own.before, own.after)
    if own.before <= 0 and own.after <= 0:
        modes[cut] = ZEROS
    return replace(
        operands,
        pieces=pieces,
        pads=(pads[0], pads[1], pads[2]),
        modes=(modes[0], modes[1], modes[2]),
        skip=with_axis(operands.skip, cut, own.skip),
    )
