"""Times of the scatter baseline, kept with the package: simulating them takes minutes.

A time is used only if it was made with the constants of today; others are computed again.
"""

from __future__ import annotations

import csv

from benchmarks.scatter import scatter_ns
from nkisim.machine import CONSTANTS_VERSION, TRN2, Reading
from trnconv import baseline
from trnconv.baseline import FIELDS, Times, plain
from trnconv.geometry import ConvShape


def stored() -> Times:
    """Times in the file, trn2, default reading, bf16; none if its constants are old."""
    return dict(baseline.stored())


def store(times: Times) -> None:
    """Write the file, in a fixed order."""
    rows = sorted(
        [*(_text(getattr(shape, name)) for name in FIELDS), f"{ns:.0f}"]
        for shape, ns in times.items()
    )
    with baseline.times_file().open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([*FIELDS, "ns", "constants"])
        writer.writerows([*row, CONSTANTS_VERSION] for row in rows)


def baseline_ns(shape: ConvShape, known: Times) -> float:
    """The time of the baseline, from `known` or by simulation; then `known` has it."""
    asked = plain(shape)
    if asked not in known:
        known[asked] = float(round(scatter_ns(asked, TRN2, Reading.default)))
    return known[asked]


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
