"""History: the versions of the constants, what changed with each, and which rows led to it.

Whoever raises CONSTANTS_VERSION adds a version here, with `moved_by` for every change: the rows
that were looked at when the number was chosen. Those rows are fitted ones (`sets.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One constant or rule of the model, before and after."""

    name: str
    before: str
    after: str
    why: str  # the source it now agrees with
    moved_by: tuple[str, ...] = ()  # numbers of rows; none where no single row is on record


@dataclass(frozen=True)
class Version:
    """One set of constants."""

    version: str
    summary: str  # what it is, in a sentence or two
    line: str = ""  # the statistics of the rows there were
    changes: tuple[Change, ...] = ()


VERSIONS = (
    Version(
        "1",
        "The first set.",
        "median |error| 6.0 %, within 15 %: 31/37, within 40 %: 33/37, inside interval: 22/37",
    ),
    Version(
        "2",
        "Five corrections, each to agree with the source it cites, made after the table of"
        " constants 1 had been seen; which row led to which is not on record.",
        "median |error| 6.0 %, within 15 %: 30/37, within 40 %: 33/37, inside interval: 28/37",
        (
            Change("`dma_issue_hwdge_ns`", "550", "600", "the DGE guide's figure"),
            Change("`pe_gap_cycles`, optimistic", "8", "7", "the profile's"),
            Change(
                "`vector_startup_cycles`, `scalar_startup_cycles`, optimistic",
                "16",
                "0",
                "the documented issue rule has none",
            ),
            Change("`launch_ns`, pessimistic", "12 us", "38 us", "the largest profile"),
            Change("trn1 `dma_bytes_per_ns`, optimistic", "17", "18.1", "a profile"),
        ),
    ),
)
