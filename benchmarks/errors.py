"""`python -m benchmarks errors`: every registered model against float32, beside torch's bf16.

Reduced models, simulated; norms, attention and fast forms as a patched model has them. The ratio
is of root mean squares, ours over torch's bf16; in decibels it is what PSNR loses, whatever the
peak. Needs the extra `diffusers`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from math import log10
from pathlib import Path
from typing import Any

from benchmarks.table import Column, aligned
from trnconv.ask.policy import BF16, FAST
from trnconv.models import find, models

HELP = "errors of whole models against float32, ours beside torch's bf16"
RATIO, DECIBELS = 1.02, 0.1


@dataclass(frozen=True)
class ModelError:
    """One encode or decode of a reduced model."""

    model: str
    phase: str
    accuracy: str
    ours: float  # RMS, relative to that of the exact result
    floor: float  # the same of torch in bf16

    @property
    def ratio(self) -> float:
        """Ours over torch's."""
        return self.ours / self.floor

    @property
    def lost_db(self) -> float:
        """What PSNR loses against torch's bf16."""
        return 20 * log10(self.ratio)

    @property
    def is_within(self) -> bool:
        """No worse than torch's bf16, nearly."""
        return self.ratio <= RATIO and self.lost_db <= DECIBELS


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--accuracy", action="append", choices=(BF16, FAST), help="default: both")
    parser.add_argument("--json", type=Path, help="where the figures are stored as well")


def main(options: argparse.Namespace) -> int:
    """Run them one after the other, then print all; the exit code."""
    from trnconv.pytorch.three_ways import verify_model  # noqa: PLC0415 (torch: this command only)

    found = []
    for entry in [find(name) for name in options.model] if options.model else models():
        for phase in entry.phases:
            for accuracy in options.accuracy or (BF16, FAST):
                verdict = verify_model(entry, phase, accuracy)
                own = (verdict.ours.rms, verdict.floor.rms)
                found.append(ModelError(entry.name, phase, accuracy, *own))
                print(_line(found[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(_stored(found), encoding="utf-8")
    print(table(found))
    default = [error for error in found if error.accuracy == BF16]
    print(
        f"at most {RATIO} and {DECIBELS} dB at accuracy {BF16}:"
        f" {sum(error.is_within for error in default)}/{len(default)}"
    )
    return 0


def table(errors: list[ModelError]) -> str:
    """A row a run."""
    columns = [
        Column("model", "<"),
        Column("phase", "<"),
        Column("accuracy", "<"),
        Column("ours"),
        Column("torch\nbf16"),
        Column("ratio"),
        Column("PSNR lost,\ndB"),
    ]
    return aligned(columns, [_cells(error) for error in errors])


def _cells(error: ModelError) -> list[str]:
    return [
        error.model,
        error.phase,
        error.accuracy,
        f"{error.ours:.5f}",
        f"{error.floor:.5f}",
        f"{error.ratio:.3f}",
        f"{error.lost_db:+.2f}",
    ]


def _line(error: ModelError) -> str:
    return " ".join(_cells(error))


def _stored(errors: list[ModelError]) -> str:
    rows: list[dict[str, Any]] = [asdict(error) for error in errors]
    return json.dumps({"models": rows}, indent=1) + "\n"
