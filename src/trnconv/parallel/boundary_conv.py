"""A convolution of a band in two steps: the band as it lies, then the boundaries at its edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from trnconv.parallel.band_operands import ordered
from trnconv.parallel.bands import Interval
from trnconv.parallel.boundary import Boundary
from trnconv.parallel.grid import MeshCut, Region
from trnconv.parallel.halos import Surrounded
from trnconv.parallel.receptive_field import ReceptiveField
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
class BoundaryLaunch:
    """Boundaries along one axis that are images of one convolution."""

    at: int  # of the axis, among those that are cut
    boundaries: tuple[Boundary, ...]
    band_fields: tuple[ReceptiveField, ...]  # of the band, along each axis that is cut
    spec: ConvSpec  # without policy and end

    def fields(self, boundary: Boundary) -> tuple[ReceptiveField, ...]:
        """What a boundary reads: as the band does, but along its own axis."""
        return (*self.band_fields[: self.at], boundary.field, *self.band_fields[self.at + 1 :])


@dataclass(frozen=True)
class BoundaryConv:
    """What is left when the band has been convolved: outputs that read rows of others."""

    cut: MeshCut
    pieces: tuple[HaloPiece, ...]
    launches: tuple[BoundaryLaunch, ...]

    def complete(
        self,
        conv: DeferredConv,
        outputs: tuple[Tensor, ...],
        outputs_of: Callable[[Tensor], tuple[Tensor, ...]],
    ) -> None:
        """The outputs of the boundaries, over those that the band was padded for."""
        for piece in self.pieces:
            piece.near.wait()
        for launch in self.launches:
            made = outputs_of(self._convolved(conv, launch))
            for boundaries, output in zip(made, outputs, strict=True):
                self._put(launch, boundaries, output)
                conv.stats.moved("halo", 2 * boundaries.nbytes)

    def _put(self, launch: BoundaryLaunch, made: Tensor, output: Tensor) -> None:
        parts = made.chunk(len(launch.boundaries))
        for boundary, part in zip(launch.boundaries, parts, strict=True):
            output.narrow(self._dim(launch), boundary.first, boundary.count).copy_(part)

    def _convolved(self, conv: DeferredConv, launch: BoundaryLaunch) -> Tensor:
        pieces = tuple(
            torch.cat(
                [self._read(piece, launch.fields(boundary)) for boundary in launch.boundaries]
            )
            for piece in self.pieces
        )
        conv.stats.moved("halo", 2 * sum(piece.nbytes for piece in pieces))
        spec = conv.spec
        boundaries = replace(
            conv,
            pieces=pieces,
            spec=replace(launch.spec, activation=spec.activation, accuracy=spec.accuracy),
            residual=self._residual(conv, launch),
            counted=(),
            instead_of=None,
            later=None,
        )
        return boundaries.run()

    def _residual(self, conv: DeferredConv, launch: BoundaryLaunch) -> Tensor | None:
        if conv.residual is None:
            return None
        some = [
            conv.residual.narrow(self._dim(launch), boundary.first, boundary.count)
            for boundary in launch.boundaries
        ]
        return torch.cat(some)

    def _read(self, piece: HaloPiece, fields: tuple[ReceptiveField, ...]) -> Tensor:
        rows = piece.rows(tuple(own.rows for own in fields))
        return ordered(rows, self.cut.axes, fields)

    def _dim(self, launch: BoundaryLaunch) -> int:
        return 2 + self.cut.axes[launch.at]
