"""LatentDataset: what `trnconv encode` wrote, as a trainer reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trnconv.corpus.latents.latent_file import check_latents, read_tensors
from trnconv.corpus.shards.manifest import FORMAT, MANIFEST, read_rows
from trnconv.corpus.storage.document import read_json
from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.corpus.batches.latent_stream import LatentStream

COLUMNS = ("key", "file", "bucket", "fps", "start_s", "caption", "metadata")


class LatentDataset:
    """Latents by number, for samplers that choose; `stream` for those that read in order.

    An item is a dictionary: a tensor (channels, frames, height, width) by each of the manifest's
    `tensors`, and key, bucket, fps, start_s, caption and metadata (JSON) as the manifest has them,
    "" where it has none. With `bucket`, only latents of that one, which all have one shape. With
    `verify`, what is read must have the SHA-256 that was stored when it was encoded.
    """

    def __init__(self, out: str, *, bucket: str | None = None, verify: bool = False) -> None:
        self.folder = Folder(out)
        self.bucket = bucket
        self.verify = verify
        said = read_json(self.folder.read(MANIFEST))
        if not isinstance(said, dict) or said.get("format") != FORMAT or not _is_sound(said):
            raise TrnconvError(
                f"{out}: no {MANIFEST} of this version is there. It is written when all clips are"
                " encoded: run `trnconv encode` to its end."
            )
        self.manifest: Mapping[str, Any] = said
        if bucket is not None and bucket not in self.buckets:
            raise TrnconvError(f"bucket {bucket!r} of {out}: there are {', '.join(self.buckets)}.")

    @property
    def buckets(self) -> Mapping[str, int]:
        """How many latents each bucket has, by height x width x frames."""
        counts: Mapping[str, int] = self.manifest["buckets"]
        return counts

    def __len__(self) -> int:
        return self.buckets[self.bucket] if self.bucket else int(self.manifest["windows"])

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.items([self._rows[number]])[0]

    def stream(
        self,
        *,
        rank: int = 0,
        world: int | None = None,
        seed: int | None = 0,
        batch: int | None = None,
        buffer_size: int = 0,
        drop_last: bool = False,
    ) -> LatentStream:
        """Latents, or batches of one bucket, for one of `world` ranks: torch's IterableDataset.

        The order is that of files with the seed None; otherwise files and latents in a file are
        shuffled in every epoch, and mixed by a buffer of `buffer_size` latents.
        """
        from trnconv.corpus.batches.epoch_order import EpochOrder
        from trnconv.corpus.batches.latent_stream import LatentStream

        order = EpochOrder(seed, batch, buffer_size)
        world = _world() if world is None else world
        return LatentStream(self, order, rank=rank, world=world, drop_last=drop_last)

    def segment_rows(self, segment: str) -> list[dict[str, Any]]:
        """The rows of one file of the manifest that have latents, of the bucket asked for."""
        data = self.folder.read(segment)
        if data is None:
            raise TrnconvError(f"{self.folder.url}/{segment} is gone. Run the encoding again.")
        return [
            row
            for row in read_rows(data, [*COLUMNS, "sha256"] if self.verify else COLUMNS)
            if row["file"] is not None and self.bucket in (None, row["bucket"])
        ]

    def items(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows of the manifest with their tensors, of which each file is opened once."""
        names = defaultdict[str, list[str]](list)
        for row in rows:
            names[row["file"]] += self._tensor_names(row).values()
        tensors = {file: read_tensors(self.folder, file, names[file]) for file in names}
        return [self._item(row, tensors[row["file"]]) for row in rows]

    def _item(self, row: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        latents = {name: tensors[stored] for name, stored in self._tensor_names(row).items()}
        if self.verify:
            check_latents(self.folder, row, latents)
        said = {name: "" if row[name] is None else row[name] for name in COLUMNS if name != "file"}
        return {**latents, **said}

    def _tensor_names(self, row: Mapping[str, Any]) -> dict[str, str]:
        """What each of an item's tensors is called in its file."""
        names: Sequence[str] = self.manifest["tensors"]
        return {name: f"{row['key']}.{name}" for name in names}

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """All of them: random access needs to know where everything is."""
        return [row for name in self.manifest["segments"] for row in self.segment_rows(name)]


def _world() -> int:
    """One rank; but ranks that train together have to say so, or all would read the same."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        ranks = distributed.get_world_size()
        if ranks > 1:
            raise TrnconvError(
                f"a stream in a group of {ranks} ranks: name rank= and world=, or world=1 if all"
                " of them are to read the same."
            )
    return 1


def _is_sound(said: Mapping[str, Any]) -> bool:
    """Whether what is read of a manifest has the types that it is written with."""
    names = [said.get("segments"), said.get("tensors")]
    buckets = said.get("buckets")
    return (
        all(isinstance(named, list) and all(isinstance(n, str) for n in named) for named in names)
        and isinstance(buckets, dict)
        and all(isinstance(count, int) for count in buckets.values())
        and isinstance(said.get("windows"), int)
    )
