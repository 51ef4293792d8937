"""The end that somebody asks for with SIGTERM, as an exception: work is given back in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

_EXIT_CODE = 143  # what shells say of a process that SIGTERM ended


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, inside the `with`: nobody died of a clip.

    Launchers send it to every rank when one has failed. Threads but the first cannot ask for it,
    and a handler that somebody else has set stays.
    """
    is_first = current_thread() is main_thread()
    is_ours = is_first and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(_: int, __: FrameType | None) -> None:
    raise SystemExit(_EXIT_CODE)
