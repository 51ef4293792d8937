"""Watch: which ranks are alive and how far they are, so that an error can name the right one.

Every rank counts in the group's store, in a thread, and reads the counts of the others. A rank
whose count has stood still for `patience_s` is taken for dead. Beside its count a rank says how
many exchanges it has come to, and whether it waits in one: whoever is at work while others wait is
late. In place of a count, a rank that gives up leaves the reason, and stays until the others know
it: it may be the one that hosts the store.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

INTERVAL_S = 0.25  # between two counts
_REASON = "!"  # before what is no count


@dataclass(frozen=True)
class Progress:
    """How far a rank is: exchanges it has come to, whether it waits in the last, and for what."""

    exchanges: int = 0
    waits: bool = False
    module: str = ""

    def said(self, count: int) -> str:
        """As it is written beside a count; `progress_of` is the inverse."""
        return f"{count} {self.exchanges} {int(self.waits)} {self.module}"


def progress_of(said: bytes) -> Progress:
    """What a rank wrote; nothing if it has written no more than that it is there."""
    _, _, rest = said.decode().partition(" ")
    if not rest:
        return Progress()
    exchanges, waits, module = rest.split(" ", 2)
    return Progress(int(exchanges), waits == "1", module)


class Watch:
    """Counts until it is stopped."""

    def __init__(self, store: Any, rank: int, ranks: int, patience_s: float) -> None:
        self._store = store
        self.rank = rank
        self._others = [other for other in range(ranks) if other != rank]
        self.patience_s = patience_s
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._lost = ""
        self._own = Progress()
        self._gave_up: int | None = None
        self.reason = ""  # for which a rank gave up, this one or another
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

    def waits(self, module: str) -> None:
        """This rank has come to another exchange, and waits in it."""
        self._own = Progress(self._own.exchanges + 1, waits=True, module=module)

    def works(self) -> None:
        """It goes on."""
        self._own = replace(self._own, waits=False)

    def give_up(self, reason: str) -> None:
        """No more counting: the others shall end too, with the reason. Done when they know it."""
        self.stop()
        self.reason = self.reason or reason
        try:
            self._store.set(_key(self.rank), f"{_REASON}{reason}")
            self._store.set(_heard(self.rank), "")
        except (RuntimeError, OSError) as gone:  # the store's host has died: nobody can be told
            self._lost = str(gone).splitlines()[0]
            return
        self.wait_until_all_know()

    def wait_until_all_know(self) -> None:
        """Why a rank gave up. Who does not hear of it within the patience is not waited for."""
        until = time.monotonic() + self.patience_s
        others = [_heard(other) for other in self._others]
        try:
            while not self._store.check(others) and time.monotonic() < until:
                time.sleep(INTERVAL_S / 10)
        except (RuntimeError, OSError) as gone:  # the store's host has left: all of them knew
            self._lost = str(gone).splitlines()[0]

    def dead(self) -> int | None:
        """A rank that gave up, or the one that has been silent for longest, if that is too long."""
        if not self._seen:
            return None
        if self._gave_up is not None:
            return self._gave_up
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
        dead = self.dead()
        if self.reason:
            return self.reason
        time.sleep(2 * INTERVAL_S)  # the others shall not take this rank for the dead one
        if dead is not None:
            return f"rank {dead} has given no sign of life for {self.patience_s:g} s or more"
        if self._lost:
            return f"the store of the group is gone, with the rank that hosts it ({self._lost})"
        return self._late() or "all ranks are alive and wait: one has gone another way"

    def _late(self) -> str:
        """Who is at work, and least far, while this rank waits; empty if nobody is."""
        others = {other: progress_of(said) for other, (said, _) in self._seen.items()}
        at_work = {other: far for other, far in others.items() if not far.waits}
        if not at_work:
            return ""
        late = min(at_work, key=lambda other: at_work[other].exchanges)
        far = at_work[late]
        where = f", the last for {far.module}" if far.module else ""
        return (
            f"all ranks are alive, and rank {late} is late: it is at work after"
            f" {far.exchanges} exchanges{where}, while this rank waits in the"
            f" {self._own.exchanges}th"
        )

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
        self._store.set(_key(self.rank), self._own.said(count))
        for other in self._others:
            value = self._store.get(_key(other))
            if value.startswith(_REASON.encode()) and not self.reason:
                self._store.set(_heard(self.rank), "")  # first: whoever has a reason may end
                self.reason, self._gave_up = value.decode().removeprefix(_REASON), other
            if value != self._seen[other][0]:
                self._seen[other] = (value, time.monotonic())


def _key(rank: int) -> str:
    return f"trnconv/alive/{rank}"


def _heard(rank: int) -> str:
    return f"trnconv/heard/{rank}"
