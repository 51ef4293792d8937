"""docs/validation.md from outcomes, and from what is on record beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from validation import draw, page_text
from validation.correlation import log_correlation
from validation.differences import difference
from validation.history import VERSIONS, Change, Version
from validation.markdown import duration, percent, table
from validation.outcome import Outcome
from validation.predictions import Prediction
from validation.row import GROUPS
from validation.sets import FITTED, HELD, SETS
from validation.summary import Summary, of_set, set_lines, summarise


@dataclass(frozen=True)
class Wish:
    """What we wanted of the rows of a set: a statistic, and a limit to it."""

    set_name: str
    what: str
    statistic: Callable[[Summary], float]
    limit: float
    at_most: bool = False  # else at least

    def cells(self, summary: Summary | None) -> tuple[str, ...]:
        """The line of the table; a set without rows has no summary."""
        asked = f"at {'most' if self.at_most else 'least'} {100 * self.limit:.0f} %"
        if summary is None:
            return self.set_name, self.what, asked, "no rows", "-"
        value = self.statistic(summary)
        reached = value <= self.limit if self.at_most else value >= self.limit
        return self.set_name, self.what, asked, percent(value), "yes" if reached else "no"


WANTED = (
    Wish(FITTED, "median \\|error\\|", lambda summary: summary.median_error, 0.08, at_most=True),
    Wish(HELD, "median \\|error\\|", lambda summary: summary.median_error, 0.15, at_most=True),
    Wish(HELD, "rows within 40 %", lambda summary: summary.within_40 / summary.rows, 0.85),
    Wish(HELD, "rows inside the interval", lambda summary: summary.inside / summary.rows, 0.75),
)


@dataclass(frozen=True)
class Beside:
    """What the page shows beside the outcomes."""

    predictions: Mapping[str, Prediction] = field(default_factory=dict)  # by number of the row
    sensitivity: Mapping[str, Any] | None = None
    library: Sequence[dict[str, Any]] = ()


def render(outcomes: Sequence[Outcome], beside: Beside) -> str:
    """The whole page."""
    lines = "\n".join(set_lines(outcomes, [outcome.row for outcome in outcomes]))
    return (
        "".join(
            (
                page_text.HEAD.format(version=CONSTANTS_VERSION, summary=lines),
                _wanted(outcomes),
                page_text.SETS,
                _not_recreated(getattr(draw, "NOT_RECREATED", {})),
                *(_set_table(name, of_set(outcomes, name), beside) for name in SETS),
                _groups(outcomes),
                page_text.CORRELATION + _correlations(outcomes),
                page_text.HISTORY + _history(),
                page_text.CHOSEN + _chosen_after(outcomes),
                _streams(outcomes),
                _sensitivity(beside.sensitivity),
                page_text.BOUNDS,
                page_text.LEFT_OUT,
                page_text.NOT_HERE,
                _library(beside.library),
            )
        ).rstrip("\n")
        + "\n"
    )


def _wanted(outcomes: Sequence[Outcome]) -> str:
    summaries = {name: summarise(members) for name in SETS if (members := of_set(outcomes, name))}
    lines = [wish.cells(summaries.get(wish.set_name)) for wish in WANTED]
    far = [outcome.row.number for outcome in outcomes if outcome.error > 0.40]
    beyond = (
        f"Beyond 40 %: rows {', '.join(far)}; what each lacks is said in its row.\n\n"
        if far
        else "No row is beyond 40 %.\n\n"
    )
    columns = ("set", "what we wanted", "limit", "is", "reached")
    return table(columns, lines) + "\n" + beyond


def _not_recreated(reasons: Mapping[str, str]) -> str:
    """The rows that were listed for the draw and have no kernel, with the reason of each."""
    if not reasons:
        return ""
    listed = "".join(f"- **{number}** {reason}\n" for number, reason in reasons.items())
    return f"Listed for the draw, and not re-created:\n\n{listed}\n"


def _set_table(name: str, outcomes: Sequence[Outcome], beside: Beside) -> str:
    title = f"### {name.capitalize()}\n\n"
    if not outcomes:
        return f"{title}No rows yet.\n\n"
    columns = [
        *("row", "group", "kernel", "machine", "published", "modelled", "ratio", "interval"),
        *("bound", "where they differ"),
    ]
    lines = [_cells(outcome) for outcome in outcomes]
    if name == HELD:
        columns.append("predicted")
        for line, outcome in zip(lines, outcomes, strict=True):
            line.append(predicted(outcome, beside.predictions))
    return f"{title}{summarise(outcomes)}.\n\n{table(columns, lines)}\n"


def _cells(outcome: Outcome) -> list[str]:
    row, modelled = outcome.row, outcome.modelled
    published = duration(row.published_us)
    if row.published_as:
        published = f"{row.published_as} = {published}"
    low, high = modelled.interval_us
    mark = "" if outcome.inside else " (outside)"
    cores = f", {row.cores} cores" if row.cores > 1 else ""
    return [
        row.number,
        row.group,
        row.title,
        f"{row.machine} {row.dtype}{cores}",
        published,
        duration(modelled.default_us),
        f"{outcome.ratio:.2f}",
        f"{duration(low)} to {duration(high)}{mark}",
        modelled.bound,
        difference(row),
    ]


def predicted(outcome: Outcome, predictions: Mapping[str, Prediction]) -> str:
    """When a row was predicted, and whether the model still says the same."""
    prediction = predictions.get(outcome.row.number)
    if prediction is None:
        return "never"
    if prediction.agrees(outcome.modelled):
        return f"{prediction.date}, as now"
    return f"{prediction.date}: {duration(prediction.default_us)}, changed since"


def _groups(outcomes: Sequence[Outcome]) -> str:
    lines = []
    for group in GROUPS:
        for name in SETS:
            members = [outcome for outcome in of_set(outcomes, name) if outcome.row.group == group]
            if members:
                lines.append((group, name, *_counts(summarise(members))))
    columns = (
        "group",
        "set",
        "median \\|error\\|",
        "within 15 %",
        "within 40 %",
        "inside interval",
    )
    return "## By group\n\n" + table(columns, lines) + "\n"


def _counts(summary: Summary) -> tuple[str, ...]:
    counted = (summary.within_15, summary.within_40, summary.inside)
    return percent(summary.median_error), *(f"{count}/{summary.rows}" for count in counted)


def _correlations(outcomes: Sequence[Outcome]) -> str:
    lines = []
    for name in (*SETS, "all"):
        members = outcomes if name == "all" else of_set(outcomes, name)
        found = log_correlation(members)
        lines.append((name, str(len(members)), "-" if found is None else f"{found:.4f}"))
    return table(("set", "rows", "correlation of logarithms"), lines) + "\n"


def _history() -> str:
    lines = [line for version in VERSIONS for line in _version_lines(version)]
    return table(("version", "what", "before", "after", "why", "led to by rows"), lines) + "\n"


def _version_lines(version: Version) -> Iterator[tuple[str, ...]]:
    statistics = f" {version.line[0].upper()}{version.line[1:]}." if version.line else ""
    summary = (version.summary + statistics).replace("|", "\\|")
    yield f"**{version.version}**", summary, "", "", "", ""
    for change in version.changes:
        yield version.version, *_change_cells(change)


def _change_cells(change: Change) -> tuple[str, ...]:
    rows = ", ".join(change.moved_by) or "not on record"
    return change.name, change.before, change.after, change.why, rows


def _chosen_after(outcomes: Sequence[Outcome]) -> str:
    rows = [outcome.row for outcome in outcomes if outcome.row.chosen_after]
    return "".join(f"- **{row.number}** {row.chosen_after}\n" for row in rows) + "\n"


def _streams(outcomes: Sequence[Outcome]) -> str:
    lines = ["## Streams and sources", ""]
    for outcome in outcomes:
        row = outcome.row
        lines.append(f"- **{row.number}** {row.stream} Source: {row.source}; {_span(outcome)}.")
    return "\n".join(lines) + "\n\n"


def _span(outcome: Outcome) -> str:
    row = outcome.row
    if row.repeats:
        return f"slope of {row.repeats} and {2 * row.repeats} repeats"
    if not row.includes_launch:
        return "without launch"
    if row.launch_us is None:
        return "with launch"
    return f"with the source's launch of {duration(row.launch_us)}"


def _sensitivity(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return ""
    intro = page_text.SENSITIVITY.format(
        rows=record["rows"], most=record["most_instructions"], version=record["constants"]
    )
    columns = (
        *("constant", "trn1", "trn2", "median \\|error\\|, less / more, points", "median ratio"),
        *("rows moved by more than 1 %", "largest move"),
    )
    return (
        intro + table(columns, [_sensitivity_cells(finding) for finding in record["found"]]) + "\n"
    )


def _sensitivity_cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    values = [entry["tried"].get(machine, "-") for machine in ("trn1", "trn2")]
    if entry["untested"]:
        return f"`{entry['constant']}`", *values, "0", "0", "0", "**untested**"
    errors = " / ".join(f"{100 * error:+.2f}" for error in entry["median_error"])
    ratios = " / ".join(f"{ratio:+.4f}" for ratio in entry["median_ratio"])
    largest = f"{100 * entry['largest']:+.1f} % (row {entry['largest_row']})"
    return f"`{entry['constant']}`", *values, errors, ratios, str(entry["moved"]), largest


def _library(entries: Sequence[dict[str, Any]]) -> str:
    if not entries:
        return ""
    columns = ("kernel", "machine", "commit", "cases", "largest error", "tolerance", "note")
    return page_text.LIBRARY + table(columns, map(_library_cells, entries))


def _library_cells(entry: dict[str, Any]) -> tuple[str, ...]:
    error, tolerance = (
        "-" if entry[name] is None else str(entry[name]) for name in ("max_error", "tolerance")
    )
    commit, machine = entry["commit"][:7], entry.get("machine", "")
    return (entry["kernel"], machine, commit, str(entry["cases"]), error, tolerance, entry["note"])
