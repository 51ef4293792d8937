"""A convolution of a band in two steps: the band as it lies, then the strips at its edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from trnconv.parallel.band_operands import ordered
from trnconv.parallel.bands import Interval
from trnconv.parallel.grid import MeshCut, Region
from trnconv.parallel.halos import Surrounded
from trnconv.parallel.rows_read import Reading
from trnconv.parallel.strips import EdgeStrip
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.lazy.convolutions.deferred_conv import DeferredConv

Tensor = torch.Tensor


@dataclass(frozen=True)
class HaloPiece:
    """Some of the frames that a halo was asked for."""

    near: Surrounded
    frames: Interval  # counted from the first of those

    def rows(self, region: Region) -> Tensor:
        """What lies in a region; waits for what is others'."""
        start, stop = self.frames
        return self.near.rows(region).narrow(2, start, stop - start)


@dataclass(frozen=True)
class StripLaunch:
    """Strips along one axis that are images of one convolution."""

    at: int  # of the axis, among those that are cut
    strips: tuple[EdgeStrip, ...]
    own: tuple[Reading, ...]  # of the band, along each axis that is cut
    spec: ConvSpec  # without policy and end

    def readings(self, strip: EdgeStrip) -> tuple[Reading, ...]:
        """What a strip reads: as the band does, but along its own axis."""
        return (*self.own[: self.at], strip.reading, *self.own[self.at + 1 :])


@dataclass(frozen=True)
class EdgeStrips:
    """What is left when the band has been convolved: outputs that read rows of others."""

    cut: MeshCut
    pieces: tuple[HaloPiece, ...]
    launches: tuple[StripLaunch, ...]

    def complete(
        self,
        asked: DeferredConv,
        outputs: tuple[Tensor, ...],
        outputs_of: Callable[[Tensor], tuple[Tensor, ...]],
    ) -> None:
        """The outputs of the strips, over those that the band was padded for."""
        for piece in self.pieces:
            piece.near.wait()
        for launch in self.launches:
            made = outputs_of(self._convolved(asked, launch))
            for strips, output in zip(made, outputs, strict=True):
                self._put(launch, strips, output)
                asked.stats.moved("halo", 2 * strips.nbytes)

    def _put(self, launch: StripLaunch, made: Tensor, output: Tensor) -> None:
        parts = made.chunk(len(launch.strips))
        for strip, part in zip(launch.strips, parts, strict=True):
            output.narrow(self._dim(launch), strip.first, strip.count).copy_(part)

    def _convolved(self, asked: DeferredConv, launch: StripLaunch) -> Tensor:
        pieces = tuple(
            torch.cat([self._read(piece, launch.readings(strip)) for strip in launch.strips])
            for piece in self.pieces
        )
        asked.stats.moved("halo", 2 * sum(piece.nbytes for piece in pieces))
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
            asked.residual.narrow(self._dim(launch), strip.first, strip.count)
            for strip in launch.strips
        ]
        return torch.cat(some)

    def _read(self, piece: HaloPiece, readings: tuple[Reading, ...]) -> Tensor:
        rows = piece.rows(tuple(own.rows for own in readings))
        return ordered(rows, self.cut.axes, readings)

    def _dim(self, launch: StripLaunch) -> int:
        return 2 + self.cut.axes[launch.at]
