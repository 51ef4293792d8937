"""The report as one HTML page that needs nothing else: style, pictures and sorting are inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib import resources

from nkisim.machine_workarounds import MEASURED
from trnconv.problem.cores import describe_cores
from trnconv.report.content import LayerRow, Report, by_times
from trnconv.report.markup import tag, words
from trnconv.report.numbers import amount, change, duration, percent, times
from trnconv.report.roofline import roofline
from trnconv.report.tables import (
    budget_table,
    contender_table,
    effect_table,
    kind_table,
    latency_table,
    layer_table,
    reading_table,
)
from trnconv.report.timelines import timeline_figure

_HEAVY = 0.75  # of the time


def page(report: Report) -> str:
    """A whole document."""
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", words(f"{report.subject.title}: modelled times")),
        tag("style", _asset("page.css")),
    ]
    script = tag("script", _asset("sort.js"))
    body = tag("body", tag("main", *_sections(report)), _footer(report), script)
    document = tag("html", tag("head", *head), body, lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _asset(name: str) -> str:
    source = resources.files("trnconv.report") / "data" / name
    return "\n" + source.read_text(encoding="utf-8")


def _sections(report: Report) -> Iterator[str]:
    yield _header(report)
    if report.latencies:
        yield _latency(report)
    yield _where_time_goes(report)
    yield _layers(report)
    if report.others:
        yield _besides(report)
    if report.timelines:
        yield _engines(report)
    yield _budgets(report)
    yield _against_others(report)
    yield _assumptions(report)
    yield _modelled(report)
    yield _reproduce(report)


def _section(title: str, *content: str) -> str:
    anchor = title.lower().replace(" ", "-").replace(",", "")
    return tag("section", tag("h2", words(title), id=anchor), *content, aria_labelledby=anchor)


def _p(text: str, **attributes: object) -> str:
    return tag("p", words(text), **attributes)


def _scrolling(name: str, *content: str) -> str:
    """Wider than a phone: it scrolls by itself, with the keyboard too."""
    return tag("div", *content, class_="scroll", tabindex="0", role="region", aria_label=name)


def _header(report: Report) -> str:
    machine = report.machine
    lead = (
        f"Modelled on {describe_cores(machine.cores)} of {machine.name}. All times are"
        f" modelled (constants {machine.constants_version}, {machine.reading} reading);"
        f" {'no time' if MEASURED in machine.name else 'nothing'} here was measured on a device."
        f" trnconv {report.origin.trnconv_version}, {report.origin.date}."
    )
    figures = [
        tag("div", tag("dt", words(what)), tag("dd", words(number)))
        for number, what in _key_figures(report)
    ]
    return tag(
        "header",
        tag("h1", words(report.subject.title)),
        _p(lead, class_="lead"),
        tag("dl", *figures, class_="figures"),
    )


def _key_figures(report: Report) -> Iterator[tuple[str, str]]:
    totals, machine = report.totals, report.machine
    verb = report.subject.phase or "one call"
    yield (
        duration(totals.whole_seconds),
        f"{verb} on {describe_cores(machine.cores)}, accuracy {totals.accuracy}",
    )
    if totals.baseline_whole_seconds is not None:
        longer = times(totals.baseline_whole_seconds / totals.whole_seconds)
        slower = duration(totals.baseline_whole_seconds)
        yield longer, f"as fast as the baseline, which takes {slower}"
    if report.subject.kind == "model":
        yield duration(totals.seconds), "of it in convolutions"
    peak = totals.multiply_adds * 2 / totals.seconds / 1e12 / machine.peak_tflops
    beyond = (
        "; fast algorithms need fewer, so it may exceed 100\u00a0%" if _has_fast(report) else ""
    )
    direct = "of the Tensor engine\u2019s peak, counting the multiply-adds of direct convolutions"
    yield percent(peak), f"{direct}{beyond}"
    yield amount(totals.hbm_bytes, "B"), "moved to and from HBM by the convolutions"


def _has_fast(report: Report) -> bool:
    return any(row.algorithm != "direct" for row in report.layers)


def _latency(report: Report) -> str:
    verb = report.subject.phase
    caption = f"The whole {verb}, modelled; grey bars are bounds derived from the blue one."
    parts = [_scrolling("Latency", latency_table(report.latencies, caption))]
    if report.range_seconds is not None:
        least, most = (duration(seconds) for seconds in report.range_seconds)
        text = (
            f"The range is {least} if only convolutions took time to {most} if torch\u2019s other"
            " operators ran one by one: how a compiler fuses them is not modelled. Launch overhead"
            " is not included. To compare accuracies, machines or versions: trnconv compare."
        )
        parts.append(_p(text))
    return _section("Latency by number of cores", *parts)


def _where_time_goes(report: Report) -> str:
    heavy = _heaviest(report.layers)
    bounds = Counter(row.bound for row in report.layers)
    name, count = bounds.most_common(1)[0]
    sentence = (
        f"{_few(len(heavy), len(report.layers))} {percent(sum(row.share for row in heavy))} of the"
        f" convolutions\u2019 time. {count} of {len(report.layers)} are bound by"
        f" {describe_bound(name)}."
        if len(report.layers) > 1
        else f"The layer is bound by {describe_bound(name)}."
    )
    notes = _caption_of_roofline(report)
    figure = tag("figure", _scrolling("Roofline", roofline(report)), notes)
    return _section("Where the time goes", _p(sentence), figure)


def describe_bound(bound: str) -> str:
    """What the busiest resource is called."""
    named = {"dma": "DMA", "dma issue": "the issue of DMA", "evict": "eviction from PSUM"}
    return named.get(bound) or f"the {bound.capitalize()} engine"


def _heaviest(rows: tuple[LayerRow, ...]) -> list[LayerRow]:
    """The fewest layers that make most of the time."""
    heavy: list[LayerRow] = []
    for row in rows:
        if sum(earlier.share for earlier in heavy) >= _HEAVY:
            break
        heavy.append(row)
    return heavy


def _few(count: int, of: int) -> str:
    verb = "takes" if count == 1 else "take"
    return f"{count} of {of} layers {verb}"


def _caption_of_roofline(report: Report) -> str:
    keys = [("tensor", "the Tensor engine"), ("dma", "DMA"), ("vector", "the Vector engine")]
    seen = {row.bound for row in report.layers}
    bound = [f"{tag('b', words(text), class_=kind)}" for kind, text in keys if kind in seen]
    rest = "" if seen <= {kind for kind, _ in keys} else f", {tag('b', 'others', class_='other')}"
    fast = _has_fast(report)
    above = (
        " The multiply-adds of a direct convolution are counted, padding included. Fast algorithms"
        " need fewer, and taps that only read padding are skipped: such layers may lie above the"
        " roof."
        if fast
        else ""
    )
    text = (
        "Each dot is a layer; its area is its share of the time. Bound by "
        f"{', '.join(bound)}{rest}.{words(above)} Both axes are logarithmic."
    )
    return tag("figcaption", text)


def _layers(report: Report) -> str:
    return _section("Layers", _scrolling("Table of layers", layer_table(report)))


def _besides(report: Report) -> str:
    rest = report.totals.whole_seconds - report.totals.seconds
    text = (
        f"Other operations take {duration(rest)}, {percent(rest / report.totals.whole_seconds)} of"
        " the whole, if every operation is one kernel: ours where there is one, else a kernel that"
        " is limited by its bytes and products alone. Patched models use our kernels for norms and"
        " attention, and leave the rest to the compiler."
    )
    caption = (
        "Kinds of operations, by time; \u201cas written\u201d is one kernel per torch operator."
    )
    return _section(
        "Other operations",
        _p(text),
        _scrolling("Operations", kind_table(report.others, caption)),
    )


def _engines(report: Report) -> str:
    rows = {row.number: row for row in report.layers}
    parts = []
    for timeline in report.timelines:
        row = rows[timeline.number]
        heading = f"{timeline.number}  {row.label}, input {by_times(row.size)}"
        plan = f"{timeline.plan[0].upper()}{timeline.plan[1:]}. Bound: {timeline.bound}."
        plan += f" MFU {percent(timeline.mfu, 1)}."
        launches = f" The longest of {timeline.launches} launches." if timeline.launches > 1 else ""
        if len(timeline.ends_ns) > 1:
            other = duration(timeline.ends_ns[1 - timeline.core] / 1e9)
            launches += (
                f" Core {timeline.core} of two, which ends last; the other one ends at {other}."
            )
        figure = _scrolling(f"Timeline of layer {timeline.number}", timeline_figure(timeline, row))
        caption = tag("figcaption", words(plan + launches))
        parts.append(tag("figure", tag("h3", words(heading)), figure, caption))
    note = (
        "Left: utilisation of each engine over time; pale where iterations of a hardware loop"
        " repeat. The grey mark is the window that is shown on the right, with single instructions."
        " The number at the end of a lane is its share of the whole time; for DMA, the share in"
        " which a transfer is in flight."
    )
    title = "Engines on the slowest layers" if len(report.layers) > 1 else "Engines"
    return _section(title, _p(note), *parts)


def _budgets(report: Report) -> str:
    caption = "Limits and use. Peaks of on-chip memory are of traced launches."
    return _section(
        "Memory and instructions", _scrolling("Budgets", budget_table(report.budgets, caption))
    )


def _against_others(report: Report) -> str:
    totals = report.totals
    if totals.baseline_seconds is None:
        text = (
            "There is no stored time of the baseline for all of these convolutions on this machine;"
            " from a checkout, `python -m benchmarks models --trace` computes those of registered"
            " sizes."
        )
    else:
        factor = times(totals.baseline_seconds / totals.seconds)
        text = f"The baseline\u2019s convolutions take {factor} as long."
    caption = "The same work, modelled on the same machine; bars begin at zero."
    return _section(
        "Comparison with a baseline",
        _p(text),
        _scrolling("Comparison", contender_table(report.contenders, caption)),
    )


def _assumptions(report: Report) -> str:
    sensitivity = report.sensitivity
    parts = [
        _p(
            "Some hardware numbers are not published, or sources disagree. Each such open point has"
            " an optimistic, a default and a pessimistic value; a reading uses the same choice for"
            " all of them."
        )
    ]
    if sensitivity.readings:
        share = percent(sensitivity.scheduled_share)
        caption = (
            f"Layers that were traced and scheduled ({share} of the time), one call. The cost"
            " model of the planner, which the other sections use, beside the schedule."
        )
        parts += [_range(report), _scrolling("Readings", reading_table(report, caption))]
    if sensitivity.effects:
        caption = (
            f"Layer {sensitivity.effects_of}{sensitivity.effects_cut}: each open point alone, all"
            " others at their default."
        )
        parts.append(_scrolling("Open points", effect_table(sensitivity.effects, caption)))
    if sensitivity.without_effect:
        names = ", ".join(sensitivity.without_effect)
        parts.append(_p(f"Without effect on this layer: {names}.", class_="small"))
    return _section("Assumptions and their effect", *parts)


def _range(report: Report) -> str:
    rows = report.sensitivity.readings
    calls = {row.number: row.calls for row in report.layers}

    def total(reading: str) -> float:
        return sum(calls[row.number] * float(getattr(row, f"{reading}_ns")) for row in rows)

    default = total("default")
    low, high = (change(total(name) / default - 1) for name in ("optimistic", "pessimistic"))
    what = "Together these layers change" if len(rows) > 1 else "The layer changes"
    return _p(f"{what} by {low} in the optimistic reading and {high} in the pessimistic one.")


def _modelled(report: Report) -> str:
    lists = [
        tag("div", tag("h3", words(title)), tag("ul", *(tag("li", words(line)) for line in lines)))
        for title, lines in (("Modelled", report.modelled), ("Left out", report.left_out))
    ]
    return _section("What is modelled, and what is not", tag("div", *lists, class_="two"))


def _reproduce(report: Report) -> str:
    origin = report.origin
    text = f"With trnconv {origin.trnconv_version} (nkisim {origin.nkisim_version}), Python"
    text += f" {origin.python_version}; convolutions: {report.subject.source}."
    command = tag("pre", tag("code", words(origin.command)), tabindex="0")
    return _section("How to reproduce this", command, _p(text, class_="small"))


def _footer(report: Report) -> str:
    text = (
        f"trnconv {report.origin.trnconv_version}, {report.origin.date}. AWS, Trainium and Neuron"
        " are trademarks of Amazon; this project is independent of Amazon."
    )
    return tag("footer", _p(text, class_="small"))
