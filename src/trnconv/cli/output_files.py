"""Files that commands write: opened before the work, complete or not there after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from trnconv.errors import TrnconvError

Write = Callable[[str], None]


@contextmanager
def file_to_write(path: Path | None) -> Iterator[Write]:
    """A function that writes a text there; nothing if there is no path.

    A file that cannot be written is refused on entry, before whatever takes long. The text goes to
    a file beside it, which takes its name when all went well: an old file survives a failure. What
    is there and is no plain file (a pipe, /dev/stdout) is written as it is.
    """
    if path is None:
        yield lambda _: None
        return
    in_place = path.exists() and not path.is_file()
    part = path if in_place else path.with_name(f".{path.name}.{os.getpid()}.part")
    with _said(path):
        if path.is_file():
            path.open("ab").close()
        stream = part.open("wb")
    try:
        yield lambda text: _write(path, stream, text)
        with _said(path):
            stream.close()
            if not in_place:
                part.replace(path)
    finally:
        with suppress(OSError):  # told already, or something else went wrong first
            stream.close()
        if not in_place:
            part.unlink(missing_ok=True)


def _write(path: Path, stream: BinaryIO, text: str) -> None:
    with _said(path):
        stream.write(text.encode("utf-8"))


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrnconvError(
            f"{path}: it cannot be written ({error.strerror}). Name another file, or make its"
            " folder."
        ) from error
