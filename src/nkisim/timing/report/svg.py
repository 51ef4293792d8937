"""A picture of the engines over time, as SVG that needs nothing but a viewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from nkisim.timing.report.axis import Axis
from nkisim.timing.report.density import Columns, Span, Wide, shapes
from nkisim.timing.report.gaps import LaneUse, explain, gaps_of
from nkisim.timing.report.lanes import Lane, lanes_of, times_run
from nkisim.timing.report.lines import busiest_lines
from nkisim.timing.report.palette import FAINT_INK, GRID, INK, LANE, PAPER, colours
from nkisim.timing.report.svg_elements import FONT, bands, box, line, shortened, text, width_px
from nkisim.timing.report.words import time_text, title
from nkisim.timing.timeline import Timeline

WIDTH_PX: Final = 1200
_MARGIN_PX: Final = 24
_LEFT_PX: Final = 132  # of the lanes; names stand before it
_RIGHT_PX: Final = 1104  # shares stand after it
_TOP_PX: Final = 96
_LANE_PX: Final = 34
_WAIT_PX: Final = 4  # the line below a lane
_PITCH_PX: Final = 54
_SEAM_PX: Final = 0.6  # between blocks that touch
_LINE_PX: Final = 19
_MOST_LINES: Final = 6
_MOST_TOOLTIPS: Final = 1500  # a picture of a long kernel does without, to stay small


def svg_report(timeline: Timeline, name: str) -> str:
    """A modelled run of the kernel called `name`."""
    return "\n".join(_Picture(timeline, name).elements())


class _Picture:
    """Everything the parts of one picture share."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.timeline = timeline
        self.name = name
        self.axis = Axis(timeline, _LEFT_PX, _RIGHT_PX)
        self.lanes = lanes_of(timeline)
        self.uses = {use.lane: use for use in explain(timeline)}
        self.counts = self._count_ops()
        self.colours = colours(self.counts)
        self.merged = False  # whether some columns stand for several instructions
        self.floor_px = _TOP_PX + _PITCH_PX * len(self.lanes)
        self.tooltips = len(timeline.events) <= _MOST_TOOLTIPS

    def _count_ops(self) -> Counter[str]:
        times, counts = times_run(self.timeline), Counter[str]()
        for lane in self.lanes:
            for block in lane.blocks():
                counts[block.op(self.timeline.events)] += times[block.row]
        return counts

    def elements(self) -> Iterator[str]:
        """The lines of the file."""
        body = [*self._heading(), *self._grid(), *self._all_lanes(), *self._cuts()]
        below, height = self._below(self.floor_px + 40)
        label = escape(f"{self.name}: {self.timeline.label}")
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height:.0f}"'
            f' width="{WIDTH_PX}" height="{height:.0f}" font-family="{FONT}" role="img">'
        )
        yield f"<title>{label}</title>"
        yield "<desc>Engines of one NeuronCore over time. Every time is modelled.</desc>"
        yield _HATCH
        yield box((0, 0), (WIDTH_PX, height), PAPER)
        yield from body
        yield from below
        yield "</svg>"

    def _heading(self) -> Iterator[str]:
        timeline = self.timeline
        head = f"{self.name}: {time_text(timeline.makespan_ns)}"
        room = WIDTH_PX - 2 * _MARGIN_PX
        yield text((_MARGIN_PX, 34), shortened(head, 20, room), 20, INK, 'font-weight="600"')
        yield text((_MARGIN_PX, 56), shortened(timeline.label, 13, room), 13, INK)
        facts = (
            f"bound: {timeline.bound}",
            f"MFU {100 * timeline.mfu:.1f} %",
            f"HBM {timeline.hbm_bytes / 1e6:,.1f} MB at {timeline.hbm_gb_per_s:,.1f} GB/s",
            f"{timeline.executed_instructions:,} instructions",
            f"launch of {time_text(timeline.launch_ns)} not drawn",
        )
        words = shortened("  ·  ".join(facts), 12, room)
        yield text((_MARGIN_PX, 76), words, 12, FAINT_INK)

    def _grid(self) -> Iterator[str]:
        taken_px = 0.0
        for x, number in self.axis.ticks():
            yield line((x, _TOP_PX - 6), (x, self.floor_px), GRID)
            half = width_px(number, 11) / 2
            if x - half > taken_px:
                style = 'text-anchor="middle"'
                yield text((x, self.floor_px + 15), number, 11, FAINT_INK, style)
                taken_px = x + half + 8
        _, unit = self.axis.unit
        place, style = (_LEFT_PX - 12, self.floor_px + 15), 'text-anchor="end"'
        yield text(place, f"time, {unit}", 11, FAINT_INK, style)

    def _all_lanes(self) -> Iterator[str]:
        for number, lane in enumerate(self.lanes):
            top = _TOP_PX + _PITCH_PX * number
            yield from self._lane_words(self.uses[lane.name], top)
            yield box((_LEFT_PX, top), (_RIGHT_PX - _LEFT_PX, _LANE_PX), LANE)
            yield from self._shapes(self._work(lane), top, _LANE_PX)
            yield from self._shapes(self._waits(lane), top + _LANE_PX + 2, _WAIT_PX, seam=False)

    def _lane_words(self, use: LaneUse, top: float) -> Iterator[str]:
        end = 'text-anchor="end"'
        middle = top + _LANE_PX / 2
        yield text((_LEFT_PX - 12, middle - 1), use.lane, 13, INK, f'{end} font-weight="600"')
        plural = "" if use.instructions == 1 else "s"
        count = f"{use.instructions:,} instruction{plural}"
        yield text((_LEFT_PX - 12, middle + 13), count, 10, FAINT_INK, end)
        makespan = self.timeline.makespan_ns
        share = f"{100 * use.occupied_ns / makespan if makespan else 0.0:.1f} %"
        yield text((_RIGHT_PX + 14, middle - 1), share, 13, INK, 'font-weight="600"')
        kind = "in flight" if use.is_dma else "busy"
        yield text((_RIGHT_PX + 14, middle + 13), kind, 10, FAINT_INK)

    def _work(self, lane: Lane) -> Iterator[Span]:
        events = self.timeline.events
        for block in lane.blocks():
            if not self.axis.hides(block.begin_ns, block.end_ns):
                yield Span(block.begin_ns, block.end_ns, block.op(events), block.row)

    def _waits(self, lane: Lane) -> Iterator[Span]:
        """Idle time that another instruction caused, in the colour of that instruction."""
        events = self.timeline.events
        for gap in gaps_of(lane, self.timeline):
            if gap.cause >= 0:
                op = events.instructions[gap.cause].op
                yield Span(gap.end_ns - gap.wait_ns, gap.end_ns, op, gap.cause)

    def _shapes(
        self, spans: Iterable[Span], top: float, height: float, *, seam: bool = True
    ) -> Iterator[str]:
        wide, columns = shapes(spans, self.axis)
        self.merged = self.merged or bool(columns and seam)
        for op in sorted({column.op for column in columns}):
            yield bands(_corners(columns, op, top, height), self.colours[op])
        for block in wide:
            room = (
                block.right_px
                - block.left_px
                - (_SEAM_PX if seam and block.instructions == 1 else 0.0)
            )
            size = (room, height)
            yield box(
                (block.left_px, top), size, self.colours[block.op], self._tooltip(block, seam=seam)
            )

    def _tooltip(self, block: Wide, *, seam: bool) -> str:
        if not self.tooltips:
            return ""
        more = f" and {block.instructions - 1:,} more" if block.instructions > 1 else ""
        words = f"{title(self.timeline.events, block.row)}{more}: {time_text(block.ns)}"
        place = self.timeline.events.instructions[block.row].place
        if place is not None:
            words += f"\n{place.short}: {place.source}"
        return words if seam else f"waiting for {words}"

    def _cuts(self) -> Iterator[str]:
        for piece in self.axis.pieces:
            if piece.cut is None:
                continue
            left, width = piece.left_px, piece.right_px - piece.left_px
            height = self.floor_px - _TOP_PX
            yield box((left, _TOP_PX - 6), (width, height + 6), "url(#hatch)")
            words = (
                f"{piece.cut.iterations:,} iterations",
                f"of {time_text(piece.cut.ns_per_iteration)}",
                "extrapolated",
            )
            middle_y = _TOP_PX + height / 2
            yield box((left + 4, middle_y - 26), (width - 8, 50), PAPER)
            for number, word in enumerate(words):
                place = (left + width / 2, middle_y - 11 + 14 * number)
                fitting = shortened(word, 10.5, width - 8)
                yield text(place, fitting, 10.5, INK, 'text-anchor="middle"')

    def _below(self, top: float) -> tuple[list[str], float]:
        """Legend, idle times and notes; where they end."""
        parts, y = self._legend(top)
        y += _LINE_PX + 6
        parts.append(text((_MARGIN_PX, y), "Idle time, us", 12, INK, 'font-weight="600"'))
        room = WIDTH_PX - _LEFT_PX - _MARGIN_PX
        for use in self.uses.values():
            y += _LINE_PX
            style = 'text-anchor="end"'
            parts.append(text((_LEFT_PX - 12, y), use.lane, 12, INK, style))
            words = shortened(use.idle_text.replace(" us:", ":", 1), 12, room)
            parts.append(text((_LEFT_PX, y), words, 12, INK))
        for number, words in enumerate(self._busiest()):
            y += _LINE_PX + (6 if number == 0 else 0)
            style = 'font-weight="600"' if number == 0 else ""
            fitting = shortened(words, 12, WIDTH_PX - 2 * _MARGIN_PX)
            parts.append(text((_MARGIN_PX, y), fitting, 12, INK, style))
        y += 8
        for note in self._notes():
            y += _LINE_PX - 3
            parts.append(text((_MARGIN_PX, y), note, 11, FAINT_INK))
        return parts, y + _MARGIN_PX

    def _busiest(self) -> Iterator[str]:
        """The lines of source that took most time."""
        makespan = self.timeline.makespan_ns
        uses = busiest_lines(self.timeline)[:_MOST_LINES]
        if uses:
            yield "Busiest lines of the kernel"
        for use in uses:
            share = f"{100 * use.occupied_ns / makespan if makespan else 0.0:.1f} %"
            facts = f"{use.lane}, {time_text(use.occupied_ns)} ({share})"
            yield f"{use.place.short}: {facts}:  {use.place.source}"

    def _legend(self, top: float) -> tuple[list[str], float]:
        parts: list[str] = []
        x, y = float(_LEFT_PX), top
        for op, count in self.counts.most_common():
            words = f"{op} ({count:,})"
            width = 18 + width_px(words, 12) + 14
            if x + width > WIDTH_PX - _MARGIN_PX and x > _LEFT_PX:
                x, y = float(_LEFT_PX), y + _LINE_PX
            parts.append(box((x, y - 10), (12, 12), self.colours[op]))
            parts.append(text((x + 18, y), words, 12, INK))
            x += width
        return parts, y

    def _notes(self) -> Iterator[str]:
        yield (
            "The line below a lane: it is idle and waits for an instruction of that colour."
            " DMA is drawn from issue, or the end of the transfer before, to the last byte."
        )
        if self.merged:
            yield (
                "Narrow neighbours are merged. Where a column is lower than its lane, its height is"
                " the share of the time in which the engine was busy."
            )
        if self.timeline.elisions:
            yield "Hatched: loop iterations like the last one drawn, cut out of the time axis."


_HATCH: Final = (
    '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect width="7" height="7" fill="#ffffff"/>'
    f'<rect width="1.5" height="7" fill="{GRID}"/></pattern></defs>'
)


def _corners(
    columns: list[Columns], op: str, top: float, height: float
) -> Iterator[tuple[float, float, float, float]]:
    for column in columns:
        if column.op == op:
            high, low = top + height * (1 - column.high), top + height * (1 - column.low)
            yield column.left_px, high, column.right_px, low
