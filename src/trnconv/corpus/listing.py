"""From what a user names to clips: files, folders, patterns, list files; local or in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trnconv.corpus.addresses import is_local, store_of
from trnconv.corpus.clips import Clip, clip_of, clip_of_line, clip_of_object, in_order
from trnconv.errors import TrnconvError

VIDEO_ENDINGS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".mpg", ".mpeg", ".ts")
LIST_ENDINGS = (".txt", ".tsv", ".list", ".jsonl")
LONGEST_LINE = 1 << 20  # bytes of a list's line
_PATTERN = "*?["


def list_clips(sources: Sequence[str]) -> tuple[Clip, ...]:
    """Every clip of the sources, once, in the order of ids: `find_clips`, held whole."""
    return in_order(find_clips(sources))


def find_clips(sources: Sequence[str]) -> Iterator[Clip]:
    """The clips of the sources as they are found, of which none is held.

    A source is a video, a folder or prefix (its videos, at any depth), a pattern with * or ?, or a
    list file: on every line the address of a video, or an id, a tab and the address; in a .jsonl
    list an object with `url`.
    """
    some = False
    for source in sources:
        for clip in _clips_of(source):
            some = True
            yield clip
    if not some:
        asked = ", ".join(sources)
        raise TrnconvError(
            f"no video in {asked}: looked for {', '.join(VIDEO_ENDINGS)}. Name files by a pattern"
            " such as 's3://bucket/clips/*.bin' if they end otherwise."
        )


def _clips_of(source: str) -> Iterator[Clip]:
    fs, path = store_of(source)
    if source.lower().endswith(LIST_ENDINGS):
        yield from _listed(fs, path, source)
    elif not fs.exists(path) and any(mark in source for mark in _PATTERN):
        yield from (_clip(fs, info) for info in fs.glob(path, detail=True).values())
    elif fs.isfile(path):
        yield _clip(fs, fs.info(path))
    elif not fs.isdir(path):
        raise _missing(source)
    elif is_local(fs):
        yield from _local_videos(path)
    else:
        yield from _stored_videos(fs, path)


def _listed(fs: Any, path: str, source: str) -> Iterator[Clip]:
    if not fs.isfile(path):
        raise _missing(source)
    of_line: Callable[[str], Clip] = (
        clip_of_object if source.lower().endswith(".jsonl") else clip_of_line
    )
    with fs.open(path, "rb") as file:
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise TrnconvError(f"{source}: a line of more than {LONGEST_LINE} bytes.")
            text = line.decode("utf-8", "surrogateescape").strip()
            if text and not text.startswith("#"):
                yield of_line(text)


def _local_videos(folder: str) -> Iterator[Clip]:
    """Videos below a folder, folder by folder; links to folders are not followed."""
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            elif entry.name.lower().endswith(VIDEO_ENDINGS):
                found = entry.stat(follow_symlinks=False)
                yield clip_of(entry.path, f"{found.st_size}-{found.st_mtime_ns}")
    for inner in below:
        yield from _local_videos(inner)


def _stored_videos(fs: Any, path: str) -> Iterator[Clip]:
    """Videos below a prefix, of which one folder at a time is held."""
    for _, _, files in fs.walk(path, detail=True):
        for name, info in files.items():
            if name.lower().endswith(VIDEO_ENDINGS):
                yield _clip(fs, info)


def _clip(fs: Any, info: Mapping[str, Any]) -> Clip:
    """Local files by their absolute path, as users write them; others with their protocol."""
    if is_local(fs):
        found = os.lstat(info["name"])
        return clip_of(info["name"], f"{found.st_size}-{found.st_mtime_ns}")
    tag = str(info.get("ETag") or info.get("etag") or info.get("md5Hash") or "").strip('"')
    return clip_of(str(fs.unstrip_protocol(info["name"])), f"{info.get('size', '')}-{tag}")


def _missing(source: str) -> TrnconvError:
    return TrnconvError(
        f"{source}: no such file, folder or prefix. Name one that exists, or a pattern in quotes."
    )
