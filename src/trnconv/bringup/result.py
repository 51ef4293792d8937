"""The file of a climb: JSON that can be sent, and gone on with.

A check is written before it is run and after. One that was begun and never ended hung, or took
the process with it: the next climb takes it for red.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nkisim.version import __version__
from trnconv.algorithms.digest import sources_digest
from trnconv.bringup.ladder import GREEN, NOTED, OFF, RED, STARTED, Bench, Check, Climbed, Finding
from trnconv.errors import UnsupportedError

FORMAT = 1
_LASTING = (GREEN, NOTED, OFF)
_SOURCES = "trnconv.bringup.stage2"  # with all it imports: probes, planner, algorithms and kernels
_NEVER_ENDED = "it was begun and never ended: it hung, or the process died"


@dataclass
class ResultFile:
    """What was found so far, kept on disk after every step."""

    path: Path
    stamp: dict[str, Any]
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def opened(cls, path: Path, bench: Bench, *, restart: bool = False) -> ResultFile:
        """The file of earlier climbs here, if they asked the same; else a new one."""
        stamp = stamp_of(bench)
        if restart or not path.exists():
            return cls(path, stamp)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            same = document["stamp"] == stamp
            checks = {check["name"]: check for check in document["checks"]}
        except (ValueError, KeyError, TypeError) as error:
            raise UnsupportedError(
                f"{path}: not a file of `trnconv bringup` ({error}). Name another with --file."
            ) from error
        if same:
            return cls(path, stamp, checks)
        # What was green under other workarounds or versions is asked again; what hung is known.
        hung = {name: check for name, check in checks.items() if check["state"] == STARTED}
        return cls(path, stamp, hung)

    def kept(
        self, check: Check, workarounds: frozenset[str], *, retry: bool = False
    ) -> Finding | None:
        """What is known of a check; None if it has to be run."""
        known = self.checks.get(check.name)
        if known is None or (retry and known["state"] not in _LASTING):
            return None
        if known["state"] in _LASTING:
            return Finding(known["state"], known["words"], known.get("data", {}))
        off = workarounds.intersection((check.workaround, *check.void_with))
        if known["state"] == STARTED and not off:
            return (
                Finding(NOTED, f"no: {_NEVER_ENDED}") if check.notes else Finding(RED, _NEVER_ENDED)
            )
        return None

    def begin(self, check: Check) -> None:
        """A check is about to run."""
        self._put(check, STARTED, "", {}, 0.0)

    def end(self, climbed: Climbed) -> None:
        """It was."""
        finding = climbed.finding
        self._put(climbed.check, finding.state, finding.words, finding.data, climbed.seconds)

    def _put(
        self, check: Check, state: str, words: str, data: dict[str, Any], seconds: float
    ) -> None:
        self.checks[check.name] = {
            "stage": check.stage,
            "name": check.name,
            "asks": check.asks,
            "state": state,
            "words": words,
            "workaround": check.workaround,
            "seconds": round(seconds, 3),
            **({"data": data} if data else {}),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")

    def document(self) -> dict[str, Any]:
        """All of it."""
        red = [check for check in self.checks.values() if check["state"] == RED]
        return {
            "format": FORMAT,
            "stamp": self.stamp,
            "date": datetime.now(timezone.utc).date().isoformat(),
            "stopped_at": red[0]["name"] if red else None,
            "workaround": red[0]["workaround"] or None if red else None,
            "checks": list(self.checks.values()),
        }


def stamp_of(bench: Bench) -> dict[str, Any]:
    """Where and with what a climb was made; another one is another climb."""
    return {
        "kind": "measured" if bench.runner.is_device else "simulated",
        "host": platform.node(),
        "where": bench.runner.where,
        "machine": bench.machine.name,
        "cores": bench.cores,
        "workarounds": sorted(bench.workarounds),
        "trnconv": __version__,
        "code": sources_digest(_SOURCES),
        "python": platform.python_version(),
    }
