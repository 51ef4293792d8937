"""Exchanges with gradients: the backward of each is its transpose, an exchange the other way."""

from __future__ import annotations

from typing import Any

import torch

from trnconv.parallel.comm import Comm, Dims, cut_out
from trnconv.parallel.grid import BandGrid, Region

Tensor = torch.Tensor


class _Fetch(torch.autograd.Function):
    """Rows that this rank reads. Their gradients go back to those who hold them, and add up."""

    @staticmethod
    def forward(
        ctx: Any, local: Tensor, comm: Comm, dims: Dims, grid: BandGrid, wanted: tuple[Region, ...]
    ) -> Tensor:
        """The region wanted[rank]."""
        ctx.rest = (comm, dims, grid, wanted)
        return comm.fetch(local.contiguous(), dims, grid, wanted).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Laid out over all rows, summed over ranks, and this rank's band of the sum."""
        comm, dims, grid, wanted = ctx.rest
        sides = [0, 0] * gradient.dim()
        for dim, (start, stop), (_, total) in zip(dims, wanted[comm.rank], grid.whole, strict=True):
            at = 2 * (gradient.dim() - 1 - dim)  # torch counts from the last axis
            sides[at : at + 2] = start, total - stop
        spread = torch.nn.functional.pad(gradient, sides)
        return _own(comm.summed(spread), dims, grid, comm.rank), None, None, None, None


class _Gather(torch.autograd.Function):
    """The whole tensor. Every rank's use of this rank's rows adds to their gradient."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, comm: Comm, dims: Dims, grid: BandGrid) -> Tensor:
        """All bands."""
        ctx.rest = (comm, dims, grid)
        return comm.gather(local.contiguous(), dims, grid)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The sum over ranks, this rank's band of it."""
        comm, dims, grid = ctx.rest
        return _own(comm.summed(gradient), dims, grid, comm.rank), None, None, None


class _Stacked(torch.autograd.Function):
    """A small tensor of every rank."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, comm: Comm) -> Tensor:
        """In the order of ranks."""
        ctx.comm = comm
        return comm.stacked(local)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """What every rank did with this rank's, added up."""
        return ctx.comm.summed(gradient)[ctx.comm.rank], None


def _own(whole: Tensor, dims: Dims, grid: BandGrid, rank: int) -> Tensor:
    return cut_out(whole, dims, grid.whole, grid.of(rank)).contiguous()


def fetched(
    local: Tensor, comm: Comm, dims: Dims, grid: BandGrid, wanted: tuple[Region, ...]
) -> Tensor:
    """Region wanted[rank] of a tensor in bands."""
    rows: Tensor = _Fetch.apply(local, comm, dims, grid, wanted)  # type: ignore[no-untyped-call]
    return rows


def gathered(local: Tensor, comm: Comm, dims: Dims, grid: BandGrid) -> Tensor:
    """The whole of a tensor in bands."""
    whole: Tensor = _Gather.apply(local, comm, dims, grid)  # type: ignore[no-untyped-call]
    return whole


def stacked(local: Tensor, comm: Comm) -> Tensor:
    """A small tensor of every rank."""
    every: Tensor = _Stacked.apply(local, comm)  # type: ignore[no-untyped-call]
    return every
