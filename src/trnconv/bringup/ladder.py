"""The ladder: rungs in order, one question each; it stops at the first that is red."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nkisim.machine import Machine
from trnconv.bringup.runner import Runner
from trnconv.host.switches import ASKED_AGAIN
from trnconv.host.vendor import Vendor

GREEN, RED, NOTED, OFF = "green", "red", "noted", "off"
STARTED = "started"  # and not ended: it hung, or the process died


@dataclass(frozen=True)
class Bench:
    """Where rungs are climbed: the machine with its switches, its cores, and who runs kernels."""

    machine: Machine
    cores: int
    runner: Runner
    switches: frozenset[str] = frozenset()
    vendor: Vendor = field(default_factory=Vendor)
    folder: Path = Path()  # where files of findings go


@dataclass(frozen=True)
class Finding:
    """What came of a rung, in words and as data for the file."""

    state: str
    words: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rung:
    """One question: who answers it, and which switch to turn if the answer is no."""

    stage: int
    name: str
    asks: str
    climb: Callable[[Bench], Finding]
    switch: str = ""
    notes: bool = False  # whatever comes out, the ladder goes on
    void_with: tuple[str, ...] = ()  # other switches under which nothing depends on the answer


@dataclass(frozen=True)
class Climbed:
    """A rung with its finding."""

    rung: Rung
    finding: Finding
    seconds: float
    kept: bool = False  # from an earlier climb

    @property
    def stops(self) -> bool:
        """Whether the ladder ends here."""
        return self.finding.state == RED

    @property
    def turn(self) -> str:
        """The switch to turn; empty if it is not red, or there is none."""
        return self.rung.switch if self.stops else ""


def climb(
    rungs: Iterable[Rung],
    bench: Bench,
    kept: Callable[[Rung], Finding | None] = lambda _: None,
    started: Callable[[Rung], None] = lambda _: None,
) -> Iterator[Climbed]:
    """Rung after rung, up to the first that is red.

    `kept` gives the finding of an earlier climb; `started` is told before a rung is climbed, so
    that one that never comes back is known by that.
    """
    for rung in rungs:
        found = kept(rung)
        if found is not None:
            climbed = Climbed(rung, found, 0.0, kept=True)
        else:
            started(rung)
            begin = time.perf_counter()
            finding = _finding(rung, bench)
            climbed = Climbed(rung, finding, time.perf_counter() - begin)
        yield climbed
        if climbed.stops:
            return


def _finding(rung: Rung, bench: Bench) -> Finding:
    voiding = bench.switches - ASKED_AGAIN
    on = [name for name in (rung.switch, *rung.void_with) if name in voiding]
    if on:
        return Finding(OFF, f"{on[0]} is on: nothing depends on it")
    try:
        found = rung.climb(bench)
    except Exception as error:  # noqa: BLE001 (whatever a toolchain raises is the answer)
        found = Finding(RED, f"{type(error).__name__}: {_first_lines(str(error))}")
    if rung.notes and found.state in (GREEN, RED):
        answer = "yes" if found.state == GREEN else "no"
        return Finding(NOTED, f"{answer}: {found.words}", {**found.data, "answer": answer})
    return found


def _first_lines(text: str, most: int = 3) -> str:
    return " ".join(line.strip() for line in text.strip().splitlines()[:most])
