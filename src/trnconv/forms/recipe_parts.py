"""Parts that recipes of several forms have."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject


@dataclass(frozen=True)
class Place(NKIObject):
    """Where a block is: what to add to the offsets of its loads and stores."""

    x: tuple[int, ...]  # for each tensor the input lies in
    y: int


@dataclass(frozen=True)
class Ring(NKIObject):
    """SBUF for windows of one level: `slots` of `elems` elements a partition, from `address` on."""

    slots: int
    elems: int
    address: int
    pitch: int  # bytes from slot to slot
