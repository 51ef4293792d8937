"""A folder, local or in an object store, whose files are there whole or not at all."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trnconv.corpus.needs import needed_for

_UNFINISHED = ".unfinished"


def store_of(url: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    with needed_for("reading and writing files"):
        import fsspec

    fs, path = fsspec.core.url_to_fs(url)
    return fs, path


def is_local(fs: Any) -> bool:
    """Whether files of this file system have a path of this machine."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


@dataclass(frozen=True)
class Folder:
    """Files by name below an address. Whoever reads a name sees a complete file or none."""

    url: str

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None if there is none."""
        fs, path = self._at(name)
        try:
            data: bytes = fs.cat_file(path)
        except FileNotFoundError:
            return None
        return data

    def size(self, name: str) -> int | None:
        """A file's bytes, counted; None if there is none."""
        fs, path = self._at(name)
        try:
            return int(fs.size(path))
        except FileNotFoundError:
            return None

    def names(self, below: str) -> list[str]:
        """The complete files of a folder, by name, in order."""
        fs, path = self._at(below)
        if not fs.isdir(path):
            return []
        fs.invalidate_cache()
        found = (str(file).rpartition("/")[2] for file in fs.ls(path, detail=False))
        return sorted(f"{below}/{name}" for name in found if not name.endswith(_UNFINISHED))

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place, replacing what was there, at once.

        A local file is written under another name, flushed to the disk and renamed. An object store
        shows an object when its upload is complete. What killed writers left behind goes.
        """
        fs, path = self._at(name)
        if is_local(fs):
            _write_local(Path(path), data)
        else:
            fs.pipe_file(path, data)

    def _at(self, name: str) -> tuple[Any, str]:
        fs, root = store_of(self.url)
        return fs, f"{root.rstrip('/')}/{name}"


def _write_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_UNFINISHED}")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _flush_names(path.parent)
    for left in path.parent.glob(f"{path.name}.*{_UNFINISHED}"):
        left.unlink(missing_ok=True)


def _flush_names(folder: Path) -> None:
    """Make a rename outlast a power failure, where folders can be flushed."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
