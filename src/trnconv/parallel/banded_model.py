"""BandedModel: lazy tensors of a model are bands, and a convolution fetches the rows it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from trnconv.errors import UnsupportedError
from trnconv.parallel.band_operands import read_as, sized, sliding_of
from trnconv.parallel.bands import Bands, Interval
from trnconv.parallel.edge_strips import EdgeStrips, HaloPiece
from trnconv.parallel.halos import Halos, Surrounded
from trnconv.parallel.levels import Levels
from trnconv.parallel.links import Links
from trnconv.parallel.overlap import ALWAYS, ASSUMED, AUTO, NEVER, Ways, overlaps
from trnconv.parallel.rows_read import out_bands, reading
from trnconv.parallel.split import BandLayer, Halves
from trnconv.pytorch.lazy.context import PatchContext
from trnconv.pytorch.lazy.convolutions import frames_of, run_of
from trnconv.pytorch.lazy.filters import Filters
from trnconv.pytorch.lazy.ledger import Ledger
from trnconv.pytorch.lazy.operands import ConvOperands, Window3d, frame_counts
from trnconv.pytorch.lazy.video import FrameRun, LazyVideo

Tensor = torch.Tensor
ROWS, COLUMNS = 1, 2
NAMES = {ROWS: "rows", COLUMNS: "columns"}


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

    def __init__(self, cut: int, links: Links, book: Ledger) -> None:
        self.cut = cut
        self.links = links
        self.book = book
        self.levels = Levels(links.rank)
        self.gathering: set[str] = set()  # modules that mix all positions
        self.shares_attention = True  # each rank computes some of the queries
        self.attended: Counter[Attended] = Counter()  # by this rank
        self.eager = False  # with gradients: `EagerBands` sees every function of torch
        self.overlap = AUTO
        self.instance = ASSUMED  # where an overlap has to pay
        self.apart: Counter[Ways] = Counter()  # convolutions that ran while halos travelled
        self.halos = Halos(cut, links)
        self._whole = 0
        self._is_new = True  # nothing was convolved since the model was called

    def enter(self) -> None:
        """The model is called: its first convolution says with what."""
        self._is_new = True

    def first(self, sizes: Sequence[int], dtype: torch.dtype) -> None:
        """Sizes of what a convolution gets, of all ranks together along the cut."""
        if self._is_new:
            self._is_new = False
            self.links.state("the call", {"the first input": f"{tuple(sizes)} {dtype}"})

    @property
    def axis(self) -> int | None:
        """The axis of [T, H, W] that is cut; None while tensors are whole."""
        return None if self._whole else self.cut

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
        if self.axis is None:
            return operands
        bands = self._bands(operands)
        return replace(operands, pieces=sized(operands, self.cut, bands.total))

    def every(self, operands: ConvOperands, window: Window3d) -> list[ConvOperands]:
        """The operands of each rank, with the rows its outputs read: sizes only."""
        if self.axis is None:
            return [operands]
        bands, sliding = self._bands(operands), sliding_of(operands, window, self.cut)
        found = [reading(bands, sliding, rank) for rank in range(bands.ranks)]
        rows = [len(reads.order) or reads.stop - reads.start for reads in found]
        return [
            read_as(operands, self.cut, sized(operands, self.cut, count), reads)
            for count, reads in zip(rows, found, strict=True)
        ]

    def extended(
        self, operands: ConvOperands, window: Window3d, filters: Filters, around: PatchContext
    ) -> ConvOperands:
        """The operands of this rank, with the rows its outputs read.

        Or as they are, where it pays to convolve the band while those rows travel; then `later`
        has the rest.
        """
        if self.axis is None:
            return operands
        bands, sliding = self._bands(operands), sliding_of(operands, window, self.cut)
        self._note_first(operands, filters)
        self.levels.add(out_bands(bands, sliding))
        every = [reading(bands, sliding, rank) for rank in range(bands.ranks)]
        own = every[self.links.rank]
        if all(
            reads.rows == bands.of(rank) and not reads.order for rank, reads in enumerate(every)
        ):
            return read_as(operands, self.cut, operands.pieces, own)
        pieces = self._surrounded(operands.pieces, bands, [reads.rows for reads in every])
        layer = BandLayer(operands, window, filters, around)
        halves = Halves.of(layer, self.cut, bands, sliding, self.links.rank)
        if halves is not None and (later := self._later(halves, pieces, own.rows)) is not None:
            return replace(operands, later=later)
        joined = self._joined(operands.pieces, pieces, own.rows, own.order)
        return read_as(operands, self.cut, joined, own)

    def require_movable(self, video: LazyVideo) -> None:
        """Refuse padding of bands that no convolution takes over."""
        if self.axis is not None and video.pads[self.axis] != (0, 0):
            raise UnsupportedError(
                f"{self.book.module or 'the model'} looks at {NAMES[self.axis]} it has padded, in a"
                f" video cut into bands of {NAMES[self.axis]}: only a convolution knows what lies"
                " beyond a band. Cut the other axis."
            )

    def require_local(self, filters: Filters) -> None:
        """Refuse a convolution that would need other rows, where rows cannot be told."""
        if self.axis is None or set(filters.weight.shape[2:]) == {1}:
            return
        raise UnsupportedError(
            f"{filters.module or self.book.module or 'a convolution'}: its input is no video of the"
            f" weight's type ({filters.weight.dtype}), so that its {NAMES[self.axis]} cannot be"
            " told; it cannot run on bands. Run this model on one rank."
        )

    def _note_first(self, operands: ConvOperands, filters: Filters) -> None:
        if self._is_new:
            bands, shape = self._bands(operands), list(operands.pieces[0].base.shape)
            shape[2] = sum(frame_counts(operands.pieces))
            shape[2 + self.cut] = bands.total
            self.first(shape, filters.weight.dtype)

    def _bands(self, operands: ConvOperands) -> Bands:
        return self.levels.of(operands.pieces[0].base.shape[2 + self.cut])

    def _surrounded(
        self, runs: tuple[FrameRun, ...], bands: Bands, wanted: list[Interval]
    ) -> tuple[HaloPiece, ...]:
        """The frames of every run with the rows around them; each tensor is asked for once."""
        frames: dict[Any, Interval] = {}
        for run in runs:
            first, last = frames.get(run.base, (run.start, run.stop))
            frames[run.base] = (min(first, run.start), max(last, run.stop))
        self.links.module = self.book.module
        near: dict[Any, Surrounded] = {}
        for run in runs:
            if run.base not in near:
                used = frames[run.base]
                near[run.base] = self.halos.around(frames_of(run), used, bands, wanted)
        places = [(run, frames[run.base][0]) for run in runs]
        return tuple(
            HaloPiece(near[run.base], (run.start - first, run.stop - first))
            for run, first in places
        )

    def _later(
        self, halves: Halves, pieces: tuple[HaloPiece, ...], rows: Interval
    ) -> EdgeStrips | None:
        """The strips of a convolution, if they are to be convolved apart."""
        if self.overlap == NEVER:
            return None
        near = list({id(piece.near): piece.near for piece in pieces}.values())
        ways = halves.ways(near, rows, self.links.ranks, self.instance)
        if self.overlap != ALWAYS and not overlaps(ways):
            return None
        self.apart[ways] += 1
        return halves.apart(pieces)

    def _joined(
        self,
        runs: tuple[FrameRun, ...],
        pieces: tuple[HaloPiece, ...],
        rows: Interval,
        order: tuple[int, ...],
    ) -> tuple[FrameRun, ...]:
        """Runs of bands side by side with their halos."""
        made: dict[int, FrameRun] = {}
        for piece in pieces:
            near = piece.near
            if id(near) not in made:
                made[id(near)] = run_of(self._ordered(near.rows(rows), order))
                if moved := near.copied_bytes(rows):
                    self.book.moved("halo", moved)
        return tuple(
            replace(
                run,
                base=made[id(piece.near)].base,
                start=made[id(piece.near)].start + piece.frames[0],
                stop=made[id(piece.near)].start + piece.frames[1],
            )
            for run, piece in zip(runs, pieces, strict=True)
        )

    def _ordered(self, rows: Tensor, order: tuple[int, ...]) -> Tensor:
        if not order:
            return rows
        return rows.index_select(2 + self.cut, torch.tensor(order, device=rows.device))
