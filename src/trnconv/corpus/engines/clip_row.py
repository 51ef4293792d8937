"""A decoded clip as a row of Ray Data: a table of one row, its pixels copied once each way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnconv.corpus.videos.decoder import DecodedVideo
from trnconv.corpus.videos.video_reader import RGB, BadVideoError, Pixels, Window
from trnconv.records import from_json, to_json


@dataclass(frozen=True, eq=False)
class ClipRow:
    """One clip of a shard; or a refusal, which is about none."""

    shard: int = -1
    id: str = ""
    video: DecodedVideo | BadVideoError | None = None
    refusal: str = ""

    def to_table(self) -> Any:
        """As Arrow has it. The type is the same for every clip, and may have more than 2 GiB."""
        import pyarrow as pa

        about, pixels = _about(self.video)
        ends = pa.py_buffer(np.array([0, pixels.size], np.int64))
        kind = pa.large_binary()
        held = pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(pixels)])
        names = ("shard", "id", "refusal", "about", "pixels")
        columns = [[self.shard], [self.id], [self.refusal], [json.dumps(about)], held]
        return pa.table(dict(zip(names, columns, strict=True)))

    @classmethod
    def from_table(cls, table: Any) -> ClipRow:
        """The clip of such a table, with pixels of its own: torch wants to write to them."""
        (shard,), (name,) = table["shard"].to_pylist(), table["id"].to_pylist()
        (refusal,), (about,) = table["refusal"].to_pylist(), table["about"].to_pylist()
        pixels = np.frombuffer(table["pixels"][0].as_buffer(), np.uint8).copy()
        return cls(shard, name, _video(json.loads(about), pixels), refusal)


def _about(video: DecodedVideo | BadVideoError | None) -> tuple[dict[str, Any], Pixels]:
    """All but the pixels, and the pixels of all windows one after the other."""
    if not isinstance(video, DecodedVideo):
        return {"bad": str(video or "")}, np.empty(0, np.uint8)
    about = {
        "windows": [to_json(window) for window, _ in video.windows],
        "fps": video.fps,
        "source_bytes": video.source_bytes,
        "source_sha256": video.source_sha256,
    }
    return about, np.concatenate([pixels.reshape(-1) for _, pixels in video.windows])


def _video(about: dict[str, Any], pixels: Pixels) -> DecodedVideo | BadVideoError:
    if "bad" in about:
        return BadVideoError(about["bad"])
    windows, start = [], 0
    for window in (from_json(Window, said) for said in about["windows"]):
        shape = (window.frames, window.picture.height, window.picture.width, RGB)
        end = start + window.frames * window.picture.pixels * RGB
        windows.append((window, pixels[start:end].reshape(shape)))
        start = end
    return DecodedVideo(tuple(windows), about["fps"], about["source_bytes"], about["source_sha256"])
