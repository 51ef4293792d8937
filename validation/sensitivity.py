"""Sensitivity: how much the table depends on each constant of the timing model.

Every field of `Timing` is varied alone, for the rows of the machine it belongs to. A row is traced
once; a constant that its schedule never reads cannot move it, and is not tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from nkisim.machine import CONSTANTS_VERSION, Assumption, Machine, Reading, Timing, find_machine
from validation.row import Row
from validation.stream import Stream, stream_of
from validation.workers import for_each

RECORD = Path(__file__).with_name("sensitivity.json")
MOST_INSTRUCTIONS = 31_000  # scheduled for one row, the shortest looped conv3d among them
SHARE = 0.25
UNMOVED = 1e-4  # of a row's time
MOVED = 0.01
_NAMES = tuple(field.name for field in fields(Timing))


def alternatives(timing: Timing, name: str) -> tuple[Any, Any]:
    """What a constant is tried with: less and more; None where an open point has no such end.

    A switch has one other value, which counts as more.
    """
    value = getattr(timing, name)
    if isinstance(value, str):
        return None, "hwdge" if value == "none" else "none"
    if isinstance(value, bool):
        return None, not value
    if isinstance(value, Assumption):
        least, most = sorted((value.optimistic, value.pessimistic))
        if least < value or value < most:
            return (least if least < value else None), (most if value < most else None)
    if value == 0:
        return None, 1.0  # a switch that is off
    if isinstance(value, int):
        step = max(1, round(SHARE * value))
        return max(1, value - step), value + step
    return (1 - SHARE) * float(value), (1 + SHARE) * float(value)


def varied(machine: Machine, name: str, value: Any) -> Machine:
    """The machine with one constant replaced, in every reading."""
    return replace(machine, timing=replace(machine.timing, **{name: value}))


def watched(machine: Machine) -> tuple[Machine, set[str]]:
    """The same machine, and the names of constants that whoever settles and uses it reads."""
    used: set[str] = set()

    class Watched(Timing):
        def __getattribute__(self, name: str) -> Any:
            if name in _NAMES:
                used.add(name)
            return super().__getattribute__(name)

    class Open(Timing):
        def read(self, reading: Reading) -> Timing:
            settled = super().read(reading)
            return Watched(**{name: getattr(settled, name) for name in _NAMES})

    timing = Open(**{name: getattr(machine.timing, name) for name in _NAMES})
    return replace(machine, timing=timing), used


@dataclass(frozen=True)
class RowMoves:
    """One row: its ratio as it stands, and by constant the ratios with less and with more."""

    number: str
    machine: str
    ratio: float
    ratios: dict[str, tuple[float, float]]  # of the constants that are read at all


def row_moves(stream: Stream) -> RowMoves:
    """Schedule a row with every alternative of every constant it reads."""
    row, machine = stream.row, stream.machine
    watching, used = watched(machine)
    base = stream.time(machine=watching).us / row.published_us

    def tried(name: str, value: Any) -> float:
        if value is None:
            return base
        return stream.time(machine=varied(machine, name, value)).us / row.published_us

    ratios = {}
    for name in sorted(used):
        less, more = alternatives(machine.timing, name)
        ratios[name] = tried(name, less), tried(name, more)
    return RowMoves(row.number, row.machine, base, ratios)


def constant_found(name: str, moves: Sequence[RowMoves]) -> dict[str, Any]:
    """What one constant moves: medians for each end, and the rows."""
    base = [move.ratio for move in moves]
    unread = [(move.ratio, move.ratio) for move in moves]
    both = [move.ratios.get(name, same) for move, same in zip(moves, unread, strict=True)]
    at_ends = [[pair[end] for pair in both] for end in (0, 1)]
    shifts = [
        (ratio / move.ratio - 1, move.number)
        for ratios in at_ends
        for ratio, move in zip(ratios, moves, strict=True)
    ]
    largest, number = max(shifts, key=lambda each: abs(each[0]))
    machines = dict.fromkeys(move.machine for move in moves)
    return {
        "constant": name,
        "tried": {machine: _tried(find_machine(machine).timing, name) for machine in machines},
        "median_error": [_median_error(ratios) - _median_error(base) for ratios in at_ends],
        "median_ratio": [median(ratios) - median(base) for ratios in at_ends],
        "moved": len({row for shift, row in shifts if abs(shift) > MOVED}),
        "largest": largest,
        "largest_row": number,
        "untested": abs(largest) <= UNMOVED,
    }


def _median_error(ratios: Sequence[float]) -> float:
    return median(abs(ratio - 1) for ratio in ratios)


def _tried(timing: Timing, name: str) -> str:
    less, more = alternatives(timing, name)
    values = [None if value is None else _text(value) for value in (less, more)]
    default = f"**{_text(getattr(timing, name))}**"
    return " / ".join(text for text in (values[0], default, values[1]) if text is not None)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:g}"


def moves_within(row: Row, most: int) -> RowMoves | None:
    """What moves a row; None if it takes more than `most` scheduled instructions."""
    stream = stream_of(row)
    if sum(trace.static_count for run in stream.runs for trace in run.traces) > most:
        return None
    return row_moves(stream) if stream.time().scheduled <= most else None


def found_for(
    rows: Sequence[Row],
    most: int,
    say: Callable[[str], None] = lambda _: None,
    workers: int = 1,
) -> dict[str, Any]:
    """All constants, over the rows that take at most so many scheduled instructions."""
    moves = []
    for move in for_each(partial(moves_within, most=most), rows, workers):
        if move is not None:
            moves.append(move)
            say(f"{move.number}: {len(move.ratios)} constants")
    if not moves:
        raise ValueError(f"no row has at most {most} scheduled instructions: raise --most")
    found = [constant_found(name, moves) for name in _NAMES]
    found.sort(key=lambda entry: (entry["untested"], -entry["moved"], entry["constant"]))
    return {
        "constants": CONSTANTS_VERSION,
        "most_instructions": most,
        "rows": len(moves),
        "numbers": [move.number for move in moves],
        "found": found,
    }


def write_sensitivity(record: dict[str, Any]) -> None:
    """Keep it for the page."""
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_sensitivity() -> dict[str, Any] | None:
    """What was found last, or None."""
    if not RECORD.exists():
        return None
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record
