"""Watch: which ranks are alive, so that an error can name the one that is not.

Every rank counts in the group's store, in a thread, and reads the counts of the others. A rank
whose count has stood still for `patience_s` is taken for dead. In place of a count, a rank that
gives up leaves the reason.
"""

from __future__ import annotations

import threading
import time
from typing import Any

INTERVAL_S = 0.25  # between two counts
_REASON = "!"  # before what is no count


class Watch:
    """Counts until it is stopped."""

    def __init__(self, store: Any, rank: int, ranks: int, patience_s: float) -> None:
        self._store = store
        self.rank = rank
        self._others = [other for other in range(ranks) if other != rank]
        self.patience_s = patience_s
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._lost = ""
        self._gave_up: dict[int, str] = {}
        self._stopped = threading.Event()
        self._store.set(_key(rank), "0")
        self._thread = threading.Thread(target=self._run, name="trnconv-watch", daemon=True)

    def start(self) -> None:
        """To be called when every rank has a watch."""
        now = time.monotonic()
        self._seen = dict.fromkeys(self._others, (b"", now))
        self._thread.start()

    def stop(self) -> None:
        """No more counting; the others must have stopped to wait for this rank."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def give_up(self, reason: str) -> None:
        """No more counting: the others shall end too, with the reason."""
        self.stop()
        self._store.set(_key(self.rank), f"{_REASON}{reason}")

    def dead(self) -> int | None:
        """A rank that gave up, or the one that has been silent for longest, if that is too long."""
        if not self._seen:
            return None
        if self._gave_up:
            return next(iter(self._gave_up))
        oldest = min(self._seen, key=lambda other: self._seen[other][1])
        silent_s = time.monotonic() - self._seen[oldest][1]
        return oldest if silent_s > self.patience_s else None

    def verdict(self, waited_since: float) -> str:
        """Who is dead, in words, after as long a look as it takes to tell."""
        if not self._seen:
            return self._absent()
        until = waited_since + self.patience_s + 2 * INTERVAL_S
        while self.dead() is None and time.monotonic() < until:
            time.sleep(INTERVAL_S / 4)
        found = self.dead()
        if found in self._gave_up:
            return f"rank {found} gave up: {self._gave_up[found]}"
        time.sleep(2 * INTERVAL_S)  # the others shall not take this rank for the dead one
        if found is not None:
            return f"rank {found} has given no sign of life for {self.patience_s:g} s or more"
        if self._lost:
            return f"the store of the group is gone, with the rank that hosts it ({self._lost})"
        return "all ranks are alive: one is late, or has gone another way through the model"

    def _absent(self) -> str:
        """Before all have a watch: who has none."""
        absent = [str(rank) for rank in self._others if not self._store.check([_key(rank)])]
        if not absent:
            return "all ranks began, and one ended at once"
        return f"rank {' and rank '.join(absent)} never came"

    def _run(self) -> None:
        count = 0
        while not self._stopped.wait(INTERVAL_S):
            count += 1
            try:
                self._look(count)
            except (RuntimeError, OSError) as gone:  # the store's host died: `verdict` says so
                self._lost = str(gone).splitlines()[0]
                return

    def _look(self, count: int) -> None:
        self._store.set(_key(self.rank), str(count))
        for other in self._others:
            value = self._store.get(_key(other))
            if value.startswith(_REASON.encode()):
                self._gave_up[other] = value.decode().removeprefix(_REASON)
            if value != self._seen[other][0]:
                self._seen[other] = (value, time.monotonic())


def _key(rank: int) -> str:
    return f"trnconv/alive/{rank}"
