"""Reports of a timeline: for a terminal, for programs, for Perfetto, and as a picture."""

from nkisim.timing.report.as_json import json_report
from nkisim.timing.report.gaps import Gap, LaneUse, explain
from nkisim.timing.report.instruction import svg_instruction
from nkisim.timing.report.lines import LineUse, busiest_lines
from nkisim.timing.report.perfetto import perfetto_pieces, write_perfetto
from nkisim.timing.report.svg import svg_report
from nkisim.timing.report.text import text_report

__all__ = [
    "Gap",
    "LaneUse",
    "LineUse",
    "busiest_lines",
    "explain",
    "json_report",
    "perfetto_pieces",
    "svg_instruction",
    "svg_report",
    "text_report",
    "write_perfetto",
]
