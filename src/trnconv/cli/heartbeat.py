"""What long work is at, on stderr: a line that changes on a terminal, a line now and then without.

Without a terminal the first line comes after some seconds, so that what is quick says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic

Tell = Callable[[str, int, int], None]  # what is done now; how far; of how many, 0 if not known
EVERY_S = 10.0  # between lines without a terminal
_TICK_S = 0.5  # on a terminal
_EARLY = 0.05  # of the work: before that, no end is guessed


@dataclass
class _Work:
    """One long work: what it is at and since when."""

    what: str
    began: float = field(default_factory=monotonic)
    step: str = ""
    done: int = 0
    of: int = 0
    step_began: float = 0.0

    def tell(self, step: str, done: int, of: int) -> None:
        if step != self.step:
            self.step_began = monotonic()
        self.step, self.done, self.of = step, done, of

    def line(self) -> str:
        """Such as: planning wan2.1: prices, 12 of 80, 9 s so far, about 51 s more."""
        step = f": {self.step}" if self.step else ""
        far = f", {self.done:,} of {self.of:,}" if self.of else ""
        return f"{self.what}{step}{far}, {monotonic() - self.began:.0f} s so far{self._more()}"

    def _more(self) -> str:
        """How long this step would take from here at its pace until now."""
        if not self.of or self.done < max(1.0, _EARLY * self.of):
            return ""
        spent = monotonic() - self.step_began
        return f", about {spent / self.done * max(0, self.of - self.done):.0f} s more"


@contextmanager
def working(what: str) -> Iterator[Tell]:
    """A function to call with how far the work is."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    work, ended = _Work(what), Event()
    if not console.is_terminal:
        with _beating(ended, EVERY_S, lambda: console.print(work.line(), soft_wrap=True)):
            yield work.tell
        return
    with (
        console.status(f"{what} ...") as status,
        _beating(ended, _TICK_S, lambda: status.update(work.line())),
    ):
        yield work.tell


@contextmanager
def _beating(ended: Event, every_s: float, beat: Callable[[], None]) -> Iterator[None]:
    def beats() -> None:
        while not ended.wait(every_s):
            beat()

    thread = Thread(target=beats, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
