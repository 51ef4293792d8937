"""Splitting a convolution of a band: what both ways to do it would take, and the way that pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnconv.parallel.band_operands import read_as, sized
from trnconv.parallel.boundary import Boundary, boundaries, by_window
from trnconv.parallel.boundary_conv import BoundaryConv, BoundaryLaunch, HaloPiece
from trnconv.parallel.grid import BandGrid, MeshCut, Region
from trnconv.parallel.halos import Surrounded
from trnconv.parallel.overlap import LinkedCore, Ways
from trnconv.parallel.receptive_field import ReceptiveField, Sliding, receptive_field
from trnconv.problem.conv_problem import ConvProblem
from trnconv.pytorch.backends.arrays import dtype_name
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.lazy.convolutions.operands import ConvOperands, Window3d, frame_counts
from trnconv.pytorch.lazy.fusion.convolution import problem_of, spec_of
from trnconv.pytorch.lazy.tensors.context import PatchContext


@dataclass(frozen=True)
class BandLayer:
    """A convolution of this rank's band."""

    operands: ConvOperands
    window: Window3d
    filters: Filters
    context: PatchContext

    @property
    def module(self) -> str:
        """Its dotted name."""
        return self.filters.module or self.context.stats.module

    def problem(self, operands: ConvOperands, instance: LinkedCore) -> ConvProblem:
        """What a convolution of such operands costs, whatever its end."""
        frames = frame_counts(operands.pieces)
        weight = (*self.filters.weight.shape[:2], *self.window.kernel)
        return ConvProblem(
            shape=problem_of(operands, self.window, weight, self.context),
            machine=instance.machine,
            dtype=dtype_name(self.filters.weight),
            pieces=frames if len(frames) > 1 else (),
            reproducible=self.context.reproducible,
            policy=self.context.policy_for(self.module),
        )


@dataclass(frozen=True)
class BoundaryGroup:
    """Boundaries along one axis that one launch can compute."""

    at: int  # of the axis, among those that are cut
    boundaries: tuple[Boundary, ...]


@dataclass(frozen=True)
class Halves:
    """A layer whose boundaries can be convolved apart from its band."""

    layer: BandLayer
    cut: MeshCut
    band_fields: tuple[ReceptiveField, ...]  # of the band, along each axis that is cut
    groups: tuple[BoundaryGroup, ...]

    @staticmethod
    def of(
        layer: BandLayer, cut: MeshCut, grid: BandGrid, slidings: Sequence[Sliding], rank: int
    ) -> Halves | None:
        """None where a band alone gives no output of the whole.

        Boundaries along one axis are as long as the band is along the other: where two meet, both
        compute the same outputs.
        """
        groups, band_fields, place = [], [], cut.place(rank)
        for at, (bands, sliding) in enumerate(zip(grid.bands, slidings, strict=True)):
            at_edges = boundaries(bands, sliding, place[at])
            if at_edges is None or layer.operands.skip[cut.axes[at]]:
                return None
            band_fields.append(receptive_field(bands, sliding, place[at]))
            groups += [BoundaryGroup(at, group) for group in by_window(at_edges)]
        return Halves(layer, cut, tuple(band_fields), tuple(groups))

    def ways(
        self, near: list[Surrounded], wanted: Region, ranks: int, instance: LinkedCore
    ) -> Ways:
        """Both ways, in sizes."""
        operands = [self._operands(group) for group in self.groups]
        problems = [self.layer.problem(operand, instance) for operand in operands]
        element_bytes = self.layer.filters.weight.element_size()
        moved = sum(_elements(problem) for problem in problems) * element_bytes
        return Ways(
            instance=instance,
            band=self.layer.problem(self.layer.operands, instance),
            boundaries=tuple(problems),
            halos=tuple(message for surrounded in near for message in surrounded.messages),
            ranks=ranks,
            together_bytes=sum(surrounded.copied_bytes(wanted) for surrounded in near),
            apart_bytes=2 * moved,
        )

    def apart(self, pieces: tuple[HaloPiece, ...]) -> BoundaryConv:
        """The second step, to be done when the first is."""
        launches = []
        for group in self.groups:
            spec = spec_of(self._operands(group), self.layer.window, self.layer.context)
            launches.append(BoundaryLaunch(group.at, group.boundaries, self.band_fields, spec))
        return BoundaryConv(self.cut, pieces, tuple(launches))

    def _operands(self, group: BoundaryGroup) -> ConvOperands:
        """Of one launch: sizes only."""
        fields = list(self.band_fields)
        fields[group.at] = group.boundaries[0].field
        counts = [field.count for field in fields]
        sizes = sized(self.layer.operands, self.cut.axes, counts, len(group.boundaries))
        return read_as(self.layer.operands, self.cut.axes, sizes, fields)


def _elements(problem: ConvProblem) -> int:
    """Of input and output together."""
    shape = problem.shape
    depth, height, width = shape.size
    outputs = shape.out_sizes()
    read = shape.batch * shape.c_in * depth * height * width
    return read + shape.batch * shape.c_out * outputs[0] * outputs[1] * outputs[2]
