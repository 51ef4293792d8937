"""Timelines of the heaviest layers: lanes over the whole time, and beside it a window of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, log10

from trnconv.report.content import LaneStrip, LayerRow, LayerTimeline
from trnconv.report.markup import path, tag, words
from trnconv.report.numbers import duration, percent

WIDTH = 1040
_NAMES, _GAP = 96, 28
_WHOLE = (_NAMES, 516)
_WINDOW = (_WHOLE[1] + _GAP, 964)
_TOP, _LANE, _PITCH = 26, 20, 28
_TICKS = 4
Span = tuple[float, float]


def timeline_figure(timeline: LayerTimeline, row: LayerRow) -> str:
    """An SVG figure of one layer; colours are those of the page's style."""
    floor_px = _TOP + _PITCH * len(timeline.strips)
    title = (
        f"Engines of core {timeline.core} over time, layer {timeline.number}, {row.label}, modelled"
    )
    whole, window = (0.0, timeline.ns), (timeline.window_begin_ns, timeline.window_end_ns)
    heads = [
        _head(_WHOLE, f"the whole launch, {duration(timeline.ns / 1e9)}: share of time at work"),
        _head(_WINDOW, f"{duration((window[1] - window[0]) / 1e9)} of it: what is at work"),
    ]
    parts = [*heads, *_window_mark(window, whole, floor_px)]
    for place, strip in enumerate(timeline.strips):
        parts += _lane(strip, _TOP + _PITCH * place, timeline)
    parts += _repeats(timeline, floor_px)
    parts += _axis(whole, _WHOLE, floor_px)
    parts += _axis(window, _WINDOW, floor_px)
    return tag(
        "svg",
        tag("title", words(title)),
        *parts,
        viewBox=f"0 0 {WIDTH} {floor_px + 26}",
        role="img",
        aria_label=title,
        class_="figure",
    )


def _head(panel: tuple[int, int], text: str) -> str:
    return tag("text", words(text), x=panel[0], y=_TOP - 12, class_="tick")


def _px(ns: float, span: Span, panel: tuple[int, int]) -> float:
    return panel[0] + (ns - span[0]) / (span[1] - span[0]) * (panel[1] - panel[0])


def _lane(strip: LaneStrip, top: float, timeline: LayerTimeline) -> Iterator[str]:
    kind = "dma" if strip.is_dma else strip.lane
    yield tag("text", strip.lane, x=_NAMES - 10, y=top + 14, class_="label", text_anchor="end")
    for panel in (_WHOLE, _WINDOW):
        width = panel[1] - panel[0]
        yield tag("rect", x=panel[0], y=top, width=width, height=_LANE, class_="lane")
    about = tag("title", words(f"{strip.lane}: idle {strip.idle}"))
    yield tag("path", about, d=_steps(strip.levels, top), class_=f"work {kind}")
    window = (timeline.window_begin_ns, timeline.window_end_ns)
    for block in strip.blocks:
        left, right = _px(block.begin_ns, window, _WINDOW), _px(block.end_ns, window, _WINDOW)
        name = tag("title", words(f"{block.op}, {duration((block.end_ns - block.begin_ns) / 1e9)}"))
        shape = {"x": left, "y": top, "width": max(0.6, right - left), "height": _LANE}
        yield tag("rect", name, **shape, class_=f"work {kind}")
    yield tag(
        "text", percent(strip.share), x=WIDTH - 8, y=top + 14, class_="label", text_anchor="end"
    )


def _steps(levels: tuple[float, ...], top: float) -> str:
    """The outline of equal columns."""
    base, width = top + _LANE, (_WHOLE[1] - _WHOLE[0]) / len(levels)
    points: list[tuple[float, float]] = [(_WHOLE[0], base)]
    for place, level in enumerate(levels):
        y = base - level * _LANE
        points += [(_WHOLE[0] + place * width, y), (_WHOLE[0] + (place + 1) * width, y)]
    return path([*points, (_WHOLE[1], base)], closed=True)


def _window_mark(window: Span, whole: Span, floor_px: float) -> Iterator[str]:
    left, right = (_px(ns, whole, _WHOLE) for ns in window)
    width, height = max(1.5, right - left), floor_px - _TOP + 2
    yield tag("rect", x=left, y=_TOP - 6, width=width, height=height, class_="mark")


def _repeats(timeline: LayerTimeline, floor_px: float) -> Iterator[str]:
    whole = (0.0, timeline.ns)
    for begin, end in timeline.extrapolated:
        left, right = _px(begin, whole, _WHOLE), _px(end, whole, _WHOLE)
        height = floor_px - _TOP - (_PITCH - _LANE)
        note = tag("title", "iterations of a hardware loop that repeat, extrapolated")
        shape = {"x": left, "y": _TOP, "width": right - left, "height": height}
        yield tag("rect", note, **shape, class_="repeats")


def _axis(span: Span, panel: tuple[int, int], floor_px: float) -> Iterator[str]:
    step = _round_step((span[1] - span[0]) / _TICKS)
    scale, unit = (1e6, "ms") if span[1] >= 2e6 else (1e3, "\u00b5s")
    digits = max(0, -floor(log10(step / scale) + 1e-9))
    number = -(-span[0] // step)
    while number * step <= span[1]:
        at = _px(number * step, span, panel)
        yield tag("line", x1=at, x2=at, y1=floor_px - 4, y2=floor_px, class_="axis")
        text = f"{number * step / scale:,.{digits}f}"
        last = (number + 1) * step > span[1]
        anchor = "start" if at < panel[0] + 8 else "middle"
        written = f"{text} {unit}" if last else text
        yield tag("text", written, x=at, y=floor_px + 13, class_="tick", text_anchor=anchor)
        number += 1


def _round_step(least: float) -> float:
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))
