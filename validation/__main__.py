"""`python -m validation`: model every row, write docs/validation.md, print a line of statistics.

`python -m validation 17 23a` models some rows and leaves the page alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from validation.outcome import Outcome, evaluate
from validation.page import duration, render
from validation.rows import ROWS
from validation.summary import summarise

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "validation.md"
LIBRARY = HERE / "nki_library.json"


def main(numbers: list[str]) -> None:
    """Model the rows with these numbers, or all."""
    rows = [row for row in ROWS if not numbers or row.number in numbers]
    if not rows or len(rows) < len(numbers):
        known = ", ".join(row.number for row in ROWS)
        sys.exit(f"unknown row in {' '.join(numbers)}; rows are {known}")
    outcomes = []
    for row in rows:
        outcomes.append(evaluate(row))
        print(progress(outcomes[-1]), flush=True)
    if not numbers:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render(outcomes, library_record()), encoding="utf-8")
    print(summarise(outcomes))


def progress(outcome: Outcome) -> str:
    """One row in one line."""
    row = outcome.row
    return (
        f"{row.number:>4}  {row.title:<45} {row.target} {row.dtype:<9}"
        f" published {duration(row.published_us):>9}  modelled {duration(outcome.modelled_us):>9}"
        f"  ratio {outcome.ratio:.2f}  {outcome.bound}"
    )


def library_record() -> list[dict[str, Any]]:
    """What is on record about kernels of public libraries."""
    if not LIBRARY.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(LIBRARY.read_text(encoding="utf-8"))
    return entries


if __name__ == "__main__":
    main(sys.argv[1:])
