"""`python -m nkisim time`: how long a kernel would take, and pictures of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nkisim.commands.kernel_call import add_kernel_options, kernel_asked, run_asked
from nkisim.machine import Reading
from nkisim.timing.report import json_report, svg_report, text_report, write_perfetto
from nkisim.timing.report.words import time_text
from nkisim.timing.schedule import schedule_launch
from nkisim.timing.timeline import Timeline

if TYPE_CHECKING:
    from nkisim.commands.kernel_call import Commands

_ALL: Final = "all"


def add_parser(commands: Commands) -> None:
    """Add the command to those of `python -m nkisim`."""
    parser = commands.add_parser("time", help="how long a kernel would take, modelled")
    add_kernel_options(parser)
    parser.add_argument(
        "--reading",
        default=Reading.default.value,
        choices=[*(reading.value for reading in Reading), _ALL],
        help="how to take what is not published; all compares them, details are the default's",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the engines over time")
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write a Perfetto trace")


def main(options: argparse.Namespace) -> int:
    """Print the report, write the files asked for; the exit code."""
    call = kernel_asked(options, values=False)
    result = run_asked(options, call, values=False)
    readings = list(Reading) if options.reading == _ALL else [Reading(options.reading)]
    launches = {
        reading: schedule_launch(result.traces, result.machine, reading, memories=result.memories)
        for reading in readings
    }
    for core in range(len(result.traces)):
        name = call.name if len(result.traces) == 1 else f"{call.name}, core {core}"
        _report(options, {reading: cores[core] for reading, cores in launches.items()}, core, name)
    return 0


def _report(
    options: argparse.Namespace, timelines: dict[Reading, Timeline], core: int, name: str
) -> None:
    """The report of one core; the clock is that of the launch."""
    readings = list(timelines)
    shown = timelines.get(Reading.default, timelines[readings[0]])
    sections = [text_report(shown, name)]
    if len(timelines) > 1:
        sections.insert(0, "\n".join(_comparison(name, timelines)))
    sys.stdout.write("\n\n".join(sections) + "\n")
    report = json_report(shown, name)
    report["makespan_ns_by_reading"] = {r.value: t.makespan_ns for r, t in timelines.items()}
    _write_files(options, shown, report, core)


def _comparison(name: str, timelines: dict[Reading, Timeline]) -> Iterator[str]:
    first = next(iter(timelines.values()))
    yield f"{name}: modelled, {first.machine.name}, constants {first.constants_version}, by reading"
    yield ""
    yield f"{'reading':<14}{'makespan':>14}{'latency':>14}{'MFU':>10}  bound"
    for reading, timeline in timelines.items():
        makespan, latency = time_text(timeline.makespan_ns), time_text(timeline.latency_ns)
        numbers = f"{makespan:>14}{latency:>14}{100 * timeline.mfu:>8.1f} %"
        yield f"{reading.value:<14}{numbers}  {timeline.bound}"


def _write_files(
    options: argparse.Namespace, timeline: Timeline, report: dict[str, Any], core: int
) -> None:
    name = str(report["kernel"])
    if options.json is not None:
        text = json.dumps(report, indent=2) + "\n"
        _of_core(options.json, core).write_text(text, encoding="utf-8")
    if options.svg is not None:
        _of_core(options.svg, core).write_text(svg_report(timeline, name) + "\n", encoding="utf-8")
    if options.perfetto is not None:
        write_perfetto(timeline, _of_core(options.perfetto, core), name, core)


def _of_core(file: Path, core: int) -> Path:
    """The file of a core: that of core 1 has a number in its name."""
    return file if core == 0 else file.with_name(f"{file.stem}.core{core}{file.suffix}")
