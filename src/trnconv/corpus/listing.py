"""From what a user names to clips: files, folders, patterns, list files; local or in a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trnconv.corpus.clips import Clip, clip_of, clip_of_line, in_order
from trnconv.corpus.store import is_local, store_of
from trnconv.errors import TrnconvError

VIDEO_ENDINGS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".mpg", ".mpeg", ".ts")
LIST_ENDINGS = (".txt", ".tsv", ".list")
_PATTERN = "*?["


def list_clips(sources: Sequence[str]) -> tuple[Clip, ...]:
    """Every clip of the sources, once, in the order of ids.

    A source is a video, a folder or prefix (its videos, at any depth), a pattern with * or ?, or a
    list file: on every line the address of a video, or an id, a tab and the address.
    """
    clips = in_order(clip for source in sources for clip in _clips_of(source))
    if not clips:
        asked = ", ".join(sources)
        raise TrnconvError(
            f"no video in {asked}: looked for {', '.join(VIDEO_ENDINGS)}. Name files by a pattern"
            " such as 's3://bucket/clips/*.bin' if they end otherwise."
        )
    return clips


def _clips_of(source: str) -> Iterator[Clip]:
    if source.lower().endswith(LIST_ENDINGS):
        yield from _listed(source)
    else:
        yield from (clip_of(url) for url in _urls(source))


def _listed(source: str) -> Iterator[Clip]:
    fs, path = store_of(source)
    if not fs.isfile(path):
        raise _missing(source)
    for line in fs.cat_file(path).decode().splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            yield clip_of_line(text)


def _urls(source: str) -> Iterator[str]:
    fs, path = store_of(source)
    if any(mark in source for mark in _PATTERN):
        found = fs.glob(path)
    elif fs.isfile(path):
        found = [path]
    elif fs.isdir(path):
        found = [file for file in fs.find(path) if file.lower().endswith(VIDEO_ENDINGS)]
    else:
        raise _missing(source)
    for file in found:
        yield _address(fs, file)


def _address(fs: Any, path: str) -> str:
    """Local files by their absolute path, as users write them; others with their protocol."""
    return path if is_local(fs) else str(fs.unstrip_protocol(path))


def _missing(source: str) -> TrnconvError:
    return TrnconvError(
        f"{source}: no such file, folder or prefix. Name one that exists, or a pattern in quotes."
    )
