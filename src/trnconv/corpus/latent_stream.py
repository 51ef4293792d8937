"""Latents one after the other, for one of many processes, from wherever the last run stopped.

A file belongs to one process of one rank, so nobody reads what another uses. Order is of segments,
of files in a segment, and of latents in a file, each shuffled anew in every epoch. Memory holds one
segment's rows and one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from trnconv.corpus.latent_file import read_all
from trnconv.corpus.store import Folder
from trnconv.errors import TrnconvError

_Base: Any = object
with suppress(ImportError):  # the module can be read without torch, not used
    from torch.utils.data import IterableDataset, default_collate, get_worker_info

    _Base = IterableDataset


class LatentSource(Protocol):
    """A manifest, and where its latents lie."""

    folder: Folder
    manifest: Mapping[str, Any]

    def item(self, row: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        """A latent, with what is known of it."""

    def segment_rows(self, segment: str) -> list[dict[str, Any]]:
        """What the manifest has of a part."""


class LatentStream(_Base):  # type: ignore[misc]
    """An IterableDataset with the state that torchdata's StatefulDataLoader saves and loads.

    `batch` makes batches of so many latents of one bucket; the last of a file may have fewer. Ranks
    may get different numbers of latents: end all of them after the same number of steps.
    """

    def __init__(
        self, latents: LatentSource, *, rank: int, world: int, seed: int | None, batch: int | None
    ) -> None:
        if not 0 <= rank < world:
            raise TrnconvError(f"rank {rank} of {world}: a rank is from 0 to {world - 1}.")
        if batch is not None and batch < 1:
            raise TrnconvError(f"batches of {batch}: at least 1.")
        self._latents, self._rank, self._world = latents, rank, world
        self._seed, self._batch = seed, batch
        self._epoch = self._given = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffle as this epoch does, from its start."""
        self._epoch, self._given = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Where this process is: the epoch, and how much of it was given."""
        return {"epoch": self._epoch, "given": self._given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there. What was given is not read again."""
        self._epoch, self._given = int(state["epoch"]), int(state["given"])

    def __iter__(self) -> Iterator[Any]:
        skip, count = self._given, 0
        for file, rows in self._files():
            pieces = self._pieces(rows)
            if count + len(pieces) <= skip:
                count += len(pieces)
                continue
            tensors = read_all(self._latents.folder, file)
            for piece in pieces:
                count += 1
                if count > skip:
                    self._given = count
                    items = [self._latents.item(row, tensors) for row in piece]
                    yield items[0] if self._batch is None else default_collate(items)
        self.set_epoch(self._epoch + 1)

    def _files(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Files of this process with their rows, in the epoch's order."""
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        mine, processes = self._rank * workers + worker, self._world * workers
        number = 0
        segments = self._latents.manifest["segments"]
        for segment in self._shuffled(segments, "segments"):
            rows = self._latents.segment_rows(segment)
            rows.sort(key=lambda row: (row["file"], row["key"]))
            files = [(file, list(rows)) for file, rows in groupby(rows, lambda row: row["file"])]
            for file, of_file in self._shuffled(files, segment):
                if number % processes == mine:
                    yield file, self._shuffled(of_file, file)
                number += 1

    def _pieces(self, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        size = self._batch or 1
        return [rows[at : at + size] for at in range(0, len(rows), size)]

    def _shuffled(self, items: list[Any], what: str) -> list[Any]:
        """The same order for whoever asks for the same epoch."""
        if self._seed is None:
            return list(items)
        words = [self._seed, self._epoch, *what.encode()]
        order = np.random.default_rng(words).permutation(len(items))
        return [items[at] for at in order]
