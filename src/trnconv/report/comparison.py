"""Two plans side by side: rows of numbers, which layers changed most, and a page of it.

A side is a document of `trnconv plan --json`: of this version, or one that another version wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from trnconv.problem.cores import describe_cores
from trnconv.report.markup import tag, words
from trnconv.report.numbers import amount, duration, times

Document = dict[str, Any]
_SHOWN = 8  # layers that changed most
_MANY = 1000  # from here on a prefix
_SAME = 0.001  # of a time: no change


@dataclass(frozen=True)
class ComparedRow:
    """A quantity of both sides, in a unit: s, B, or nothing."""

    what: str
    first: float
    second: float
    unit: str

    @property
    def ratio(self) -> float | None:
        """The second over the first; None where there is nothing to divide by."""
        return self.second / self.first if self.first else None


@dataclass(frozen=True)
class Comparison:
    """Both sides: what they are, their numbers, and the layers that changed most."""

    names: tuple[str, str]
    sides: tuple[str, str]  # model, size, machine and accuracy of each
    rows: tuple[ComparedRow, ...]
    layers: tuple[ComparedRow, ...]  # seconds of all calls
    only: tuple[tuple[str, ...], tuple[str, ...]]  # layers that one side alone has


def compared(names: tuple[str, str], first: Document, second: Document) -> Comparison:
    """What differs between two documents."""
    both = _layer_seconds(first), _layer_seconds(second)
    shared = [
        ComparedRow(name, both[0][name], both[1][name], "s") for name in both[0] if name in both[1]
    ]
    changed = [row for row in shared if abs(row.second - row.first) > _SAME * row.first]
    return Comparison(
        names,
        (describe_side(first), describe_side(second)),
        tuple(_rows(first, second)),
        tuple(sorted(changed, key=lambda row: -abs(row.second - row.first))[:_SHOWN]),
        (_only(both[0], both[1]), _only(both[1], both[0])),
    )


def describe_side(document: Document) -> str:
    """What was planned: model, size, machine, cores and accuracy, in a line."""
    size = document["size"]
    return (
        f"{document['model']['name']} {document['phase']} of {size['height']}x{size['width']}x"
        f"{size['frames']}, {document['machine']}, constants {document['constants_version']},"
        f" {describe_cores(document['cores'])}, accuracy {document['accuracy']},"
        f" {document['tuned']} tuned"
    )


def _rows(first: Document, second: Document) -> Iterator[ComparedRow]:
    for what, unit, value in _QUANTITIES:
        yield ComparedRow(what, value(first), value(second), unit)
    kinds = [
        {kind["kind"]: kind["ns"] / 1e9 for kind in document["operations"]}
        for document in (first, second)
    ]
    for kind in dict.fromkeys([*kinds[0], *kinds[1]]):
        before, after = (side.get(kind, 0.0) for side in kinds)
        yield ComparedRow(f"other operations: {kind}", before, after, "s")


def _named(key: str) -> Callable[[Document], float]:
    return lambda document: float(document[key])


_QUANTITIES: tuple[tuple[str, str, Callable[[Document], float]], ...] = (
    ("whole pass", "s", _named("whole_seconds")),
    ("convolutions", "s", _named("seconds")),
    ("other operations", "s", _named("operation_seconds")),
    ("convolution calls", "", _named("calls")),
    ("multiply-adds of direct convolutions", "", _named("multiply_adds")),
    ("instructions of the longest graph", "", _named("instructions")),
    ("hardware loops", "", _named("regions")),
    ("compiling, assumed", "s", _named("compile_s")),
    ("HBM traffic of convolutions", "B", _named("convolution_bytes")),
    ("copies", "B", _named("copied_bytes")),
    ("peak memory", "B", _named("peak_bytes")),
    ("tuned plans", "", _named("tuned")),
)


def _layer_seconds(document: Document) -> dict[str, float]:
    """Seconds of all calls, by module and what it convolves."""
    seconds: dict[str, float] = {}
    for layer in document["layers"]:
        name = f"{layer['modules'][0]}, {layer['convolution']}, {layer['input']}"
        seconds[name] = seconds.get(name, 0.0) + layer["total_ns"] / 1e9
    return seconds


def _only(side: dict[str, float], other: dict[str, float]) -> tuple[str, ...]:
    return tuple(name for name in side if name not in other)


def written(value: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "s":
        return duration(value) if value else "0 s"
    return amount(value, unit) if value >= _MANY else f"{value:g} {unit}".rstrip()


def describe_ratio(row: ComparedRow) -> str:
    """The second over the first: 0.84 x."""
    return "\u2013" if row.ratio is None else times(row.ratio)


def as_document(made: Comparison) -> Document:
    """The comparison as JSON."""
    return {
        "kind": "modelled",
        "names": list(made.names),
        "sides": list(made.sides),
        "rows": [{**asdict(row), "ratio": row.ratio} for row in made.rows],
        "layers": [{**asdict(row), "ratio": row.ratio} for row in made.layers],
        "only": [list(names) for names in made.only],
    }


def comparison_page(made: Comparison) -> str:
    """One HTML page that needs nothing else."""
    style = (resources.files("trnconv.report") / "data" / "page.css").read_text(encoding="utf-8")
    title = f"{made.names[0]} and {made.names[1]}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", words(f"{title}: modelled times")),
        tag("style", f"\n{style}"),
    )
    body = tag("body", tag("main", *_sections(made, title)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _sections(made: Comparison, title: str) -> Iterator[str]:
    lead = "All times are modelled, default reading; nothing was measured on a device."
    yield tag("header", tag("h1", words(title)), tag("p", words(lead), class_="lead"), _key(made))
    yield _section("Totals", made, made.rows)
    if made.layers:
        yield _section("Layers that changed most, all calls", made, made.layers)
    for name, only in zip(made.names, made.only, strict=True):
        if only:
            items = (tag("li", words(layer)) for layer in only)
            yield tag("section", tag("h2", words(f"Only in {name}")), tag("ul", *items))


def _key(made: Comparison) -> str:
    """Which bar is whose."""
    lines = (
        tag("li", tag("i", class_=kind), tag("b", words(name)), words(f": {side}"))
        for kind, name, side in zip((None, "own"), made.names, made.sides, strict=True)
    )
    return tag("ul", *lines, class_="key")


def _section(title: str, made: Comparison, rows: tuple[ComparedRow, ...]) -> str:
    heads = ("", "", *made.names, "second / first")
    head = tag("tr", *(tag("th", words(name), scope="col") for name in heads))
    table = tag("table", tag("thead", head), tag("tbody", *(_line(row) for row in rows)))
    return tag("section", tag("h2", words(title)), tag("div", table, class_="scroll"))


def _line(row: ComparedRow) -> str:
    longest = max(row.first, row.second) or 1.0
    bars = "".join(
        tag("span", tag("i", class_=kind, style=f"width:{100 * value / longest:.1f}%"))
        for value, kind in ((row.first, None), (row.second, "own"))
    )
    numbers = (written(value, row.unit) for value in (row.first, row.second))
    return tag(
        "tr",
        tag("th", words(row.what), scope="row", class_="words"),
        tag("td", bars, class_="bar"),
        *(tag("td", words(number)) for number in numbers),
        tag("td", words(describe_ratio(row))),
    )
