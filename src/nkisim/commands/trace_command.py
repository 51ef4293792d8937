"""`python -m nkisim trace`: the instructions of a kernel with their lines, and pictures of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nkisim.commands.kernel_call import add_kernel_options, kernel_asked, run_asked
from nkisim.commands.not_run import not_run
from nkisim.timing.report import svg_instruction
from nkisim.timing.report.words import lane_name, operand
from nkisim.trace import Instruction, Item, Loop, Trace

if TYPE_CHECKING:
    from nkisim.commands.kernel_call import Commands

_FIRST: Final = 60  # instructions to print, unless told
_SOURCE_COLUMNS: Final = 24


def add_parser(commands: Commands) -> None:
    """Add the command to those of `python -m nkisim`."""
    parser = commands.add_parser("trace", help="a kernel's instructions, line by line")
    add_kernel_options(parser)
    parser.add_argument("--core", type=int, default=0, choices=(0, 1), help="of a launch on two")
    parser.add_argument(
        "--line", type=int, metavar="N", help="only what line N of the kernel's file issues"
    )
    parser.add_argument(
        "--limit", type=int, default=_FIRST, metavar="N", help="instructions to print (default 60)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of them as JSON")
    parser.add_argument(
        "--picture",
        nargs=2,
        metavar=("N", "FILE.svg"),
        help="draw the tiles and access patterns of instruction N",
    )


def main(options: argparse.Namespace) -> int:
    """Print the trace, write the files asked for; the exit code."""
    call = kernel_asked(options, values=False)
    result = run_asked(options, call, values=False)
    if options.core >= len(result.traces):
        not_run(f"--core {options.core}", "the kernel ran on one core", "add --lnc 2")
    trace = result.traces[options.core]
    sys.stdout.write(f"{call.name} on {result.machine.name}: {_counts(trace)}\n")
    sys.stdout.writelines(f"{line}\n" for line in _lines(trace, options))
    if options.json is not None:
        records = [_record(instruction) for instruction in trace.instructions()]
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    if options.picture is not None:
        _draw(trace, *options.picture)
    return 0


def _counts(trace: Trace) -> str:
    return f"{trace.static_count:,} instructions, {trace.executed_count:,} executed"


def _lines(trace: Trace, options: argparse.Namespace) -> Iterator[str]:
    shown = 0
    for depth, item in _walk(trace.items, 0):
        if isinstance(item, Loop):
            if options.line is None and shown < options.limit:
                yield f"{'':>6}  {'  ' * depth}loop {item.number}, {_trips(item)}:"
            continue
        if options.line is not None and (item.place is None or item.place.line != options.line):
            continue
        shown += 1
        if shown <= options.limit:
            yield _line(item, depth)
    if shown > options.limit:
        yield f"... and {shown - options.limit:,} more (--limit {shown}, or --json FILE)"


def _walk(items: list[Item], depth: int) -> Iterator[tuple[int, Item]]:
    for item in items:
        yield depth, item
        if isinstance(item, Loop):
            yield from _walk(item.body, depth + 1)


def _trips(loop: Loop) -> str:
    return "as often as the device says" if loop.trips is None else f"{loop.trips:,} times"


def _line(instruction: Instruction, depth: int) -> str:
    place = "" if instruction.place is None else instruction.place.short
    writes = ", ".join(operand(access) for access in instruction.writes) or "-"
    reads = ", ".join(operand(access) for access in instruction.reads)
    name = f" {instruction.name}" if instruction.name else ""
    arrow = f" <- {reads}" if reads else ""
    what = f"{'  ' * depth}{instruction.op}{name}"
    where = f"{place:<{_SOURCE_COLUMNS}} {lane_name(instruction):<11}"
    return f"{instruction.index:>6}  {where} {what}: {writes}{arrow}"


def _record(instruction: Instruction) -> dict[str, Any]:
    place = instruction.place
    return {
        "index": instruction.index,
        "op": instruction.op,
        "name": instruction.name,
        "engine": instruction.engine.name,
        "loop": instruction.loop,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "function": place.function if place else None,
        "source": place.source if place else None,
        "writes": [operand(access) for access in instruction.writes],
        "reads": [operand(access) for access in instruction.reads],
    }


def _draw(trace: Trace, number: str, file: str) -> None:
    chosen = [
        instruction for instruction in trace.instructions() if str(instruction.index) == number
    ]
    if not chosen:
        last = max((instruction.index for instruction in trace.instructions()), default=-1)
        not_run(f"--picture {number}", f"instructions are 0..{last}", "take one of them")
    Path(file).write_text(svg_instruction(chosen[0]) + "\n", encoding="utf-8")
    sys.stdout.write(f"instruction {number} drawn in {file}\n")
