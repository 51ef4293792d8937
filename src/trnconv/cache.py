"""What was worked out before, on disk: JSON files, each with the stamp of what it follows from.

A file is trusted only if it can be read, answers the problem that is asked, and has the stamp of
this version: of the library, its sources and the constants of the machines. Any other is set aside.
A folder that is a link, that everybody can write to, or that is somebody else's is not used at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from nkisim.version import __version__

ENVIRONMENT = "TRNCONV_CACHE_DIR"
SOURCES = ("problem", "algorithms", "planner", "runtime")  # folders that prices follow from
_SET_ASIDE = ".set-aside"
_NAME_BYTES = 16
_COMPILED = "__pycache__"


def cache_folder() -> Path:
    """TRNCONV_CACHE_DIR, else trnconv in the user's cache folder."""
    asked = os.environ.get(ENVIRONMENT)
    if asked:
        return Path(asked).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trnconv"


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Of the sources that results follow from: an edited planner does not get old answers."""
    package = Path(__file__).parent
    folders = (*(package / name for name in SOURCES), package.parent / "nkisim")
    paths = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    return _digest_of(package.parent, map(str, paths))


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Of every file of both packages: sources, and data such as traced models and plans."""
    package = Path(__file__).parent
    folders = (package, package.parent / "nkisim")
    return _digest_of(package.parent, (path for folder in folders for path in _files_of(folder)))


def _files_of(folder: Path) -> Iterator[str]:
    """All files below a folder but compiled ones, in the order of their names."""
    for place, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name != _COMPILED)
        yield from (os.path.join(place, name) for name in sorted(names))  # noqa: PTH118 (hundreds)


def _digest_of(root: Path, paths: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=_NAME_BYTES)
    for path in paths:
        digest.update(f"{path.removeprefix(f'{root}{os.sep}')}\0".encode())
        with open(path, "rb") as file:  # noqa: PTH123 (a Path takes longer than the reading)
            digest.update(file.read())
    return digest.hexdigest()


def stamp() -> dict[str, Any]:
    """What a price follows from besides its problem."""
    return {"library": __version__, "constants": CONSTANTS_VERSION, "code": code_digest()}


def package_stamp() -> dict[str, Any]:
    """What an answer follows from that all of the package takes part in."""
    return {"library": __version__, "package": package_digest()}


@dataclass(frozen=True)
class Holding:
    """What a cache has on disk."""

    entries: int
    held_bytes: int
    set_aside: int


@dataclass(frozen=True)
class Cache:
    """Answers by problem, in one folder. `troubles` counts, in words, what went wrong."""

    folder: Path
    stamped: Callable[[], dict[str, Any]] = stamp  # what its answers follow from
    troubles: Counter[str] = field(default_factory=Counter)

    @classmethod
    def named(cls, name: str, stamped: Callable[[], dict[str, Any]] = stamp) -> Cache:
        """The cache of this name in the cache folder."""
        return cls(cache_folder() / name, stamped)

    def get(self, problem: dict[str, Any]) -> Any:
        """The answer; None if there is none to be trusted."""
        path = self._path(problem)
        if not self._is_ours(path):
            return None
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return self._set_aside(path, "unreadable")
        if not isinstance(document, dict) or document.get("problem") != problem:
            return self._set_aside(path, "an answer to something else")
        if document.get("stamp") != self.stamped():
            return self._set_aside(path, "of another version")
        return document.get("answer")

    def distrust(self, problem: dict[str, Any]) -> None:
        """Set an answer aside that turned out to make no sense."""
        self._set_aside(self._path(problem), "not what it should be")

    def put(self, problem: dict[str, Any], answer: Any) -> None:
        """Keep an answer: whole or not at all, whoever else writes at the same time."""
        document = {"stamp": self.stamped(), "problem": problem, "answer": answer}
        path = self._path(problem)
        if not self._is_ours(path):
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file)
            Path(made).replace(path)
        except OSError as error:
            self.troubles[f"not written ({error.strerror})"] += 1

    def holding(self) -> Holding:
        """How much there is."""
        paths = list(self.folder.rglob("*.json")) if self.folder.is_dir() else []
        aside = self.folder.rglob(f"*{_SET_ASIDE}") if self.folder.is_dir() else ()
        return Holding(
            len(paths), sum(path.stat().st_size for path in paths), sum(1 for _ in aside)
        )

    def told(self) -> str:
        """The troubles in a sentence; empty if there were none."""
        if not self.troubles:
            return ""
        parts = ", ".join(f"{count} {what}" for what, count in self.troubles.items())
        return f"cache {self.folder}: {parts}. Such entries are not used; they are made anew."

    def _path(self, problem: dict[str, Any]) -> Path:
        text = json.dumps(problem, sort_keys=True)
        name = hashlib.blake2b(text.encode(), digest_size=_NAME_BYTES).hexdigest()
        return self.folder / name[:2] / f"{name}.json"

    def _is_ours(self, path: Path) -> bool:
        """Whether nobody else can put an answer there, or have ours written elsewhere."""
        for place in (self.folder.parent, self.folder, path.parent, path):
            why = _unsafe(place)
            if why:
                self.troubles[f"in a place that is {why} ({place})"] += 1
                return False
        return True

    def _set_aside(self, path: Path, why: str) -> None:
        self.troubles[why] += 1
        try:
            path.replace(path.with_suffix(_SET_ASIDE))
        except OSError:
            self.troubles["cannot be moved"] += 1


def _unsafe(place: Path) -> str:
    """Why what lies there is not to be trusted; empty if it is, or if nothing is there."""
    try:
        status = place.lstat()
    except OSError:
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "a link"
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return "everybody's to write to"
    owners = (0, os.geteuid()) if hasattr(os, "geteuid") else (status.st_uid,)
    return "" if status.st_uid in owners else "somebody else's"
