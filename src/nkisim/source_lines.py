"""Where in the user's own files something was asked for: file, line and function.

The innermost frame that is not nkisim's counts as the user's; the examples and the bench are
written as users write, and count as theirs. A call site is two references while a kernel runs. Its
file and line are worked out when somebody asks.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import warnings
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple

import numpy as np

_HOME: Final = str(Path(__file__).parent) + os.sep
_GUARD: Final = f"{_HOME}public_calls.py"  # stands between users and every public function
_WRITTEN_AS_BY_USERS: Final = (f"{_HOME}examples{os.sep}", f"{_HOME}bench.py")
_frame_at: Final = sys._getframe  # noqa: SLF001 (the cheap way to the caller)
_BELOW: Final = str(Path(np.__file__).parent) + os.sep  # NumPy asks tensors back for numbers
_SHOWN_CHARACTERS: Final = 90
_CALLERS: Final = 4  # frames of the user's that a tensor remembers: helpers that only return it


class _Files(dict[str, bool]):
    """Whether a file is nkisim's; looked at once, because every instruction asks."""

    def __missing__(self, file: str) -> bool:
        ours = file.startswith(_BELOW) or (
            file.startswith(_HOME) and not file.startswith(_WRITTEN_AS_BY_USERS)
        )
        self[file] = ours
        return ours


_ours: Final = _Files({contextlib.__file__: True})  # `with nl.no_reorder()` passes through it


class SourceLine(NamedTuple):
    """A line of a file, as text that outlives the frame."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """As in "first.py:12", relative to the working folder if it lies in there."""
        return f"{shown_path(self.file)}:{self.line}"

    @property
    def short(self) -> str:
        """The same with the name of the file alone."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def source(self) -> str:
        """The line itself, without its indentation; empty if the file cannot be read."""
        line = linecache.getline(self.file, self.line).strip()
        return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."


class CallSite:
    """A place in the bytecode of a user's function that called nkisim."""

    __slots__ = ("code", "lasti")

    def __init__(self, code: CodeType, lasti: int) -> None:
        self.code = code
        self.lasti = lasti

    @property
    def place(self) -> SourceLine:
        """File, line and function."""
        return SourceLine(self.code.co_filename, self.line, self.code.co_name)

    @property
    def line(self) -> int:
        """Line of the file, counted from 1."""
        for start, end, line in self.code.co_lines():
            if start <= self.lasti < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __repr__(self) -> str:
        return f"CallSite({self.place.text})"


class CallSites:
    """The call sites of one run: each is one object, however often it is met."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], CallSite] = {}

    def caller(self) -> CallSite | None:
        """Where the user called the nkisim that is running."""
        frame: FrameType | None = _frame_at(1)
        while frame is not None:
            code = frame.f_code
            if not _ours[code.co_filename] and not (code.co_filename[0] == "<" and _is_ours(frame)):
                lasti = frame.f_lasti
                site = self._known.get((id(code), lasti))
                return self._site(frame) if site is None else site
            frame = frame.f_back
        return None

    def callers(self) -> tuple[CallSite, ...]:
        """The same, and the user's functions around it, innermost first."""
        found: list[CallSite] = []
        frame = user_frame()
        while frame is not None and len(found) < _CALLERS and not _is_ours(frame):
            found.append(self._site(frame))
            frame = frame.f_back
        return tuple(found)

    def _site(self, frame: FrameType) -> CallSite:
        code, lasti = frame.f_code, frame.f_lasti
        key = (id(code), lasti)  # hashing code looks at all of it; the site keeps it alive
        site = self._known.get(key)
        if site is None:
            site = self._known[key] = CallSite(code, lasti)
        return site


def user_frame() -> FrameType | None:
    """The innermost frame that is not nkisim's; None when nkisim is all there is."""
    frame: FrameType | None = _frame_at(1)
    ours = _ours
    while frame is not None and (
        ours[frame.f_code.co_filename] or (frame.f_code.co_filename[0] == "<" and _is_ours(frame))
    ):
        frame = frame.f_back
    return frame


def user_place() -> SourceLine | None:
    """Where the user called the nkisim that is running, as text."""
    frame = user_frame()
    if frame is None:
        return None
    return SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn_user(message: str, category: type[Warning]) -> None:
    """A warning about the user's line, however deep inside of nkisim it was noticed."""
    caller, level = user_frame(), 1
    frame: FrameType | None = _frame_at(0)
    while frame is not None and frame is not caller:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith("<frozen "):  # Python's own: importing, `python -m`
        return True
    if file.startswith("<"):  # made from text: dataclasses write methods of ours so
        module = str(frame.f_globals.get("__name__", ""))
        return module == "nkisim" or module.startswith("nkisim.")
    return _ours[file]


def is_user_code(traceback: TracebackType | None) -> bool:
    """Whether a frame of a traceback, its first one aside, is a user's.

    That is a function of theirs that nkisim called.
    """
    at = traceback.tb_next if traceback is not None else None
    while at is not None:
        if not _is_ours(at.tb_frame) and not _is_library(at.tb_frame):
            return True
        at = at.tb_next
    return False


def _is_library(frame: FrameType) -> bool:
    """NumPy, and what it is made of: frames below nkisim's own."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in {"numpy", "ml_dtypes"} or package in sys.stdlib_module_names


def last_place(traceback: TracebackType | None) -> SourceLine | None:
    """Where a traceback ends."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return SourceLine(code.co_filename, traceback.tb_lineno, code.co_name)


def up_to_user(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without nkisim's frames: it ends at the user's line."""
    frames = []
    at = traceback
    while at is not None:
        if not _is_ours(at.tb_frame):
            frames.append(at)
        at = at.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def shown_path(file: str) -> str:
    """A file relative to the working folder, if it lies in there."""
    here = str(Path.cwd()) + os.sep
    return file.removeprefix(here)


def entry_arguments() -> dict[str, Any]:
    """The arguments of the function of nkisim's that the user called, which is still running.

    Of the function itself: what guards it passes them on.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (the cheap way to the caller)
    entered = frame
    while frame is not None and _is_ours(frame):
        if frame.f_code.co_filename != _GUARD:
            entered = frame
        frame = frame.f_back
    if entered is None:
        return {}
    code, values = entered.f_code, entered.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: values[name] for name in names if name in values}
