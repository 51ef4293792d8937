"""Halos: the rows around a band, asked for once for each frame, and kept while it can be read.

A rank holds a band of rows of every frame, of columns, or where two such bands cross: what is said
of rows holds for each. A convolution of the band reads some rows of the neighbours' bands, too: its
halo, corners included. A streaming
model reads the last frames of a chunk again with the next chunk, from a cache. Then their halo is
known, and no message is sent. So a halo is kept by where its frames lie in memory, and used again
if that memory has not changed since.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from trnconv.parallel.bands import Interval
from trnconv.parallel.comm import Comm, Exchange, Parts, joined_region
from trnconv.parallel.grid import BandGrid, MeshCut, Region, area, common
from trnconv.pytorch.lazy.frames.stored_frames import State, StoredFrames

Tensor = torch.Tensor
_Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # origin, strides and sizes in a storage


@dataclass(frozen=True)
class _Halo:
    """What was asked for, and which frames of a tensor it belongs to."""

    exchange: Exchange
    at: int  # where those frames begin in what was sent
    frames: Interval
    wanted: tuple[Region, ...]  # by every rank: all must agree whether to ask again
    state: State  # of the frames, when they were sent

    def has(self, frames: Interval, wanted: tuple[Region, ...]) -> bool:
        """Whether these frames are among its own, and the same rows were wanted by every rank."""
        inside = self.frames[0] <= frames[0] and frames[1] <= self.frames[1]
        return inside and self.wanted == wanted

    def is_of(self, base: StoredFrames) -> bool:
        """Whether the frames are still those that were sent."""
        return base.is_unchanged(self.state)

    def parts(self, frames: Interval) -> Parts:
        """The rows of others for some of its frames; waits for them."""
        first, count = self.at + frames[0] - self.frames[0], frames[1] - frames[0]
        received = self.exchange.rows().items()
        return {corner: part.narrow(2, first, count) for corner, part in received}


@dataclass(frozen=True)
class Surrounded:
    """Some frames of a band, and the rows around it: there, or on their way."""

    own: Tensor
    held: Region  # by this rank
    dims: tuple[int, ...]  # of a tensor, that are cut
    frames: Interval
    halo: _Halo
    messages: tuple[int, ...]  # bytes received, for each exchange; empty if the rows were known

    def wait(self) -> None:
        """Until all has come, and what others asked for has gone."""
        self.halo.exchange.rows()

    def copied_bytes(self, region: Region) -> int:
        """What `rows` reads and writes: nothing, where the band has them all."""
        if common(self.held, region) == region:
            return 0
        return self.own.nbytes + self.own.nbytes // area(self.held) * area(region)

    def rows(self, region: Region) -> Tensor:
        """What lies in a region; waits for what is others'."""
        corner = tuple(start for start, _ in self.held)
        parts = {**self.halo.parts(self.frames), corner: self.own}
        return joined_region(parts, self.dims, region)


@dataclass(frozen=True)
class _CopyOf:
    """Frames that were copied from others, for a cache."""

    copy: weakref.ref[torch.UntypedStorage]
    place: _Place  # in that storage
    frames: Interval  # of the others
    state: State  # of the others, when they were copied
    copy_state: State  # of the copy, then


def _place_of(base: StoredFrames) -> tuple[torch.UntypedStorage, _Place]:
    return torch.Tensor.untyped_storage(base.alias), (base.origin, base.strides, base.sizes)


class Halos:
    """All that one rank has asked for, as long as somebody holds what it lies around.

    A cache is read again with the next frames: it is the same memory then, or a copy of its last
    frames, and its rows are known. Models copy before they convolve: a copy of frames whose halo
    was asked for before is not looked up, and asked for again.
    """

    def __init__(self, cut: MeshCut, comm: Comm) -> None:
        self._dims = cut.dims(5)  # of [N, C, T, H, W]
        self._comm = comm
        # Both by storage, so that they end with it, then by place in the storage:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()  # the halo of what lies there
        self._copies: WeakIdKeyDictionary = WeakIdKeyDictionary()  # the copies made of it

    def around(
        self, base: StoredFrames, frames: Interval, grid: BandGrid, wanted: tuple[Region, ...]
    ) -> Surrounded:
        """Some frames of a band with the rows that are wanted. What is not known is asked for.

        `wanted` has the rows of every rank. Whether a message is sent follows from that, from the
        frames and from what the model did, which are alike on all ranks: so all send, or none.
        """
        band = base.tensor(*frames)
        storage, place = _place_of(base)
        halo: _Halo | None = self._by_place(self._known, storage).get(place)
        messages: tuple[int, ...] = ()
        if halo is None or not halo.has(frames, wanted) or not halo.is_of(base):
            exchange = self._comm.start(band, self._dims, grid, wanted)
            messages = (exchange.received_bytes,) * exchange.messages
            halo = _Halo(exchange, 0, frames, wanted, base.state())
            self._remember(base, halo)
        held = grid.of(self._comm.rank)
        return Surrounded(band, held, self._dims, frames, halo, messages)

    def copied(self, base: StoredFrames, frames: Interval, copy: StoredFrames) -> None:
        """Some frames were copied: what lies around them lies around the copy.

        It is noted here, and looked at when the halo of the frames is asked for (`_remember`).
        """
        storage, place = _place_of(base)
        copy_storage, copy_place = _place_of(copy)
        made = _CopyOf(weakref.ref(copy_storage), copy_place, frames, base.state(), copy.state())
        self._by_place(self._copies, storage).setdefault(place, []).append(made)

    def _by_place(
        self, table: WeakIdKeyDictionary, storage: torch.UntypedStorage
    ) -> dict[_Place, Any]:
        """What a table has of a storage; an empty entry, if it has nothing."""
        entry: dict[_Place, Any] | None = table.get(storage)  # type: ignore[no-untyped-call]
        if entry is None:
            entry = table[storage] = {}
        return entry

    def _remember(self, base: StoredFrames, halo: _Halo) -> None:
        """Keep the halo of some frames, and of the copies of them that are alive and equal."""
        storage, place = _place_of(base)
        self._by_place(self._known, storage)[place] = halo
        for copied in self._by_place(self._copies, storage).get(place, []):
            copy = copied.copy()
            known = halo.has(copied.frames, halo.wanted) and base.is_unchanged(copied.state)
            if copy is not None and known:
                start, stop = copied.frames
                at = halo.at + start - halo.frames[0]
                self._by_place(self._known, copy)[copied.place] = _Halo(
                    halo.exchange, at, (0, stop - start), halo.wanted, copied.copy_state
                )
