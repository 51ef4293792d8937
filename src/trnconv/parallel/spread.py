"""Spread: lazy tensors of a model are bands, and a convolution fetches the rows it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from trnconv.errors import UnsupportedError
from trnconv.geometry import ZEROS, with_axis
from trnconv.parallel.bands import Bands, Interval, meeting
from trnconv.parallel.levels import Levels
from trnconv.parallel.links import Links
from trnconv.parallel.reading import Reading, Sliding, out_bands, reading
from trnconv.pytorch.lazy.convolutions import Filters
from trnconv.pytorch.lazy.doing import base_tensor
from trnconv.pytorch.lazy.memory import UNKNOWN, written
from trnconv.pytorch.lazy.noted import Notebook
from trnconv.pytorch.lazy.operands import Operands, Window3d
from trnconv.pytorch.lazy.video import Run, Video

Tensor = torch.Tensor
ROWS, COLUMNS = 1, 2
NAMES = {ROWS: "rows", COLUMNS: "columns"}


@dataclass(frozen=True)
class _Sized:
    """In place of a tensor, where only sizes are asked for."""

    shape: torch.Size


@dataclass(frozen=True)
class _Fetched:
    """Rows that lie around a band, and what they are a copy of."""

    before: Tensor | None
    after: Tensor | None
    wanted: list[Interval]  # by all ranks: they must agree whether to ask again
    frames: Interval
    written: int


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


class Spread:
    """One model on one rank: what its tensors are bands of, and how to get at the rest."""

    def __init__(self, cut: int, links: Links, book: Notebook) -> None:
        self.cut = cut
        self.links = links
        self.book = book
        self.levels = Levels(links.rank)
        self.gathering: set[str] = set()  # modules that mix all positions
        self.shares_attention = True  # each rank computes some of the queries
        self.attended: Counter[Attended] = Counter()  # by this rank
        self.eager = False  # with gradients: `EagerBands` sees every function of torch
        self._whole = 0
        self._halos: WeakIdKeyDictionary = WeakIdKeyDictionary()

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

    def whole(self, operands: Operands, window: Window3d) -> Operands:
        """The operands of all ranks together: sizes only."""
        del window
        if self.axis is None:
            return operands
        bands = self._bands(operands)
        return replace(operands, pieces=self._sized(operands, bands.total))

    def every(self, operands: Operands, window: Window3d) -> list[Operands]:
        """The operands of each rank, with the rows its outputs read: sizes only."""
        if self.axis is None:
            return [operands]
        bands, sliding = self._bands(operands), self._sliding(operands, window)
        found = [reading(bands, sliding, rank) for rank in range(bands.ranks)]
        return [
            self._read(
                operands, self._sized(operands, len(each.order) or each.stop - each.start), each
            )
            for each in found
        ]

    def extended(self, operands: Operands, window: Window3d) -> Operands:
        """The operands of this rank, with the rows its outputs read."""
        if self.axis is None:
            return operands
        bands, sliding = self._bands(operands), self._sliding(operands, window)
        self.levels.add(out_bands(bands, sliding))
        every = [reading(bands, sliding, rank) for rank in range(bands.ranks)]
        own = every[self.links.rank]
        if all(each.rows == bands.of(rank) and not each.order for rank, each in enumerate(every)):
            return self._read(operands, operands.pieces, own)
        wanted = [each.rows for each in every]
        pieces = self._fetched(operands.pieces, bands, wanted, own.order)
        return self._read(operands, pieces, own)

    def require_movable(self, video: Video) -> None:
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

    def _bands(self, operands: Operands) -> Bands:
        return self.levels.of(operands.pieces[0].base.shape[2 + self.cut])

    def _sliding(self, operands: Operands, window: Window3d) -> Sliding:
        axis, (before, after) = self.cut, operands.pads[self.cut]
        return Sliding(
            kernel=window.kernel[axis],
            stride=window.stride[axis],
            dilation=window.dilation[axis],
            before=before,
            after=after,
            upsample=operands.upsample[axis],
            mode=operands.modes[axis],
        )

    def _sized(self, operands: Operands, rows: int) -> tuple[Run, ...]:
        return tuple(
            replace(run, base=_Sized(_with_rows(run.base.shape, 2 + self.cut, rows)))
            for run in operands.pieces
        )

    def _read(self, operands: Operands, pieces: tuple[Run, ...], own: Reading) -> Operands:
        pads, modes = list(operands.pads), list(operands.modes)
        pads[self.cut] = (own.before, own.after)
        if own.before <= 0 and own.after <= 0:
            modes[self.cut] = ZEROS
        return replace(
            operands,
            pieces=pieces,
            pads=(pads[0], pads[1], pads[2]),
            modes=(modes[0], modes[1], modes[2]),
            skip=with_axis(operands.skip, self.cut, own.skip),
        )

    def _fetched(
        self,
        pieces: tuple[Run, ...],
        bands: Bands,
        wanted: list[Interval],
        order: tuple[int, ...],
    ) -> tuple[Run, ...]:
        """The pieces with the rows around them; each tensor is asked for once."""
        frames: dict[int, Interval] = {}
        for run in pieces:
            first, last = frames.get(id(run.base), (run.start, run.stop))
            frames[id(run.base)] = (min(first, run.start), max(last, run.stop))
        made: dict[int, Tensor] = {}
        for run in pieces:
            if id(run.base) not in made:
                fetched = self._around(base_tensor(run), frames[id(run.base)], bands, wanted)
                made[id(run.base)] = self._ordered(fetched, order)
        return tuple(
            replace(
                run,
                base=made[id(run.base)],
                start=run.start - frames[id(run.base)][0],
                stop=run.stop - frames[id(run.base)][0],
                written=UNKNOWN,
            )
            for run in pieces
        )

    def _ordered(self, rows: Tensor, order: tuple[int, ...]) -> Tensor:
        if not order:
            return rows
        return rows.index_select(2 + self.cut, torch.tensor(order, device=rows.device))

    def _around(
        self, base: Tensor, frames: Interval, bands: Bands, wanted: list[Interval]
    ) -> Tensor:
        """The rows that are wanted, of some frames of a band. What was fetched is remembered.

        A cache is read again with the next frames, and is the same tensor then.
        """
        rank, dim = self.links.rank, 2 + self.cut
        band, rows = bands.of(rank), wanted[rank]
        used = base.narrow(2, frames[0], frames[1] - frames[0])
        known = self._halos.get(base)  # type: ignore[no-untyped-call]
        if (
            known is None
            or (known.wanted, known.frames) != (wanted, frames)
            or _changed(known, base)
        ):
            self.links.module = self.book.module
            whole = self.links.fetch(used, dim, bands, wanted)
            known = _Fetched(
                _copy(whole, dim, 0, band[0] - rows[0]),
                _copy(whole, dim, band[1] - rows[0], rows[1] - band[1]),
                wanted,
                frames,
                written(base),
            )
            if all(_meet(bands.of(other), wanted[other]) for other in range(bands.ranks)):
                self._halos[base] = known
        else:
            start, stop = max(band[0], rows[0]), min(band[1], rows[1])
            kept = used.narrow(dim, start - band[0], stop - start)
            parts = [part for part in (known.before, kept, known.after) if part is not None]
            whole = torch.cat(parts, dim)
        self.book.moved("halo", used.nbytes + whole.nbytes)
        return whole


def _changed(known: _Fetched, base: Tensor) -> bool:
    return known.written == UNKNOWN or known.written != written(base)


def _meet(one: Interval, other: Interval) -> bool:
    start, stop = meeting(one, other)
    return start < stop


def _copy(whole: Tensor, dim: int, start: int, count: int) -> Tensor | None:
    return whole.narrow(dim, start, count).clone() if count > 0 else None


def _with_rows(shape: Any, dim: int, rows: int) -> torch.Size:
    sizes = list(shape)
    sizes[dim] = rows
    return torch.Size(sizes)
