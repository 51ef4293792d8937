"""Levels: the bands of every resolution of a model, found by how many rows this rank has."""

from __future__ import annotations

from trnconv.errors import ShapeError
from trnconv.parallel.bands import Bands

_LARGEST_FACTOR = 64  # between two resolutions of a model; doublings and halvings only


class Levels:
    """All bands a video went through. One number of local rows never means two of them."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._known: list[Bands] = []

    @property
    def known(self) -> tuple[Bands, ...]:
        """In the order they came up."""
        return tuple(self._known)

    def begin(self, bands: Bands) -> None:
        """Forget all, and start with these."""
        self._known = [bands]

    def add(self, bands: Bands) -> None:
        """Know these too. Every rank comes to the same conclusion, whoever is in doubt."""
        if bands in self._known:
            return
        for other in self._known:
            alike = [r for r in range(bands.ranks) if bands.size(r) == other.size(r)]
            if alike:
                raise ShapeError(
                    f"bands of {bands.sizes()} rows and of {other.sizes()}, two resolutions of one"
                    f" video: rank {alike[0]} could not tell them apart. Choose bounds that are"
                    " multiples of what the model scales by: split(video, unit=...)."
                )
        self._known.append(bands)

    def of(self, rows: int) -> Bands:
        """The bands of a tensor of which this rank has so many rows."""
        for bands in self._known:
            if bands.size(self._rank) == rows:
                return bands
        candidates = {scaled for bands in self._known if (scaled := self._scaled(bands, rows))}
        if len(candidates) != 1:
            listed = ", ".join(str(bands.sizes()) for bands in self._known) or "none yet"
            raise ShapeError(
                f"a tensor with {rows} rows (or columns) on rank {self._rank}: the bands known are"
                f" {listed}, of one row for each rank, and it is none of them, doubled or halved."
                " Cut what goes in with split(...), and let the model see nothing else."
            )
        (bands,) = candidates
        self.add(bands)
        return bands

    def _scaled(self, bands: Bands, rows: int) -> Bands | None:
        band_rows, factor = bands.size(self._rank), 2
        while factor <= _LARGEST_FACTOR:
            if rows == band_rows * factor:
                return bands.times(factor)
            if rows * factor == band_rows:
                return bands.over(factor)
            factor *= 2
        return None
