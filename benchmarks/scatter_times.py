"""Times of the scatter baseline, kept in a file: simulating them takes minutes.

A time is used only if it was made with the constants of today; others are computed again.
"""

from __future__ import annotations

import csv
from dataclasses import fields
from pathlib import Path

from benchmarks.scatter import scatter_ns
from nkisim.machine import CONSTANTS_VERSION, TRN2, Reading
from trnconv.geometry import ConvShape

FILE = Path(__file__).parent / "data" / "scatter_trn2.csv"
_FIELDS = [
    field.name
    for field in fields(ConvShape)
    if field.name not in ("groups", "modes", "upsample", "skip")
]
Times = dict[ConvShape, float]


def stored() -> Times:
    """Times in the file, trn2, default reading, bf16; none if its constants are old."""
    if not FILE.exists():
        return {}
    with FILE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {
        _shape(row): float(row["ns"]) for row in rows if row["constants"] == f"{CONSTANTS_VERSION}"
    }


def store(times: Times) -> None:
    """Write the file, in a fixed order."""
    FILE.parent.mkdir(exist_ok=True)
    rows = sorted(
        [*(_text(getattr(shape, name)) for name in _FIELDS), f"{ns:.0f}"]
        for shape, ns in times.items()
    )
    with FILE.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([*_FIELDS, "ns", "constants"])
        writer.writerows([*row, CONSTANTS_VERSION] for row in rows)


def baseline_ns(shape: ConvShape, known: Times) -> float:
    """The time of the baseline, from `known` or by simulation; then `known` has it."""
    plain = ConvShape(**{name: getattr(shape, name) for name in _FIELDS})
    if plain not in known:
        known[plain] = float(round(scatter_ns(plain, TRN2, Reading.default)))
    return known[plain]


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shape(row: dict[str, str]) -> ConvShape:
    values = {name: row[name] for name in _FIELDS}
    return ConvShape(
        **{
            name: tuple(map(int, text.split("x"))) if "x" in text else int(text)
            for name, text in values.items()
        }  # type: ignore[arg-type]
    )
