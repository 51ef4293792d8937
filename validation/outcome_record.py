"""What was modelled last for every row, kept so that the page can be made again in no time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nkisim.machine import CONSTANTS_VERSION
from validation.outcome import Modelled, Outcome
from validation.row import Row

RECORD = Path(__file__).with_name("outcomes.json")


class StaleRecordError(Exception):
    """The record is of other constants or other rows."""


def write_outcomes(outcomes: Sequence[Outcome], path: Path = RECORD) -> None:
    """Keep what is modelled for all rows."""
    modelled = {outcome.row.number: asdict(outcome.modelled) for outcome in outcomes}
    record = {"constants": CONSTANTS_VERSION, "rows": modelled}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_outcomes(rows: Sequence[Row], path: Path = RECORD) -> list[Outcome]:
    """The outcomes of these rows as they were modelled last; StaleRecordError if some were not."""
    if not path.exists():
        raise StaleRecordError(f"there is no {path.name} yet: run `python -m validation`")
    record = json.loads(path.read_text(encoding="utf-8"))
    missing = [row.number for row in rows if row.number not in record["rows"]]
    if record["constants"] != CONSTANTS_VERSION or missing:
        raise StaleRecordError(
            f"{path.name} was made with constants {record['constants']} (now {CONSTANTS_VERSION})"
            f" and lacks rows {' '.join(missing) or 'none'}: run `python -m validation`"
        )
    return [Outcome(row, Modelled(**record["rows"][row.number])) for row in rows]
