"""Halos: the rows around a band, asked for once for each frame, and kept while it can be read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary

from trnconv.parallel.bands import Bands, Interval
from trnconv.parallel.links import Exchange, Links, Parts, joined_rows
from trnconv.pytorch.lazy.memory import UNKNOWN, written

Tensor = torch.Tensor


@dataclass(frozen=True)
class _Halo:
    """What was asked for, and which frames of a tensor it belongs to."""

    exchange: Exchange
    at: int  # where those frames begin in what was sent
    frames: Interval
    wanted: list[Interval]  # by all ranks: they must agree whether to ask again
    written: int  # how often the tensor had been changed in place

    def has(self, frames: Interval, wanted: list[Interval]) -> bool:
        inside = self.frames[0] <= frames[0] and frames[1] <= self.frames[1]
        return inside and self.wanted == wanted

    def is_of(self, tensor: Tensor) -> bool:
        return self.written != UNKNOWN and self.written == written(tensor)

    def parts(self, frames: Interval) -> Parts:
        first, count = self.at + frames[0] - self.frames[0], frames[1] - frames[0]
        received = self.exchange.rows().items()
        return {row: part.narrow(2, first, count) for row, part in received}


@dataclass(frozen=True)
class Surrounded:
    """Some frames of a band, and the rows around it: there, or on their way."""

    own: Tensor
    first_row: int
    dim: int
    frames: Interval
    halo: _Halo
    messages: tuple[int, ...]  # bytes received by each that was sent for it; none if it was known

    def wait(self) -> None:
        """Until all has come, and what others asked for has gone."""
        self.halo.exchange.rows()

    def copied_bytes(self, rows: Interval) -> int:
        """What `rows` reads and writes: nothing, where the band has them all."""
        first, count = self.first_row, self.own.shape[self.dim]
        if first <= rows[0] and rows[1] <= first + count:
            return 0
        return self.own.nbytes + self.own.nbytes // count * (rows[1] - rows[0])

    def rows(self, rows: Interval) -> Tensor:
        """The rows of an interval; waits for those of others."""
        parts = {**self.halo.parts(self.frames), self.first_row: self.own}
        return joined_rows(parts, self.dim, rows)


@dataclass(frozen=True)
class _CopyOf:
    """A tensor that has some frames of another."""

    copy: TensorWeakRef
    frames: Interval  # of the other
    written: int  # how often the other had been changed in place
    copy_written: int


class Halos:
    """All that one rank has asked for, as long as somebody holds what it lies around.

    A cache is read again with the next frames: it is the same tensor then, or a copy of its last
    frames, and its rows are known.
    """

    def __init__(self, cut: int, links: Links) -> None:
        self._dim = 2 + cut
        self._links = links
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._copies: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def around(
        self, base: Tensor, frames: Interval, bands: Bands, wanted: list[Interval]
    ) -> Surrounded:
        """Some frames of a band with the rows that are wanted. What is not known is asked for."""
        own = base.narrow(2, frames[0], frames[1] - frames[0])
        halo: _Halo | None = self._known.get(base)  # type: ignore[no-untyped-call]
        messages: tuple[int, ...] = ()
        if halo is None or not halo.has(frames, wanted) or not halo.is_of(base):
            exchange = self._links.start(own, self._dim, bands, wanted)
            messages = (exchange.received_bytes,) * exchange.messages
            halo = _Halo(exchange, 0, frames, wanted, written(base))
            self._remember(base, halo)
        first_row = bands.of(self._links.rank)[0]
        return Surrounded(own, first_row, self._dim, frames, halo, messages)

    def copied(self, base: Tensor, frames: Interval, copy: Tensor) -> None:
        """Some frames of a tensor were copied: what lies around them lies around the copy."""
        listed = self._copies.get(base) or []  # type: ignore[no-untyped-call]
        made = _CopyOf(TensorWeakRef(copy), frames, written(base), written(copy))
        self._copies[base] = [*listed, made]

    def _remember(self, base: Tensor, halo: _Halo) -> None:
        self._known[base] = halo
        for each in self._copies.get(base) or []:  # type: ignore[no-untyped-call]
            copy = each.copy()
            known = halo.has(each.frames, halo.wanted) and each.written == halo.written != UNKNOWN
            if copy is not None and known:
                start, stop = each.frames
                at = halo.at + start - halo.frames[0]
                self._known[copy] = _Halo(
                    halo.exchange, at, (0, stop - start), halo.wanted, each.copy_written
                )
