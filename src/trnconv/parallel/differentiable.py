"""Exchanges with gradients: the backward of each is its transpose, an exchange the other way."""

from __future__ import annotations

from typing import Any

import torch

from trnconv.parallel.bands import Bands, Interval
from trnconv.parallel.links import Links

Tensor = torch.Tensor


class _Fetch(torch.autograd.Function):
    """Rows that this rank reads. Their gradients go back to those who hold them, and add up."""

    @staticmethod
    def forward(
        ctx: Any, own: Tensor, links: Links, dim: int, bands: Bands, wanted: list[Interval]
    ) -> Tensor:
        """The rows wanted[rank]."""
        ctx.rest = (links, dim, bands, wanted)
        return links.fetch(own.contiguous(), dim, bands, wanted).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Laid out over all rows, summed over ranks, and this rank's band of the sum."""
        links, dim, bands, wanted = ctx.rest
        start, stop = wanted[links.rank]
        sides = [0, 0] * (gradient.dim() - dim)
        sides[-2], sides[-1] = start, bands.total - stop
        spread = torch.nn.functional.pad(gradient, sides)
        return _own(links.summed(spread), dim, bands, links.rank), None, None, None, None


class _Gather(torch.autograd.Function):
    """The whole tensor. Every rank's use of this rank's rows adds to their gradient."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, links: Links, dim: int, bands: Bands) -> Tensor:
        """All bands."""
        ctx.rest = (links, dim, bands)
        return links.gather(own.contiguous(), dim, bands)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The sum over ranks, this rank's band of it."""
        links, dim, bands = ctx.rest
        return _own(links.summed(gradient), dim, bands, links.rank), None, None, None


class _Stacked(torch.autograd.Function):
    """A small tensor of every rank."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, links: Links) -> Tensor:
        """In the order of ranks."""
        ctx.links = links
        return links.stacked(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """What every rank did with this rank's, added up."""
        return ctx.links.summed(gradient)[ctx.links.rank], None


def _own(whole: Tensor, dim: int, bands: Bands, rank: int) -> Tensor:
    start, stop = bands.of(rank)
    return whole.narrow(dim, start, stop - start).contiguous()


def fetched(own: Tensor, links: Links, dim: int, bands: Bands, wanted: list[Interval]) -> Tensor:
    """Rows wanted[rank] of a tensor in bands."""
    rows: Tensor = _Fetch.apply(own, links, dim, bands, wanted)  # type: ignore[no-untyped-call]
    return rows


def gathered(own: Tensor, links: Links, dim: int, bands: Bands) -> Tensor:
    """The whole of a tensor in bands."""
    whole: Tensor = _Gather.apply(own, links, dim, bands)  # type: ignore[no-untyped-call]
    return whole


def stacked(own: Tensor, links: Links) -> Tensor:
    """A small tensor of every rank."""
    every: Tensor = _Stacked.apply(own, links)  # type: ignore[no-untyped-call]
    return every
