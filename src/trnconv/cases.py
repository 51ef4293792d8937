"""The one table of named convolutions (`data/cases.csv`), for tests, benchmarks and commands.

`BENCHMARK` are layers of video autoencoders, rows cropped where a whole image would only repeat
them. `EDGE` are small problems, each at a border of what a plan has to handle.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any

from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape, conv_shape

_MOVES = ("stride", "padding", "dilation")


@dataclass(frozen=True)
class Case:
    """A convolution with a name."""

    name: str
    shape: ConvShape
    note: str  # where it comes from, or what it provokes
    dtype: str = "bfloat16"
    key: str = ""  # short form of the name, for benchmarks


def find(name_or_key: str) -> Case:
    """The case of this name or key."""
    known = {case.name: case for case in CASES} | {case.key: case for case in BENCHMARK}
    if name_or_key not in known:
        near = get_close_matches(name_or_key, known, n=3) or [case.name for case in BENCHMARK]
        raise TrnconvError(
            f"a case called {name_or_key!r}: there is none. Try {', '.join(near)}, or add it to"
            " trnconv/data/cases.csv."
        )
    return known[name_or_key]


def _cases() -> Iterator[tuple[str, Case]]:
    """The table each case belongs to, and the case."""
    source = resources.files("trnconv") / "data" / "cases.csv"
    with source.open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            moves = {name: _axes(line[name]) for name in _MOVES if line[name]}
            shape = conv_shape(_sizes(line["x"]), _sizes(line["w"]), **moves)
            case = Case(line["name"], shape, line["note"], line["dtype"], line["key"])
            yield line["table"], case


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def _axes(text: str) -> Any:
    """`0 1 1`, one number for each axis, `2+0` for both sides; `1`, the same for all; or a word."""
    if text.isalpha():
        return text
    axes = [tuple(map(int, axis.split("+"))) for axis in text.split()]
    listed = tuple(axis if len(axis) == 2 else axis[0] for axis in axes)
    return listed if len(text.split()) > 1 or "+" in text else listed[0]


_ALL = tuple(_cases())
BENCHMARK = tuple(case for table, case in _ALL if table == "benchmark")
EDGE = tuple(case for table, case in _ALL if table == "edge")
CASES = BENCHMARK + EDGE
