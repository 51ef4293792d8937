"""How many of the last clips could not be read: a few are set aside, many mean a broken store."""

from __future__ import annotations

from collections import Counter, deque

from trnconv.corpus.videos.reasons import UNREACHABLE, is_unread, kind_of
from trnconv.errors import TrnconvError

LAST = 50  # clips that are looked at
_FEWEST = 8  # that a store did not give, before all of the last clips are there to be judged
_FEW = 10  # clips: of fewer, any may be missing or unreadable without it being a sign of anything


class Unread:
    """The last clips of one process, and the share of them that it may fail to read."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._last: deque[tuple[str, str]] = deque(maxlen=LAST)

    def note(self, url: str, reason: str) -> None:
        """The end of a clip; a TrnconvError if too many could not be read."""
        self._last.append((url, reason))
        lost = self._lost(with_answers=len(self._last) == LAST)
        if len(self._last) == LAST or len(lost) >= _FEWEST:
            self._require_few(lost)

    def require_few(self) -> None:
        """Before a shard is committed, and what is set aside in it stays so."""
        self._require_few(self._lost(with_answers=len(self._last) >= _FEW))

    def _lost(self, *, with_answers: bool) -> list[tuple[str, str]]:
        """What a store has answered is counted with enough others to compare with."""
        return [
            (url, reason)
            for url, reason in self._last
            if is_unread(reason) and (with_answers or kind_of(reason) == UNREACHABLE)
        ]

    def _require_few(self, lost: list[tuple[str, str]]) -> None:
        if len(lost) <= self._most * len(self._last):
            return
        kinds = Counter(kind_of(reason) for _, reason in lost)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        url, reason = lost[-1]
        raise TrnconvError(
            f"{len(lost)} of the last {len(self._last)} clips could not be read ({counts}); the"
            f" last is {url!r}, {reason}. More than {self._most:g} of them, and the store"
            " or the list is taken to be broken. Set it right and run the same command again; what"
            " is done stays done, and --retry-set-aside missing tries missing files again. Or"
            " allow a larger share with --most-unread."
        )
