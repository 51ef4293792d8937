"""From what a user names to clips: files, folders, patterns, list files; local or in a store."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from trnconv.corpus.storage.addresses import is_http, is_local, readable, store_of
from trnconv.corpus.videos.clips import Clip, clip_of, clip_of_line, clip_of_object, in_order
from trnconv.corpus.videos.video_file import fetched
from trnconv.errors import TrnconvError

VIDEO_ENDINGS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".mpg", ".mpeg", ".ts")
LIST_ENDINGS = (".txt", ".tsv", ".list", ".jsonl")
LONGEST_LINE = 1 << 20  # bytes of a list's line
LARGEST_LIST = 1 << 30  # bytes of a list that an HTTP server has
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
        listed = ", ".join(sources)
        raise TrnconvError(
            f"no video in {listed}: looked for {', '.join(VIDEO_ENDINGS)}. Name files by a pattern"
            " such as 's3://bucket/clips/*.bin' if they end otherwise."
        )


def _clips_of(source: str) -> Iterator[Clip]:
    try:
        yield from _named(source)
    except TrnconvError:
        raise
    except Exception as error:  # stores raise what they like
        raise TrnconvError(
            f"listing {readable(source)}: {type(error).__name__}: {error}. Nothing is planned of a"
            " listing that has no end: set it right and run the same command again."
        ) from error


def _named(source: str) -> Iterator[Clip]:
    fs, path = store_of(source)
    if source.lower().endswith(LIST_ENDINGS):
        yield from _listed(fs, path, source)
    elif is_http(source):
        yield clip_of(source)
    elif not fs.exists(path) and any(mark in source for mark in _PATTERN):
        yield from (_clip(fs, info) for info in fs.glob(path, detail=True).values())
    elif fs.isfile(path):
        yield _clip(fs, fs.info(path))
    elif is_local(fs) and fs.isdir(path):
        yield from _local_videos(path)
    elif hasattr(fs, "call_s3"):
        yield from _objects(fs, path, source)
    elif fs.isdir(path):
        yield from _stored_videos(fs, path)
    else:
        raise _missing(source)


def _listed(fs: Any, path: str, source: str) -> Iterator[Clip]:
    of_line: Callable[[str], Clip] = (
        clip_of_object if source.lower().endswith(".jsonl") else clip_of_line
    )
    with _opened(fs, path, source) as file:
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise TrnconvError(f"{source}: a line of more than {LONGEST_LINE} bytes.")
            text = line.decode("utf-8", "surrogateescape").strip()
            if text and not text.startswith("#"):
                yield of_line(text)


def _opened(fs: Any, path: str, source: str) -> IO[bytes]:
    """A list; one of an HTTP server, which may not know its length, is fetched first."""
    if is_http(source):
        return io.BytesIO(fetched(source, LARGEST_LIST))
    if not fs.exists(path):
        raise _missing(source)
    opened: IO[bytes] = fs.open(path, "rb")
    return opened


def _local_videos(folder: str) -> Iterator[Clip]:
    """Videos below a folder, folder by folder; links to folders are not followed."""
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            elif entry.name.lower().endswith(VIDEO_ENDINGS):
                with suppress(FileNotFoundError):  # removed since the folder was opened
                    status = entry.stat(follow_symlinks=False)
                    yield clip_of(entry.path, f"{status.st_size}-{status.st_mtime_ns}")
    for inner in below:
        yield from _local_videos(inner)


def _objects(fs: Any, path: str, source: str) -> Iterator[Clip]:
    """Videos below a prefix of S3, a page at a time. Keys are no paths: `a//b.mp4` is one, too."""
    bucket, prefix, _ = fs.split_path(path)
    below = f"{prefix.rstrip('/')}/" if prefix else ""
    some = False
    more: dict[str, str] = {}
    while True:
        page = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=below, **more)
        for entry in page.get("Contents", ()):
            some = True
            if entry["Key"].lower().endswith(VIDEO_ENDINGS):
                yield clip_of(f"s3://{bucket}/{entry['Key']}", _version(entry))
        if not page.get("IsTruncated"):
            break
        more = {"ContinuationToken": page["NextContinuationToken"]}
    if not some:
        raise _missing(source)


def _version(info: Mapping[str, Any]) -> str:
    """Size and tag of an object, as stores name them."""
    tag = str(info.get("ETag") or info.get("etag") or info.get("md5Hash") or "").strip('"')
    return f"{info.get('size', info.get('Size', ''))}-{tag}"


def _stored_videos(fs: Any, path: str) -> Iterator[Clip]:
    """Videos below a prefix, of which one folder at a time is held."""
    for _, _, files in fs.walk(path, detail=True):
        for name, info in files.items():
            if name.lower().endswith(VIDEO_ENDINGS):
                yield _clip(fs, info)


def _clip(fs: Any, info: Mapping[str, Any]) -> Clip:
    """Local files by their absolute path, as users write them; others with their protocol."""
    if is_local(fs):
        status = os.lstat(info["name"])
        return clip_of(info["name"], f"{status.st_size}-{status.st_mtime_ns}")
    return clip_of(str(fs.unstrip_protocol(info["name"])), _version(info))


def _missing(source: str) -> TrnconvError:
    return TrnconvError(
        f"{source}: no such file, folder or prefix. Name one that exists, or a pattern in quotes."
    )
