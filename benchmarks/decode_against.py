"""Whole runs against stored ones: what is left of the time that the same decode took before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.table import Column, aligned, significant
from nkisim.machine import CONSTANTS_VERSION
from trnconv.errors import TrnconvError
from trnconv.problem.policy import FAST, FASTEST

_ROUNDING = 1e-9  # of a ratio: sums in another order


class Run(Protocol):
    """A phase of a model, whole."""

    @property
    def model(self) -> str:
        """Its name in the registry."""

    @property
    def size(self) -> str:
        """The same of its size."""

    @property
    def phase(self) -> str:
        """Encode or decode."""

    @property
    def cores(self) -> int:
        """Of a launch."""

    @property
    def fused_s(self) -> float:
        """Everything, as a patched model runs it. Seconds, modelled."""


Key = tuple[str, str, str, int]  # model, size, phase, cores


@dataclass(frozen=True)
class RatioBar:
    """What a decode with an accuracy is to leave of the stored one's time, at most."""

    model: str
    most: float
    accuracy: str = FAST  # FASTEST: said of algorithms that transform two axes


BARS = (
    RatioBar("wan2.1", 0.88),
    RatioBar("cogvideox", 0.88),
    RatioBar("ltx-video-0.9.7", 0.80),
    RatioBar("wan2.2-5b", 0.76),
    RatioBar("hunyuanvideo", 0.90),
    RatioBar("wan2.2-5b", 0.62, FASTEST),
    RatioBar("hunyuanvideo", 0.76, FASTEST),
)


def stored_seconds(file: Path) -> Mapping[Key, float]:
    """Whole runs of a file that `python -m benchmarks decode` wrote with today's constants."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        constants = document["constants"]
        seconds = {
            (run["model"], run["size"], run["phase"], run["cores"]): (
                run["convolutions_s"] + run["rest_s"]
            )
            for run in document["runs"]
        }
    except OSError as error:
        raise TrnconvError(f"--against {file}: {error.strerror}. Name another file.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TrnconvError(
            f"--against {file}: not a file that `python -m benchmarks decode --json` wrote"
            f" ({error!r}). Name another file."
        ) from error
    if constants != CONSTANTS_VERSION:
        raise TrnconvError(
            f"--against {file}: of constants {constants}, and these are {CONSTANTS_VERSION}. Make"
            " it again: python -m benchmarks decode --json FILE."
        )
    return seconds


def ratio(run: Run, stored: Mapping[Key, float]) -> float | None:
    """What is left of the stored time; None if it is not stored."""
    before = stored.get((run.model, run.size, run.phase, run.cores))
    return None if before is None else run.fused_s / before


def against_table(runs: Sequence[Run], stored: Mapping[Key, float]) -> str:
    """A row for each run that is stored."""
    columns = [Column("model", "<"), Column("size", "<"), Column("phase", "<")]
    columns += [Column("stored\ns"), Column("now\ns"), Column("now /\nstored")]
    rows = [
        (run, significant(run.fused_s / left), significant(run.fused_s), f"{left:.3f}")
        for run in runs
        if (left := ratio(run, stored)) is not None
    ]
    return aligned(columns, [[run.model, run.size, run.phase, *cells] for run, *cells in rows])


def judged_against(
    runs: Sequence[Run], stored: Mapping[Key, float], accuracy: str
) -> list[tuple[str, bool]]:
    """Bars of the accuracy in words, and whether they are met; of any other, nothing is slower."""
    left = {
        run: measured_ratio for run in runs if (measured_ratio := ratio(run, stored)) is not None
    }
    if accuracy not in (FAST, FASTEST):
        return [
            (f"{run.model} {run.phase}: {now:.4f}, not slower", now <= 1 + _ROUNDING)
            for run, now in left.items()
        ]
    return [
        (f"{bar.model} decode: {now:.3f}, at most {bar.most}", now <= bar.most)
        for bar in BARS
        for run, now in left.items()
        if (run.model, run.phase, accuracy) == (bar.model, "decode", bar.accuracy)
    ]
