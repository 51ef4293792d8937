"""`python -m nkisim time`: how long an example kernel would take, and pictures of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nkisim.machine import MACHINES, TRN2, Reading
from nkisim.running.kernel import run
from nkisim.timing.report import json_report, svg_report, text_report, write_perfetto
from nkisim.timing.report.wording import time_text
from nkisim.timing.schedule import schedule
from nkisim.timing.timeline import Timeline

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 (no public name)

_ALL: Final = "all"
_UNKNOWN_EXAMPLE: Final = 2  # as argparse exits


def add_parser(commands: Commands) -> None:
    """Add the command to those of `python -m nkisim`."""
    parser = commands.add_parser("time", help="how long an example kernel would take, modelled")
    parser.add_argument(
        "--example", required=True, metavar="NAME", help="of nkisim.examples; a wrong one lists all"
    )
    parser.add_argument("--target", default=TRN2.name, choices=sorted(MACHINES))
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
    # Importing the examples stands in for a real nki for a moment; other commands need not see it.
    from nkisim.examples import EXAMPLES  # noqa: PLC0415

    if options.example not in EXAMPLES:
        known = ", ".join(sorted(EXAMPLES))
        sys.stderr.write(f"time: unknown example {options.example!r}; there are {known}\n")
        return _UNKNOWN_EXAMPLE
    example = EXAMPLES[options.example]
    result = run(example.kernel, *example.arguments, target=options.target, values=False, lnc=1)
    readings = list(Reading) if options.reading == _ALL else [Reading(options.reading)]
    timelines = {
        reading: schedule(result.trace, result.machine, reading, memory=result.memory)
        for reading in readings
    }
    shown = timelines.get(Reading.default, timelines[readings[0]])
    sections = [text_report(shown, options.example)]
    if len(timelines) > 1:
        sections.insert(0, "\n".join(_comparison(options.example, timelines)))
    sys.stdout.write("\n\n".join(sections) + "\n")
    report = json_report(shown, options.example)
    report["makespan_ns_by_reading"] = {r.value: t.makespan_ns for r, t in timelines.items()}
    _write_files(options, shown, report)
    return 0


def _comparison(name: str, timelines: dict[Reading, Timeline]) -> Iterator[str]:
    first = next(iter(timelines.values()))
    yield f"{name}: modelled, {first.machine.name}, constants {first.constants_version}, by reading"
    yield ""
    yield f"{'reading':<14}{'makespan':>14}{'latency':>14}{'MFU':>10}  bound"
    for reading, timeline in timelines.items():
        makespan, latency = time_text(timeline.makespan_ns), time_text(timeline.latency_ns)
        numbers = f"{makespan:>14}{latency:>14}{100 * timeline.mfu:>8.1f} %"
        yield f"{reading.value:<14}{numbers}  {timeline.bound}"


def _write_files(options: argparse.Namespace, timeline: Timeline, report: dict[str, Any]) -> None:
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.svg is not None:
        options.svg.write_text(svg_report(timeline, options.example) + "\n", encoding="utf-8")
    if options.perfetto is not None:
        write_perfetto(timeline, options.perfetto, options.example)
