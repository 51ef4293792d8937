"""Splitting a convolution of a band: what both ways to do it would take, and the way that pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnconv.ask.question import Question
from trnconv.parallel.band_operands import read_as, sized
from trnconv.parallel.edge_strips import EdgeStrips, HaloPiece, StripLaunch
from trnconv.parallel.grid import BandGrid, MeshCut, Region
from trnconv.parallel.halos import Surrounded
from trnconv.parallel.overlap import LinkedCore, Ways
from trnconv.parallel.rows_read import Reading, Sliding, reading
from trnconv.parallel.strips import EdgeStrip, alike, strips
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

    def question(self, operands: ConvOperands, instance: LinkedCore) -> Question:
        """What a convolution of such operands costs, whatever its end."""
        frames = frame_counts(operands.pieces)
        weight = (*self.filters.weight.shape[:2], *self.window.kernel)
        return Question(
            shape=problem_of(operands, self.window, weight, self.context),
            machine=instance.machine,
            dtype=dtype_name(self.filters.weight),
            pieces=frames if len(frames) > 1 else (),
            reproducible=self.context.reproducible,
            policy=self.context.policy_for(self.module),
        )


@dataclass(frozen=True)
class StripGroup:
    """Strips along one axis that one launch can compute."""

    at: int  # of the axis, among those that are cut
    strips: tuple[EdgeStrip, ...]


@dataclass(frozen=True)
class Halves:
    """A layer whose strips can be convolved apart from its band."""

    layer: BandLayer
    cut: MeshCut
    own: tuple[Reading, ...]  # of the band, along each axis that is cut
    groups: tuple[StripGroup, ...]

    @staticmethod
    def of(
        layer: BandLayer, cut: MeshCut, grid: BandGrid, slidings: Sequence[Sliding], rank: int
    ) -> Halves | None:
        """None where a band alone gives no output of the whole.

        Strips along one axis are as long as the band is along the other: where two meet, both
        compute the same outputs.
        """
        groups, own, place = [], [], cut.place(rank)
        for at, (bands, sliding) in enumerate(zip(grid.bands, slidings, strict=True)):
            found = strips(bands, sliding, place[at])
            if found is None or layer.operands.skip[cut.axes[at]]:
                return None
            own.append(reading(bands, sliding, place[at]))
            groups += [StripGroup(at, group) for group in alike(found)]
        return Halves(layer, cut, tuple(own), tuple(groups))

    def ways(
        self, near: list[Surrounded], wanted: Region, ranks: int, instance: LinkedCore
    ) -> Ways:
        """Both ways, in sizes."""
        operands = [self._operands(group) for group in self.groups]
        asked = [self.layer.question(operand, instance) for operand in operands]
        element_bytes = self.layer.filters.weight.element_size()
        moved = sum(_elements(question) for question in asked) * element_bytes
        return Ways(
            instance=instance,
            band=self.layer.question(self.layer.operands, instance),
            strips=tuple(asked),
            halos=tuple(message for surrounded in near for message in surrounded.messages),
            ranks=ranks,
            together_bytes=sum(surrounded.copied_bytes(wanted) for surrounded in near),
            apart_bytes=2 * moved,
        )

    def apart(self, pieces: tuple[HaloPiece, ...]) -> EdgeStrips:
        """The second step, to be done when the first is."""
        launches = []
        for group in self.groups:
            spec = spec_of(self._operands(group), self.layer.window, self.layer.context)
            launches.append(StripLaunch(group.at, group.strips, self.own, spec))
        return EdgeStrips(self.cut, pieces, tuple(launches))

    def _operands(self, group: StripGroup) -> ConvOperands:
        """Of one launch: sizes only."""
        readings = list(self.own)
        readings[group.at] = group.strips[0].reading
        counts = [own.count for own in readings]
        sizes = sized(self.layer.operands, self.cut.axes, counts, len(group.strips))
        return read_as(self.layer.operands, self.cut.axes, sizes, readings)


def _elements(question: Question) -> int:
    """Of input and output together."""
    shape = question.shape
    depth, height, width = shape.size
    outputs = shape.out_sizes()
    given = shape.batch * shape.c_in * depth * height * width
    return given + shape.batch * shape.c_out * outputs[0] * outputs[1] * outputs[2]
