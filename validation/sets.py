"""Sets: which rows constants were set with, and which say how the model does on the unknown."""

from __future__ import annotations

from validation.draw import EVIDENCE, HELD_OUT, NEVER_COMPARED, SEEN
from validation.row import Row

FITTED, SEEN_BEFORE, HELD = "fitted", "seen", "held out"
SETS = (FITTED, SEEN_BEFORE, HELD)

# The rows of constants 1 and 2.
OLD = frozenset(
    (
        *("1", "2", "3", "4", "5", "6", "7", "8", "9", "10a", "10b", "10c", "11a", "11b", "12"),
        *("17", "18", "22", "23a", "23b", "23c", "23d", "24a", "24b", "27", "28", "29", "30"),
        *("31", "35", "36a", "36b", "39", "40", "43", "44", "45"),
    )
)
_FITTED = OLD | EVIDENCE | (frozenset(NEVER_COMPARED) - HELD_OUT)


def set_of(row: Row) -> str:
    """The set of a row. One that no list names is new: it is predicted first, so held out."""
    if row.number in _FITTED:
        return FITTED
    return SEEN_BEFORE if row.number in SEEN else HELD


def read_sets(text: str) -> tuple[str, ...]:
    """The sets of a comma-separated list; `held-out` is written for `held out` where blanks hurt.

    ValueError names a word that is none of them.
    """
    words = [word.strip().replace("-", " ") for word in text.split(",")]
    unknown = [word for word in words if word not in SETS]
    if unknown:
        raise ValueError(f"unknown set {', '.join(unknown)}; sets are {', '.join(SETS)}")
    return tuple(name for name in SETS if name in words)
