"""BandGrid: who holds which rectangle of a video that is cut along one axis or two, in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod

from trnconv.parallel.bands import Bands, Interval, meeting

ROWS, COLUMNS = 1, 2  # of [T, H, W]
NAMES = {ROWS: "rows", COLUMNS: "columns"}
_KEPT = 4096  # exchanges of a process that differ
Region = tuple[Interval, ...]  # an interval along each axis that is cut


@dataclass(frozen=True)
class MeshCut:
    """Which axes of [T, H, W] are cut, and into how many bands each; the last varies fastest."""

    axes: tuple[int, ...]
    counts: tuple[int, ...]

    def place(self, rank: int) -> tuple[int, ...]:
        """Which band of each axis a rank has."""
        places = []
        for count in reversed(self.counts):
            rank, at = divmod(rank, count)
            places.append(at)
        return tuple(reversed(places))

    @property
    def names(self) -> str:
        """Of the axes, in words."""
        return " and ".join(NAMES[axis] for axis in self.axes)

    def dims(self, rank: int) -> tuple[int, ...]:
        """The axes as dimensions of a tensor with so many: [..., H, W] or [..., T, H, W]."""
        return tuple(rank + axis - 3 for axis in self.axes)


@dataclass(frozen=True)
class BandGrid:
    """Bands along each axis that is cut. A rank holds where its bands cross."""

    bands: tuple[Bands, ...]

    @property
    def ranks(self) -> int:
        """How many rectangles."""
        return prod(bands.ranks for bands in self.bands)

    def of(self, rank: int) -> Region:
        """What a rank holds."""
        place = MeshCut((), tuple(bands.ranks for bands in self.bands)).place(rank)
        return tuple(bands.of(at) for bands, at in zip(self.bands, place, strict=True))

    @property
    def whole(self) -> Region:
        """All of it."""
        return tuple((0, bands.total) for bands in self.bands)

    @property
    def largest(self) -> tuple[int, ...]:
        """The sizes that no rank's are beyond."""
        return tuple(max(bands.sizes()) for bands in self.bands)


def common(first: Region, second: Region) -> Region:
    """Where two regions meet."""
    return tuple(meeting(*both) for both in zip(first, second, strict=True))


def sizes_of(region: Region) -> tuple[int, ...]:
    """Along each axis."""
    return tuple(stop - start for start, stop in region)


def area(region: Region) -> int:
    """Positions inside."""
    return prod(sizes_of(region))


@lru_cache(_KEPT)
def edges(grid: BandGrid, wanted: tuple[Region, ...]) -> tuple[tuple[Region, ...], ...]:
    """What each rank holds and any other reads, in regions that do not overlap."""
    return tuple(_edges_of(grid, wanted, source) for source in range(grid.ranks))


def _edges_of(grid: BandGrid, wanted: Sequence[Region], source: int) -> tuple[Region, ...]:
    held = grid.of(source)
    met = [common(held, region) for rank, region in enumerate(wanted) if rank != source]
    read = list(dict.fromkeys(region for region in met if area(region)))
    bounds = [sorted({bound for region in read for bound in region[at]}) for at in range(len(held))]
    cells = product(*(pairwise(along) for along in bounds))
    return tuple(cell for cell in cells if any(common(cell, region) == cell for region in read))
