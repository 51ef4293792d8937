"""BandedModel: lazy tensors of a model are bands, and a convolution fetches the rows it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from trnconv.errors import UnsupportedError
from trnconv.parallel.band_operands import ordered, read_as, sized, sliding_of
from trnconv.parallel.bands import Interval
from trnconv.parallel.boundary_conv import BoundaryConv, HaloPiece
from trnconv.parallel.comm import Comm
from trnconv.parallel.grid import NAMES, BandGrid, MeshCut, Region
from trnconv.parallel.halos import Halos, Surrounded
from trnconv.parallel.levels import Levels
from trnconv.parallel.overlap import ALWAYS, ASSUMED, AUTO, NEVER, Ways, overlaps
from trnconv.parallel.receptive_field import ReceptiveField, Sliding, out_bands, receptive_fields
from trnconv.parallel.split import BandLayer, Halves
from trnconv.pytorch.lazy.base.stats import PatchStats
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.lazy.convolutions.operands import ConvOperands, Window3d, frame_counts
from trnconv.pytorch.lazy.frames.video import FrameRun, LazyVideo
from trnconv.pytorch.lazy.fusion.convolution import frames_of, run_of
from trnconv.pytorch.lazy.tensors.context import PatchContext

Tensor = torch.Tensor


@dataclass(frozen=True)
class Attended:
    """One attention: its sizes, for what it costs."""

    heads: int  # of all images together
    queries: int
    keys: int
    width: int  # of queries and keys together with that of values

    @property
    def macs(self) -> int:
        """Of both matrix products."""
        return self.heads * self.queries * self.keys * self.width


class BandedModel:
    """One model on one rank: what its tensors are bands of, and how to get at the rest."""

    def __init__(self, cut: MeshCut, comm: Comm, stats: PatchStats) -> None:
        self.cut = cut
        self.comm = comm
        self.stats = stats
        self.levels = tuple(Levels(at) for at in cut.place(comm.rank))  # of each axis
        self.gathering: set[str] = set()  # modules that mix all positions
        self.shares_attention = True  # each rank computes some of the queries
        self.attended: Counter[Attended] = Counter()  # by this rank
        self.eager = False  # with gradients: `EagerBands` sees every function of torch
        self.overlap = AUTO
        self.instance = ASSUMED  # where an overlap has to pay
        self.apart: Counter[Ways] = Counter()  # convolutions that ran while halos travelled
        self.halos = Halos(cut, comm)
        self._whole = 0
        self._is_new = True  # nothing was convolved since the model was called

    def begin(self, grid: BandGrid) -> None:
        """Another video, of which ranks hold this."""
        for level, bands in zip(self.levels, grid.bands, strict=True):
            level.begin(bands)

    def grid(self, shape: Sequence[int]) -> BandGrid:
        """What a tensor of this rank is a part of."""
        dims = self.cut.dims(len(shape))
        return BandGrid(
            tuple(level.of(shape[dim]) for level, dim in zip(self.levels, dims, strict=True))
        )

    def grid_of_whole(self, shape: Sequence[int]) -> BandGrid | None:
        """How a whole tensor is cut; None if there was none of its size."""
        cut_bands = []
        for level, dim in zip(self.levels, self.cut.dims(len(shape)), strict=True):
            fitting = [bands for bands in level.known if bands.total == shape[dim]]
            cut_bands += fitting[:1]
        return BandGrid(tuple(cut_bands)) if len(cut_bands) == len(self.levels) else None

    def enter(self) -> None:
        """The model is called: its first convolution says with what."""
        self._is_new = True

    def first(self, shape: Sequence[int], frames: int, dtype: torch.dtype) -> None:
        """What a convolution gets on this rank; the first one of a call is told to the others."""
        if not self._is_new:
            return
        self._is_new = False
        sizes = list(shape)
        for dim, (_, total) in zip(self.cut.dims(len(shape)), self.grid(shape).whole, strict=True):
            sizes[dim] = total
        said = f"{tuple(sizes)} with {frames} frames, {dtype}"
        self.comm.state("the call", {"the first input": said})

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of [T, H, W] that are cut; none while tensors are whole."""
        return () if self._whole else self.cut.axes

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """While tensors are whole."""
        self._whole += 1
        try:
            yield
        finally:
            self._whole -= 1

    @contextmanager
    def banded(self) -> Iterator[None]:
        """While tensors are bands again, inside of a module that mixes all positions."""
        before, self._whole = self._whole, 0
        try:
            yield
        finally:
            self._whole = before

    def whole(self, operands: ConvOperands, window: Window3d) -> ConvOperands:
        """The operands of all ranks together: sizes only."""
        del window
        if not self.axes:
            return operands
        sizes = [total for _, total in self._grid(operands).whole]
        return replace(operands, pieces=sized(operands, self.cut.axes, sizes))

    def every(self, operands: ConvOperands, window: Window3d) -> list[ConvOperands]:
        """The operands of each rank, with the rows its outputs read: sizes only."""
        if not self.axes:
            return [operands]
        grid, axes = self._grid(operands), self.cut.axes
        result = []
        for fields in dict.fromkeys(receptive_fields(grid, self._slidings(operands, window))):
            sizes = sized(operands, axes, [field.count for field in fields])
            result.append(read_as(operands, axes, sizes, fields))
        return result

    def extended(
        self, operands: ConvOperands, window: Window3d, filters: Filters, context: PatchContext
    ) -> ConvOperands:
        """The operands of this rank, with the rows its outputs read.

        Or as they are, where it pays to convolve the band while those rows travel; then `later`
        has the rest.
        """
        if not self.axes:
            return operands
        shape, frames = operands.pieces[0].base.shape, sum(frame_counts(operands.pieces))
        self.first(shape, frames, filters.weight.dtype)
        grid, slidings = self._grid(operands), self._slidings(operands, window)
        for level, bands, sliding in zip(self.levels, grid.bands, slidings, strict=True):
            level.add(out_bands(bands, sliding))
        every = receptive_fields(grid, slidings)
        own_fields = every[self.comm.rank]
        wanted = tuple(tuple(reads.rows for reads in fields) for fields in every)
        mirrored = any(reads.order for fields in every for reads in fields)
        if not mirrored and all(region == grid.of(rank) for rank, region in enumerate(wanted)):
            return read_as(operands, self.cut.axes, operands.pieces, own_fields)
        pieces = self._surrounded(operands.pieces, grid, wanted)
        layer = BandLayer(operands, window, filters, context)
        halves = Halves.of(layer, self.cut, grid, slidings, self.comm.rank)
        region = wanted[self.comm.rank]
        if halves is not None and (later := self._later(halves, pieces, region)) is not None:
            return replace(operands, later=later)
        joined = self._joined(operands.pieces, pieces, region, own_fields)
        return read_as(operands, self.cut.axes, joined, own_fields)

    def require_movable(self, video: LazyVideo) -> None:
        """Refuse padding of bands that no convolution takes over."""
        for axis in self.axes:
            if video.pads[axis] != (0, 0):
                raise UnsupportedError(
                    f"{self.stats.module or 'the model'} looks at {NAMES[axis]} it has padded, in a"
                    f" video cut into bands of {NAMES[axis]}: only a convolution knows what lies"
                    " beyond a band. Cut the other axis."
                )

    def require_local(self, filters: Filters) -> None:
        """Refuse a convolution that would need other rows, where rows cannot be told."""
        if not self.axes or set(filters.weight.shape[2:]) == {1}:
            return
        raise UnsupportedError(
            f"{filters.module or self.stats.module or 'a convolution'}: its input is no video of"
            f" the weight's type ({filters.weight.dtype}), so that its {self.cut.names} cannot be"
            " told; it cannot run on bands. Run this model on one rank."
        )

    def _grid(self, operands: ConvOperands) -> BandGrid:
        return self.grid(operands.pieces[0].base.shape)

    def _slidings(self, operands: ConvOperands, window: Window3d) -> tuple[Sliding, ...]:
        return tuple(sliding_of(operands, window, axis) for axis in self.cut.axes)

    def _surrounded(
        self, runs: tuple[FrameRun, ...], grid: BandGrid, wanted: tuple[Region, ...]
    ) -> tuple[HaloPiece, ...]:
        """The frames of every run with the rows around them; each tensor is asked for once."""
        frames: dict[Any, Interval] = {}
        for run in runs:
            first, last = frames.get(run.base, (run.start, run.stop))
            frames[run.base] = (min(first, run.start), max(last, run.stop))
        self.comm.module = self.stats.module
        near: dict[Any, Surrounded] = {}
        for run in runs:
            if run.base not in near:
                used = frames[run.base]
                near[run.base] = self.halos.around(frames_of(run), used, grid, wanted)
        places = [(run, frames[run.base][0]) for run in runs]
        return tuple(
            HaloPiece(near[run.base], (run.start - first, run.stop - first))
            for run, first in places
        )

    def _later(
        self, halves: Halves, pieces: tuple[HaloPiece, ...], region: Region
    ) -> BoundaryConv | None:
        """The boundaries of a convolution, if they are to be convolved apart."""
        if self.overlap == NEVER:
            return None
        near = list({id(piece.near): piece.near for piece in pieces}.values())
        ways = halves.ways(near, region, self.comm.ranks, self.instance)
        if self.overlap != ALWAYS and not overlaps(ways):
            return None
        self.apart[ways] += 1
        return halves.apart(pieces)

    def _joined(
        self,
        runs: tuple[FrameRun, ...],
        pieces: tuple[HaloPiece, ...],
        region: Region,
        fields: tuple[ReceptiveField, ...],
    ) -> tuple[FrameRun, ...]:
        """Runs of bands side by side with their halos."""
        made: dict[int, FrameRun] = {}
        for piece in pieces:
            near = piece.near
            if id(near) not in made:
                made[id(near)] = run_of(ordered(near.rows(region), self.cut.axes, fields))
                if moved := near.copied_bytes(region):
                    self.stats.moved("halo", moved)
        return tuple(
            replace(
                run,
                base=made[id(piece.near)].base,
                start=made[id(piece.near)].start + piece.frames[0],
                stop=made[id(piece.near)].start + piece.frames[1],
            )
            for run, piece in zip(runs, pieces, strict=True)
        )
