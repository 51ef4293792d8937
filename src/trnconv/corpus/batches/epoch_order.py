"""The order of an epoch: a sequence of batches that everybody who has the same seed works out.

Segments are shuffled, files in a segment, and latents in a file; a buffer mixes what is close to
each other. Batches are filled across files. Only rows are held: a segment's, the buffer's, and
those of batches that are not full yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from trnconv.errors import TrnconvError

Row = dict[str, Any]


class RowSource(Protocol):
    """A manifest in parts."""

    manifest: Mapping[str, Any]

    def segment_rows(self, segment: str) -> list[Row]:
        """What the manifest has of a part."""


@dataclass(frozen=True)
class EpochOrder:
    """How latents are put in order; the seed None leaves them as the files have them."""

    seed: int | None
    batch: int | None  # latents of one bucket; None: latents, not batches
    buffer_size: int  # of so many latents one is drawn at a time; 0: in the order of files

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise TrnconvError(f"batches of {self.batch}: at least 1.")
        if self.seed is not None and self.seed < 0:
            raise TrnconvError(f"seed {self.seed}: 0 or more, or None for the order of files.")
        if self.buffer_size < 0:
            raise TrnconvError(f"a shuffle buffer of {self.buffer_size} latents: 0 or more.")
        if self.seed is None and self.buffer_size:
            raise TrnconvError(
                f"a shuffle buffer of {self.buffer_size} latents without a seed: name a seed to"
                " shuffle, or leave the buffer out."
            )

    def __str__(self) -> str:
        return f"seed={self.seed} batch={self.batch} buffer_size={self.buffer_size}"

    def count(self, buckets: Iterable[int], *, drop_last: bool) -> int:
        """How many batches there are of buckets of so many latents."""
        size = self.batch or 1
        return sum(latents // size if drop_last else -(-latents // size) for latents in buckets)

    def batches(self, latents: RowSource, epoch: int) -> Iterator[list[Row]]:
        """The rows of every batch: full ones first, then what is left of each bucket."""
        waiting: dict[str, list[Row]] = defaultdict(list)
        for row in self._buffered(self._rows(latents, epoch), epoch):
            rows = waiting[row["bucket"]]
            rows.append(row)
            if len(rows) == (self.batch or 1):
                yield waiting.pop(row["bucket"])
        for _, rows in sorted(waiting.items()):
            yield rows

    def _rows(self, latents: RowSource, epoch: int) -> Iterator[Row]:
        segments = latents.manifest["segments"]
        for segment in self._shuffled(segments, epoch, "segments"):
            rows = latents.segment_rows(segment)
            rows.sort(key=lambda row: (row["file"], row["key"]))
            files = [(file, list(rows)) for file, rows in groupby(rows, lambda row: row["file"])]
            for file, of_file in self._shuffled(files, epoch, segment):
                yield from self._shuffled(of_file, epoch, file)

    def _buffered(self, rows: Iterator[Row], epoch: int) -> Iterator[Row]:
        """Draw from a buffer that is filled up again, until nothing is left."""
        if not self.buffer_size:
            yield from rows
            return
        random, buffer = self._random(epoch, "buffer"), list[Row]()
        for row in rows:
            if len(buffer) < self.buffer_size:
                buffer.append(row)
                continue
            at = int(random.integers(self.buffer_size))
            yield buffer[at]
            buffer[at] = row
        for at in random.permutation(len(buffer)):
            yield buffer[at]

    def _shuffled(self, items: Sequence[Any], epoch: int, what: str) -> list[Any]:
        if self.seed is None:
            return list(items)
        return [items[at] for at in self._random(epoch, what).permutation(len(items))]

    def _random(self, epoch: int, what: str) -> np.random.Generator:
        """The same numbers for whoever asks for the same epoch."""
        return np.random.default_rng([self.seed or 0, epoch, *what.encode()])
