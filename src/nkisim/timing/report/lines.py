"""The time of a timeline by lines of the kernel's source."""

from __future__ import annotations

from typing import NamedTuple

from nkisim.source_lines import CallSite, SourceLine
from nkisim.timing.report.lanes import lanes_of, times_run
from nkisim.timing.timeline import Timeline
from nkisim.trace import Instruction


class LineUse(NamedTuple):
    """What a line of source did on one lane; extrapolated iterations count too."""

    place: SourceLine
    lane: str
    instructions: int
    occupied_ns: float  # busy; of a DMA direction: of what was in flight


def place_text(instruction: Instruction) -> str:
    """The line that issued an instruction, as "first.py:31"; empty if nobody noted it."""
    place = instruction.place
    return "" if place is None else place.short


def busiest_lines(timeline: Timeline) -> list[LineUse]:
    """Lines and lanes that took time, the longest first; empty if no line was noted."""
    times = times_run(timeline)
    places: dict[CallSite, SourceLine] = {}
    found: dict[tuple[SourceLine, str], tuple[int, float]] = {}
    for lane in lanes_of(timeline):
        for block in lane.blocks():
            site = timeline.events.instructions[block.row].site
            if site is None:
                continue
            place = places.get(site) or places.setdefault(site, site.place)
            count, ns = found.get((place, lane.name), (0, 0.0))
            repeats = times[block.row]
            ns += (block.end_ns - block.begin_ns) * repeats
            found[place, lane.name] = (count + (0 if block.table_load else repeats), ns)
    uses = [LineUse(place, lane, *use) for (place, lane), use in found.items()]
    return sorted(uses, key=lambda use: -use.occupied_ns)
