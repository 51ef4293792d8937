"""Halos: the rows around a band, asked for once for each frame, and kept while it can be read."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from trnconv.parallel.bands import Bands, Interval
from trnconv.parallel.links import Exchange, Links, Parts, joined_rows
from trnconv.pytorch.lazy.stored_frames import State, StoredFrames

Tensor = torch.Tensor


@dataclass(frozen=True)
class _Halo:
    """What was asked for, and which frames of a tensor it belongs to."""

    exchange: Exchange
    at: int  # where those frames begin in what was sent
    frames: Interval
    wanted: list[Interval]  # by all ranks: they must agree whether to ask again
    state: State  # of the frames, when they were sent

    def has(self, frames: Interval, wanted: list[Interval]) -> bool:
        inside = self.frames[0] <= frames[0] and frames[1] <= self.frames[1]
        return inside and self.wanted == wanted

    def is_of(self, base: StoredFrames) -> bool:
        return base.is_unchanged(self.state)

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
    """Frames that were copied from others."""

    copy: weakref.ref[torch.UntypedStorage]
    place: _Place  # in that storage
    frames: Interval  # of the others
    state: State  # of the others, when they were copied
    copy_state: State


_Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # where frames lie in their storage


def _place_of(base: StoredFrames) -> tuple[torch.UntypedStorage, _Place]:
    return torch.Tensor.untyped_storage(base.alias), (base.origin, base.strides, base.sizes)


class Halos:
    """All that one rank has asked for, as long as somebody holds what it lies around.

    A cache is read again with the next frames: it is the same memory then, or a copy of its last
    frames, and its rows are known.
    """

    def __init__(self, cut: int, links: Links) -> None:
        self._dim = 2 + cut
        self._links = links
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._copies: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def around(
        self, base: StoredFrames, frames: Interval, bands: Bands, wanted: list[Interval]
    ) -> Surrounded:
        """Some frames of a band with the rows that are wanted. What is not known is asked for."""
        own = base.tensor(*frames)
        storage, place = _place_of(base)
        halo: _Halo | None = self._of(self._known, storage).get(place)
        messages: tuple[int, ...] = ()
        if halo is None or not halo.has(frames, wanted) or not halo.is_of(base):
            exchange = self._links.start(own, self._dim, bands, wanted)
            messages = (exchange.received_bytes,) * exchange.messages
            halo = _Halo(exchange, 0, frames, wanted, base.state())
            self._remember(base, halo)
        first_row = bands.of(self._links.rank)[0]
        return Surrounded(own, first_row, self._dim, frames, halo, messages)

    def copied(self, base: StoredFrames, frames: Interval, copy: StoredFrames) -> None:
        """Some frames were copied: what lies around them lies around the copy."""
        storage, place = _place_of(base)
        copy_storage, copy_place = _place_of(copy)
        made = _CopyOf(weakref.ref(copy_storage), copy_place, frames, base.state(), copy.state())
        self._of(self._copies, storage).setdefault(place, []).append(made)

    def _of(self, known: WeakIdKeyDictionary, storage: torch.UntypedStorage) -> dict[_Place, Any]:
        found: dict[_Place, Any] | None = known.get(storage)  # type: ignore[no-untyped-call]
        if found is None:
            found = known[storage] = {}
        return found

    def _remember(self, base: StoredFrames, halo: _Halo) -> None:
        storage, place = _place_of(base)
        self._of(self._known, storage)[place] = halo
        for copied in self._of(self._copies, storage).get(place, []):
            copy = copied.copy()
            known = halo.has(copied.frames, halo.wanted) and base.is_unchanged(copied.state)
            if copy is not None and known:
                start, stop = copied.frames
                at = halo.at + start - halo.frames[0]
                self._of(self._known, copy)[copied.place] = _Halo(
                    halo.exchange, at, (0, stop - start), halo.wanted, copied.copy_state
                )
