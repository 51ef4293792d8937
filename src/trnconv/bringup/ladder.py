"""The ladder: checks in order, one problem each; it stops at the first that is red."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nkisim.machine import Machine
from trnconv.bringup.runner import Runner
from trnconv.host.vendor import Vendor
from trnconv.host.workarounds import ASKED_AGAIN

GREEN, RED, NOTED, OFF = "green", "red", "noted", "off"
STARTED = "started"  # and not ended: it hung, or the process died


@dataclass(frozen=True)
class Bench:
    """Where checks are run: the machine with its workarounds, its cores, and who runs kernels."""

    machine: Machine
    cores: int
    runner: Runner
    workarounds: frozenset[str] = frozenset()
    vendor: Vendor = field(default_factory=Vendor)
    folder: Path = Path()  # where files of findings go


@dataclass(frozen=True)
class Finding:
    """What came of a check, in words and as data for the file."""

    state: str
    words: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One problem: who answers it, and which workaround to apply if the answer is no."""

    stage: int
    name: str
    asks: str
    climb: Callable[[Bench], Finding]
    workaround: str = ""
    notes: bool = False  # whatever comes out, the ladder goes on
    void_with: tuple[str, ...] = ()  # other workarounds under which nothing depends on the answer


@dataclass(frozen=True)
class Climbed:
    """A check with its finding."""

    check: Check
    finding: Finding
    seconds: float
    kept: bool = False  # from an earlier climb

    @property
    def stops(self) -> bool:
        """Whether the ladder ends here."""
        return self.finding.state == RED

    @property
    def workaround(self) -> str:
        """The workaround to apply; empty if it is not red, or there is none."""
        return self.check.workaround if self.stops else ""


def climb(
    checks: Iterable[Check],
    bench: Bench,
    kept: Callable[[Check], Finding | None] = lambda _: None,
    started: Callable[[Check], None] = lambda _: None,
) -> Iterator[Climbed]:
    """Check after check, up to the first that is red.

    `kept` gives the finding of an earlier climb; `started` is told before a check is run, so
    that one that never comes back is known by that.
    """
    for check in checks:
        earlier = kept(check)
        if earlier is not None:
            climbed = Climbed(check, earlier, 0.0, kept=True)
        else:
            started(check)
            begin = time.perf_counter()
            finding = _finding(check, bench)
            climbed = Climbed(check, finding, time.perf_counter() - begin)
        yield climbed
        if climbed.stops:
            return


def _finding(check: Check, bench: Bench) -> Finding:
    voiding = bench.workarounds - ASKED_AGAIN
    on = [name for name in (check.workaround, *check.void_with) if name in voiding]
    if on:
        return Finding(OFF, f"{on[0]} is on: nothing depends on it")
    try:
        finding = check.climb(bench)
    except Exception as error:  # noqa: BLE001 (whatever a toolchain raises is the answer)
        finding = Finding(RED, f"{type(error).__name__}: {_first_lines(str(error))}")
    if check.notes and finding.state in (GREEN, RED):
        answer = "yes" if finding.state == GREEN else "no"
        return Finding(NOTED, f"{answer}: {finding.words}", {**finding.data, "answer": answer})
    return finding


def _first_lines(text: str, most: int = 3) -> str:
    return " ".join(line.strip() for line in text.strip().splitlines()[:most])
