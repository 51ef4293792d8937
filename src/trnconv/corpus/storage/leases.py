"""Leases: who works on what, until when, and at what those died who had it before.

A lease is a file that only one can create: `<key>.<attempt>.json`. Who finds that an attempt's
holder has ended, or let its time run out, creates the next attempt. So attempts count deaths. They
save double work and blame nobody wrongly; that results are right does not depend on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread
from time import time

from trnconv.corpus.storage.document import as_document, read_document
from trnconv.corpus.storage.process import Process, this_process
from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

LEASE_S = 120.0
_RENEWALS = 4  # in a lease's time: so many may be late before another takes over
MOST_ATTEMPTS = 100  # at one key: whoever restarts workers, for ever perhaps, is told to stop


@dataclass(frozen=True)
class Tenure:
    """What a lease's file says."""

    process: str
    worker: str
    until: float  # seconds since 1970
    at: str | None = None  # the clip in hand, noted once somebody has died
    ended: bool = False  # given back in good order

    def is_live(self) -> bool:
        """Whether its holder may still be at work."""
        process = Process.parse(self.process)
        gone = process is not None and process.is_gone()
        return not self.ended and not gone and self.until > time()


@dataclass
class Lease:
    """A lease in this process's hands, renewed by a thread until it is given back."""

    folder: Folder
    key: str
    attempt: int
    tenure: Tenure
    seconds: float
    deaths: Counter[str] = field(default_factory=Counter)  # by clip, of those who had it before
    lock: Lock = field(default_factory=Lock)
    over: Event = field(default_factory=Event)

    def note(self, at: str) -> None:
        """Say what is in hand, so that a death here has a cause. Free until somebody has died."""
        if self.attempt > 1:
            self._state(replace(self.tenure, at=at))

    @contextmanager
    def held(self) -> Iterator[Lease]:
        """Keep it up inside the `with`; afterwards all attempts go, or after an error it ends."""
        renewer = Thread(target=self._renew, daemon=True)
        renewer.start()
        try:
            yield self
        except BaseException:
            self._stop(renewer)
            self._state(replace(self.tenure, ended=True))
            raise
        self._stop(renewer)
        for attempt in range(self.attempt, 0, -1):
            self.folder.remove(_file(self.key, attempt))

    def _stop(self, renewer: Thread) -> None:
        self.over.set()
        renewer.join()

    def _renew(self) -> None:
        while not self.over.wait(self.seconds / _RENEWALS):
            with suppress(TrnconvError):  # if the store stays away, the worker's own writes say it
                self._state(self.tenure)

    def _state(self, tenure: Tenure) -> None:
        with self.lock:
            self.tenure = replace(tenure, until=time() + self.seconds)
            self.folder.write(_file(self.key, self.attempt), as_document(self.tenure))


def claim(folder: Folder, key: str, worker: str, seconds: float = LEASE_S) -> Lease | None:
    """A lease of this key; None if somebody else who may be alive has it."""
    deaths: Counter[str] = Counter()
    for attempt in range(1, MOST_ATTEMPTS + 1):
        mine = Tenure(str(this_process()), worker, time() + seconds)
        if folder.create(_file(key, attempt), as_document(mine)):
            return Lease(folder, key, attempt, mine, seconds, deaths)
        other = read_document(Tenure, folder.read(_file(key, attempt)))
        if other is None:
            continue  # just given back, or no lease at all: nobody's
        if other.is_live():
            return None
        if other.at is not None and not other.ended:
            deaths[other.at] += 1
    raise TrnconvError(
        f"{folder.url}: {MOST_ATTEMPTS} attempts at {key} have ended without a result. Look at"
        f" leases/{key}.*, and at what ends the workers; then remove those files."
    )


def _file(key: str, attempt: int) -> str:
    return f"leases/{key}.{attempt}.json"
