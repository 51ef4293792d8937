"""Why a clip is set aside, in words that begin with a kind where the video itself is not to blame.

A reason is text: records, rows of the manifest and Ray's rows hold it as it is. What is the
video's own fault (`not decodable: ...`, `no video stream`) has no kind.
"""

from __future__ import annotations

import re

MISSING = "missing"  # the store says that there is no such file
UNREACHABLE = "unreachable"  # nobody knows: the store did not answer, or not with the file
UNREADABLE = "unreadable"  # the store answers, and cannot give this one
SLOW = "too slow"  # a decoder ran out of time, perhaps on a busy machine
LARGE = "too large"  # for a limit of this job
VIDEO = "video"  # all others
EVERY = "all"  # of the reasons, where one may be named
LATER = (UNREACHABLE, UNREADABLE, SLOW)  # what a later run may try by itself
_UNREAD = (MISSING, UNREACHABLE, UNREADABLE)
_KINDS = (*_UNREAD, SLOW, LARGE)
_IN_RUNS = re.compile(r", in (\d+) runs$")


def kind_of(reason: str) -> str:
    """The kind a reason begins with."""
    kind = reason.partition(":")[0]
    return kind if kind in _KINDS else VIDEO


def is_unread(reason: str) -> bool:
    """Whether the file could not be had: the store may be to blame, or the list."""
    return kind_of(reason) in _UNREAD


def is_for_a_later_run(reason: str, most_runs: int) -> bool:
    """Whether the next run tries by itself, because things may be otherwise by then."""
    kind = kind_of(reason)
    return kind in (UNREACHABLE, UNREADABLE) or (kind == SLOW and runs_of(reason) < most_runs)


def is_named(reason: str, words: tuple[str, ...]) -> bool:
    """Whether one of the words is how the reason begins, or stands for every reason."""
    return any(word == EVERY or reason.startswith(word) for word in words)


def runs_of(reason: str) -> int:
    """How many runs have come to this reason."""
    said = _IN_RUNS.search(reason)
    return int(said[1]) if said else 1


def once_more(reason: str, before: str) -> str:
    """The reason, and in how many runs it has been that a decoder ran out of time."""
    if kind_of(reason) == kind_of(before) == SLOW:
        return f"{reason}, in {runs_of(before) + 1} runs"
    return reason
