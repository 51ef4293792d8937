"""Open files of this process, and an end to them."""

from __future__ import annotations

import os
from contextlib import suppress


def forbid_more(more: int) -> None:
    """From now on this process holds so many more files at most: those that it is handed."""
    import resource

    names = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - numbers only
    held = [name for name in names if _is_open(name)]
    while os.dup(held[0]) < max(held):  # numbers that are free are taken, too
        pass
    most = max(held) + 1 + more
    os.close(max(held) + 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False
