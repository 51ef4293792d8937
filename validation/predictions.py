"""Predictions: what the model said about rows before anybody compared them with their figures.

`predictions.json` has them by version of the constants and by row. What is in it is not changed any
more: a row is predicted once for each version, and its comparison says whether the model still says
the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import isclose
from pathlib import Path

from nkisim.machine import CONSTANTS_VERSION
from validation.outcome import Modelled
from validation.row import Row
from validation.sets import HELD, set_of

RECORD = Path(__file__).with_name("predictions.json")
_EQUAL = 1e-6  # of a time: what another order of additions may change


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Times of one row, in microseconds, and the day they were written down."""

    date: str
    optimistic_us: float
    default_us: float
    pessimistic_us: float

    @classmethod
    def of(cls, modelled: Modelled, date: str) -> Prediction:
        """What is modelled today."""
        return cls(
            date=date,
            optimistic_us=modelled.optimistic_us,
            default_us=modelled.default_us,
            pessimistic_us=modelled.pessimistic_us,
        )

    def agrees(self, modelled: Modelled) -> bool:
        """Whether the model still says the same."""
        return all(
            isclose(getattr(self, name), getattr(modelled, name), rel_tol=_EQUAL)
            for name in ("optimistic_us", "default_us", "pessimistic_us")
        )


Record = dict[str, dict[str, Prediction]]  # version of the constants -> number of a row -> times


class NotPredictedError(Exception):
    """A held-out row was to be compared before it was predicted."""


def read_record(path: Path = RECORD) -> Record:
    """Everything that was predicted; empty if nothing was."""
    if not path.exists():
        return {}
    versions = json.loads(path.read_text(encoding="utf-8"))
    return {
        version: {number: Prediction(**fields) for number, fields in rows.items()}
        for version, rows in versions.items()
    }


def write_record(record: Record, path: Path = RECORD) -> None:
    """Versions and rows in the order in which they were predicted."""
    plain = {
        version: {number: asdict(prediction) for number, prediction in rows.items()}
        for version, rows in record.items()
    }
    path.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def unpredicted(
    rows: Iterable[Row], record: Mapping[str, Mapping[str, Prediction]]
) -> tuple[Row, ...]:
    """The rows that have no prediction under the constants of today."""
    predicted = record.get(CONSTANTS_VERSION, {})
    return tuple(row for row in rows if row.number not in predicted)


def require_predicted(rows: Iterable[Row], record: Mapping[str, Mapping[str, Prediction]]) -> None:
    """NotPredictedError if one of the rows is held out and was never predicted."""
    absent = unpredicted([row for row in rows if set_of(row) == HELD], record)
    if absent:
        numbers = " ".join(row.number for row in absent)
        raise NotPredictedError(
            f"held-out rows without a prediction under constants {CONSTANTS_VERSION}: {numbers}."
            " A held-out row is predicted before it is compared: run `python -m validation predict"
            " --date YYYY-MM-DD`, commit validation/predictions.json, then compare; or leave the"
            " set out with `--sets fitted,seen`."
        )
