"""A folder, local or in an object store, whose files are there whole or not at all.

Writers do not fight: a file of which there may be one only is created (`create`, `put`), and who
comes second is told so. Nobody removes what another living process is writing.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from trnconv.corpus.storage.addresses import is_local, store_of
from trnconv.corpus.storage.process import Process, this_process
from trnconv.errors import TrnconvError

_UNFINISHED = ".unfinished"
_STALE_S = 86_400  # after a day, what a process of another machine has not finished is left behind
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")


@dataclass(frozen=True)
class Folder:
    """Files by name below an address. Whoever reads a name sees a complete file or none."""

    url: str

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None if there is none."""
        fs, path = self._at(name)
        try:
            data: bytes = fs.cat_file(path, **_one_request(fs))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("reading", name, error) from error
        return data

    def read_range(self, name: str, start: int, end: int) -> bytes | None:
        """Bytes of a file from `start` up to `end`, or its own end; None if there is none."""
        fs, path = self._at(name)
        try:
            data: bytes = fs.cat_file(path, start=start, end=end)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("reading", name, error) from error
        return data

    def local(self, name: str) -> str | None:
        """A file's path on this machine; None in a store."""
        fs, path = self._at(name)
        return path if is_local(fs) else None

    def sizes(self, below: str) -> dict[str, int]:
        """The complete files of a folder by name, and their bytes: one listing."""
        fs, path = self._at(below)
        if is_local(fs):
            return _local_sizes(Path(path))
        try:
            entries = fs.ls(path, detail=True)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._failed("listing", below, error) from error
        files = (info for info in entries if info["type"] == "file")
        return {info["name"].rpartition("/")[2]: int(info["size"]) for info in files}

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place, replacing what was there, at once."""
        fs, path = self._at(name)
        with self._writing(name):
            if not is_local(fs):
                fs.pipe_file(path, data)
                return
            with _unfinished(Path(path)) as made:
                _fill(made, data)
                made.replace(path)
            _flush_names(Path(path).parent)

    def create(self, name: str, data: bytes) -> bool:
        """Make a file that must not be there yet; False, and nothing done, if it is."""
        fs, path = self._at(name)
        with self._writing(name):
            if not is_local(fs):
                return _created(lambda: fs.pipe_file(path, data, mode="create"))
            with _unfinished(Path(path)) as made:
                _fill(made, data)
                return _linked(made, Path(path))

    def put(self, name: str, file: Path) -> bool:
        """Create a file from a local one, which may go then; False if it is there already."""
        fs, path = self._at(name)
        with self._writing(name):
            if not is_local(fs):
                return _created(lambda: fs.put_file(str(file), path, mode="create"))
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            return _linked(file, Path(path))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        fs, path = self._at(name)
        with suppress(FileNotFoundError):
            fs.rm_file(path)

    def sweep(self, below: str) -> None:
        """Remove what ended processes left half written in a folder, and nothing else."""
        fs, path = self._at(below)
        if not is_local(fs) or not Path(path).is_dir():
            return
        for left in Path(path).glob(f"*{_UNFINISHED}"):
            with suppress(FileNotFoundError):
                if _left_behind(left):
                    left.unlink()

    def spool(self) -> Path | None:
        """A local folder from which `put` moves files without copying; None in a store."""
        path = self.local("spool")
        return Path(path) if path is not None else None

    def _at(self, name: str) -> tuple[Any, str]:
        fs, root = store_of(self.url)
        return fs, f"{root.rstrip('/')}/{name}"

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed("writing", name, error) from error

    def _failed(self, what: str, name: str, error: OSError) -> TrnconvError:
        full = " The disk is full." if error.errno == errno.ENOSPC else ""
        return TrnconvError(
            f"{what} {self.url}/{name}: {error}.{full} Set it right and run the same command"
            " again; what is done stays done."
        )


def _one_request(fs: Any) -> dict[str, int]:
    """An option for S3: parts at a time would need a request for the size first."""
    return {"max_concurrency": 1} if hasattr(fs, "call_s3") else {}


def _created(make: Any) -> bool:
    """Whether a conditional put made the object."""
    try:
        make()
    except FileExistsError:
        return False
    except OSError as error:
        code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "")
        if code in _TAKEN:
            return False
        raise
    return True


def _local_sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.endswith(_UNFINISHED):
                sizes[entry.name] = entry.stat().st_size
    return sizes


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A name of our own beside a file's; whatever is left under it goes at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f"{path.name}.{this_process()}.{uuid.uuid4().hex[:8]}{_UNFINISHED}"
    made = path.with_name(name)
    try:
        yield made
    finally:
        made.unlink(missing_ok=True)


def _fill(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _linked(made: Path, path: Path) -> bool:
    """Give a complete file its name, unless another has it."""
    try:
        os.link(made, path)
    except FileExistsError:
        return False
    _flush_names(path.parent)
    return True


def _left_behind(path: Path) -> bool:
    writer = Process.parse(
        path.name.removesuffix(_UNFINISHED).rpartition(".")[0].rpartition(".")[2]
    )
    if writer is not None and writer.is_gone():
        return True
    return time() - path.stat().st_mtime > _STALE_S


def _flush_names(folder: Path) -> None:
    """Make a rename outlast a power failure, where folders can be flushed."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
