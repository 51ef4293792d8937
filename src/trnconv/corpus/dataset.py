"""LatentDataset: what `trnconv encode` wrote, as a trainer reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trnconv.corpus.document import read_json
from trnconv.corpus.latent_file import read_tensors
from trnconv.corpus.manifest import FORMAT, MANIFEST, read_rows
from trnconv.corpus.store import Folder
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.corpus.latent_stream import LatentStream

COLUMNS = ("key", "file", "bucket", "fps", "start_s", "caption", "metadata")


class LatentDataset:
    """Latents by number, for samplers that choose; `stream` for those that read in order.

    An item is a dictionary: a tensor (channels, frames, height, width) by each of the manifest's
    `tensors`, and key, bucket, fps, start_s, caption and metadata (JSON) as the manifest has them,
    "" where it has none. With `bucket`, only latents of that one, which all have one shape.
    """

    def __init__(self, out: str, *, bucket: str | None = None) -> None:
        self.folder = Folder(out)
        self.bucket = bucket
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
        found: Mapping[str, int] = self.manifest["buckets"]
        return found

    def __len__(self) -> int:
        return self.buckets[self.bucket] if self.bucket else int(self.manifest["windows"])

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = self._rows[number]
        names = self.tensor_names(row)
        tensors = read_tensors(self.folder, row["file"], list(names.values()))
        return self.item(row, tensors)

    def stream(
        self, *, rank: int = 0, world: int = 1, seed: int | None = 0, batch: int | None = None
    ) -> LatentStream:
        """Latents in files' order for one of `world` processes, as torch's IterableDataset."""
        from trnconv.corpus.latent_stream import LatentStream

        return LatentStream(self, rank=rank, world=world, seed=seed, batch=batch)

    def segment_rows(self, segment: str) -> list[dict[str, Any]]:
        """The rows of one file of the manifest that have latents, of the bucket asked for."""
        data = self.folder.read(segment)
        if data is None:
            raise TrnconvError(f"{self.folder.url}/{segment} is gone. Run the encoding again.")
        return [
            row
            for row in read_rows(data, COLUMNS)
            if row["file"] is not None and self.bucket in (None, row["bucket"])
        ]

    def tensor_names(self, row: Mapping[str, Any]) -> dict[str, str]:
        """What each of an item's tensors is called in its file."""
        names: Sequence[str] = self.manifest["tensors"]
        return {name: f"{row['key']}.{name}" for name in names}

    def item(self, row: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the manifest with its tensors."""
        said = {name: "" if row[name] is None else row[name] for name in COLUMNS if name != "file"}
        return {**{name: tensors[key] for name, key in self.tensor_names(row).items()}, **said}

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """All of them: random access needs to know where everything is."""
        return [row for name in self.manifest["segments"] for row in self.segment_rows(name)]


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
