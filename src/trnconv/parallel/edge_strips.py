"""A convolution of a band in two steps: the band as it lies, then the strips at its edges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from trnconv.parallel.bands import Interval
from trnconv.parallel.halos import Surrounded
from trnconv.parallel.strips import EdgeStrip
from trnconv.pytorch.conv_call import ConvSpec
from trnconv.pytorch.lazy.deferred_conv import DeferredConv

Tensor = torch.Tensor


@dataclass(frozen=True)
class HaloPiece:
    """Some of the frames that a halo was asked for."""

    near: Surrounded
    frames: Interval  # counted from the first of those

    def rows(self, rows: Interval) -> Tensor:
        """The rows of an interval; waits for those of others."""
        start, stop = self.frames
        return self.near.rows(rows).narrow(2, start, stop - start)


@dataclass(frozen=True)
class StripLaunch:
    """Strips that are images of one convolution."""

    strips: tuple[EdgeStrip, ...]
    spec: ConvSpec  # without policy and end


@dataclass(frozen=True)
class EdgeStrips:
    """What is left when the band has been convolved: outputs that read rows of others."""

    dim: int
    pieces: tuple[HaloPiece, ...]
    launches: tuple[StripLaunch, ...]

    def completed(self, asked: DeferredConv, y: Tensor) -> Tensor:
        """The outputs of the strips, over those that the band was padded for."""
        for piece in self.pieces:
            piece.near.wait()
        for launch in self.launches:
            made = self._convolved(asked, launch)
            asked.book.moved("halo", 2 * made.nbytes)
            parts = made.chunk(len(launch.strips))
            for strip, part in zip(launch.strips, parts, strict=True):
                y.narrow(self.dim, strip.first, strip.count).copy_(part)
        return y

    def _convolved(self, asked: DeferredConv, launch: StripLaunch) -> Tensor:
        pieces = tuple(
            torch.cat([piece.rows(strip.reading.rows) for strip in launch.strips])
            for piece in self.pieces
        )
        asked.book.moved("halo", 2 * sum(piece.nbytes for piece in pieces))
        own = asked.spec
        strips = replace(
            asked,
            pieces=pieces,
            spec=replace(launch.spec, activation=own.activation, accuracy=own.accuracy),
            residual=self._residual(asked, launch),
            counted=(),
            instead_of=None,
            later=None,
        )
        return strips.run()

    def _residual(self, asked: DeferredConv, launch: StripLaunch) -> Tensor | None:
        if asked.residual is None:
            return None
        some = [
            asked.residual.narrow(self.dim, strip.first, strip.count) for strip in launch.strips
        ]
        return torch.cat(some)
