"""While trnconv itself works inside of a patched model, operators are torch's and not recorded."""

from __future__ import annotations

import threading


class _Depth(threading.local):
    value = 0


_depth = _Depth()


class passing:  # noqa: N801 (reads as a statement: with passing())
    """Operators inside pass by the mode of this thread."""

    def __enter__(self) -> None:
        _depth.value += 1

    def __exit__(self, *raised: object) -> None:
        _depth.value -= 1


def is_passing() -> bool:
    """Whether this thread is inside."""
    return _depth.value > 0
