"""The tables of the page: layers that sort, budgets and contenders with bars, readings, effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trnconv.report.content import (
    Budget,
    Contender,
    Effect,
    KindRow,
    LatencyRow,
    LayerRow,
    Report,
    by_times,
)
from trnconv.report.markup import tag, words
from trnconv.report.numbers import amount, change, duration, percent, times

_NO_VALUE = "\u2013"
_MODULE_CHARACTERS = 32


@dataclass(frozen=True)
class Cell:
    """What is shown and what is sorted by."""

    shown: str  # markup
    value: float | str


@dataclass(frozen=True)
class Column:
    """A heading of the table of layers."""

    name: str
    is_words: bool = False


COLUMNS = (
    Column("layer", is_words=True),
    Column("input"),
    Column("calls"),
    Column("one call"),
    Column("all calls"),
    Column("share"),
    Column("algorithm", is_words=True),
    Column("bound by", is_words=True),
    Column("TFLOP/s"),
    Column("of peak"),
    Column("FLOP/B"),
    Column("HBM"),
    Column("instr."),
    Column("baseline"),
)


def layer_table(report: Report) -> str:
    """Every layer; a heading is a button that sorts."""
    rows = [tag("tr", *_cells(row), id=f"layer-{row.number}") for row in report.layers]
    totals = report.totals
    foot = {
        0: "1 layer" if len(rows) == 1 else f"{len(rows)} layers",
        2: f"{totals.calls:,}",
        4: duration(totals.seconds),
        5: percent(1),
        11: amount(totals.hbm_bytes, "B"),
        12: amount(totals.static_instructions),
    }
    last = [
        tag("th" if not at else "td", words(foot.get(at, "")), class_=_class(column), scope=None)
        for at, column in enumerate(COLUMNS)
    ]
    caption = (
        "Equal convolutions are one layer. One call and its numbers are of one launch; all calls is"
        " the sum; HBM and instructions of all calls. TFLOP/s count the multiply-adds of a direct"
        " convolution. Baseline: how many times longer it takes. Headings sort."
    )
    return tag(
        "table",
        tag("caption", tag("span", words(caption))),
        tag("thead", tag("tr", *(_heading(column) for column in COLUMNS))),
        tag("tbody", *rows),
        tag("tfoot", tag("tr", *last)),
        class_="layers",
    )


def _class(column: Column) -> str | None:
    return "words" if column.is_words else None


def _heading(column: Column) -> str:
    button = tag("button", words(column.name), type="button")
    ordered = "descending" if column.name == "all calls" else None
    return tag("th", button, scope="col", class_=_class(column), aria_sort=ordered)


def _cells(row: LayerRow) -> Iterator[str]:
    for column, cell in zip(COLUMNS, _row(row), strict=True):
        attributes = {"class_": _class(column), "data_value": _exact(cell.value)}
        if column.name == "layer":
            yield tag("th", cell.shown, scope="row", **attributes)
        else:
            yield tag("td", cell.shown, **attributes)


def _exact(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value)


def _row(row: LayerRow) -> list[Cell]:
    slower = row.baseline_ns / row.ns if row.baseline_ns is not None else None
    moved = row.calls * row.hbm_bytes
    return [
        Cell(_name(row), f"{row.c_in:05d} {row.c_out:05d} {row.kernel}"),
        Cell(words(by_times(row.size)), _volume(row.size)),
        Cell(f"{row.calls:,}", row.calls),
        Cell(duration(row.ns / 1e9), row.ns),
        Cell(duration(row.total_ns / 1e9), row.total_ns),
        Cell(percent(row.share, 1), row.share),
        Cell(words(row.algorithm), row.algorithm),
        Cell(words(row.bound), row.bound),
        Cell(f"{row.tflops:.1f}", row.tflops),
        Cell(percent(row.of_peak), row.of_peak),
        Cell(f"{row.flop_per_byte:,.0f}", row.flop_per_byte),
        Cell(amount(moved, "B"), moved),
        Cell(amount(row.total_instructions), row.total_instructions),
        Cell(_NO_VALUE if slower is None else times(slower), -1.0 if slower is None else slower),
    ]


def _volume(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _name(row: LayerRow) -> str:
    strides = f", stride {by_times(row.stride)}" if set(row.stride) != {1} else ""
    rest = len(row.modules) - 1
    first = shortened(row.modules[0]) if row.modules else ""
    more = f" +{rest}" if rest > 0 else ""
    modules = tag("span", words(first + more), class_="modules", title=", ".join(row.modules))
    label = f"{row.number}\u2002{row.label}{strides}"
    return words(label) + modules


def shortened(module: str) -> str:
    """The last parts of a dotted name, as many as fit."""
    while len(module) > _MODULE_CHARACTERS and "." in module.lstrip("\u2026"):
        module = "\u2026" + module.lstrip("\u2026").partition(".")[2]
    return module


def budget_table(budgets: Sequence[Budget], caption: str) -> str:
    """Used and allowed, with bars."""
    rows = [
        tag(
            "tr",
            _noted_head(budget.name, budget.note),
            _bar(budget.used / budget.limit, "over" if budget.used > budget.limit else "own"),
            tag("td", words(_quantity(budget.used, budget.unit))),
            tag("td", words(f"of {_quantity(budget.limit, budget.unit)}")),
            tag("td", percent(budget.used / budget.limit)),
        )
        for budget in budgets
    ]
    heads = ("what", "", "used", "limit", "share")
    return _table(caption, heads, rows)


def kind_table(rows: Sequence[KindRow], caption: str) -> str:
    """What is no convolution, by kind."""
    lines = [
        tag(
            "tr",
            tag("th", words(row.kind), scope="row", class_="words"),
            _bar(row.seconds / rows[0].seconds, "own"),
            tag("td", duration(row.seconds)),
            tag("td", percent(row.share, 1)),
            tag("td", f"{row.calls}"),
            tag("td", words(amount(row.moved_bytes, "B"))),
            tag("td", words(amount(row.as_written_bytes, "B"))),
            tag("td", words(row.bound)),
            tag("td", words(row.price_of)),
        )
        for row in rows
    ]
    heads = ("what", "", "time", "of the whole", "calls", "HBM", "as written", "bound", "priced as")
    return _table(caption, heads, lines)


def latency_table(rows: Sequence[LatencyRow], caption: str) -> str:
    """Seconds by cores, with bars from zero."""
    longest = max(row.seconds for row in rows)
    lines = [
        tag(
            "tr",
            _noted_head(f"{row.cores} core{'s' if row.cores > 1 else ''}", row.how),
            _bar(row.seconds / longest, "" if row.bound else "own"),
            tag("td", words(f"{row.bound} {duration(row.seconds)}".strip())),
        )
        for row in rows
    ]
    return _table(caption, ("on", "", "time"), lines)


def _noted_head(name: str, note: str) -> str:
    """The head of a row, with a remark below."""
    remark = tag("span", words(note), class_="modules")
    return tag("th", words(name), remark, scope="row", class_="words")


def _quantity(value: float, unit: str) -> str:
    return f"{value:g} {unit}" if unit == "banks" else amount(value, unit)


def contender_table(contenders: Sequence[Contender], caption: str) -> str:
    """Times of the same work, with bars from zero."""
    longest = max(contender.seconds for contender in contenders)
    subject_seconds = next(contender.seconds for contender in contenders if contender.is_subject)
    rows = [
        tag(
            "tr",
            _noted_head(contender.name, contender.note),
            _bar(contender.seconds / longest, "own" if contender.is_subject else ""),
            tag("td", duration(contender.seconds)),
            tag("td", times(contender.seconds / subject_seconds)),
        )
        for contender in contenders
    ]
    return _table(caption, ("computed by", "", "time", "relative"), rows)


def _bar(share: float, kind: str) -> str:
    width = f"width:{100 * min(1.0, share):.1f}%"
    return tag("td", tag("span", tag("i", class_=kind or None, style=width)), class_="bar")


def reading_table(report: Report, caption: str) -> str:
    """The scheduled layers in every reading."""
    labels = {row.number: row.label for row in report.layers}
    rows = [
        tag(
            "tr",
            tag(
                "th",
                words(f"{reading.number}\u2002{labels[reading.number]}"),
                scope="row",
                class_="words",
            ),
            tag("td", duration(reading.cost_model_ns / 1e9)),
            tag("td", duration(reading.default_ns / 1e9)),
            *(
                _against(ns, reading.default_ns)
                for ns in (reading.optimistic_ns, reading.pessimistic_ns)
            ),
        )
        for reading in report.sensitivity.readings
    ]
    heads = ("layer", "cost model", "default", "optimistic", "pessimistic")
    return _table(caption, heads, rows)


def _against(ns: float, default_ns: float) -> str:
    small = tag("small", change(ns / default_ns - 1))
    return tag("td", f"{duration(ns / 1e9)} {small}")


def effect_table(effects: Sequence[Effect], caption: str) -> str:
    """What each open point alone does, with bars to both sides of no change."""
    most = max(
        max(abs(effect.optimistic_change), abs(effect.pessimistic_change)) for effect in effects
    )
    rows = [_effect_row(effect, most) for effect in effects]
    heads = ("open point", "optimistic", "default", "pessimistic", "", "changes the time by")
    return _table(caption, heads, rows)


def _effect_row(effect: Effect, most: float) -> str:
    changes = (effect.optimistic_change, effect.pessimistic_change)
    bars = [_side(value, most) for value in changes if value]
    written = " \u2026 ".join(change(value) for value in changes)
    values = (effect.optimistic, effect.default, effect.pessimistic)
    return tag(
        "tr",
        tag("th", tag("code", words(effect.name)), scope="row", class_="words"),
        *(tag("td", f"{value:,g}") for value in values),
        tag("td", tag("span", *bars), class_="effect"),
        tag("td", words(written)),
    )


def _side(value: float, most: float) -> str:
    width = 50 * abs(value) / most
    left = 50.0 if value > 0 else 50 - width
    kind = "slower" if value > 0 else "faster"
    return tag("i", class_=kind, style=f"left:{left:.1f}%;width:{width:.1f}%")


def _table(caption: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    headings = [
        tag("th", words(name), scope="col", class_=None if at else "words")
        if name
        else tag("td", aria_hidden="true")
        for at, name in enumerate(heads)
    ]
    return tag(
        "table",
        tag("caption", tag("span", words(caption))),
        tag("thead", tag("tr", *headings)),
        tag("tbody", *rows),
    )
