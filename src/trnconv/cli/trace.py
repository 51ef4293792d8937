"""`trnconv trace`: the modelled timeline of a layer, as text, a picture or a Perfetto file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnconv.cli.heartbeat import working
from trnconv.cli.layer_options import (
    Accuracy,
    Cores,
    LayerOptions,
    MachineName,
    asked_layer,
    asked_problem,
    with_layer,
)
from trnconv.cli.model_options import TunedFile
from trnconv.cli.output import Json, console, print_json
from trnconv.cli.output_files import file_to_write
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from nkisim.machine import Reading as ReadingOf


@with_layer
def trace(
    layer: LayerOptions,
    machine: MachineName = "trn2",
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    reading: Annotated[
        str, typer.Option(help="Timing assumptions: optimistic, default or pessimistic.")
    ] = "default",
    core: Annotated[
        int | None,
        typer.Option(help="Which core to show, 0 or 1. Default: the one that finishes last."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write an SVG of the engines' timelines to this file.")
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a trace for ui.perfetto.dev to this file.")
    ] = None,
    tuned: TunedFile = None,
    json: Json = False,
) -> None:
    """Show the timeline of each engine for a layer, and what the engines wait for.

    With two cores, the one that finishes last is shown; --core selects the other.
    """
    from nkisim.timing.report import json_report, perfetto_pieces, svg_report, text_report
    from trnconv.planner.tuned_plans import use_tuned
    from trnconv.report.schedules import time_layer

    named, read = asked_layer(layer), _reading(reading)
    with file_to_write(svg) as draw, file_to_write(perfetto) as export:
        with use_tuned(tuned), working(f"scheduling {named.name}"):
            timed = time_layer(asked_problem(named, machine, accuracy), (read,), cores)
        shown = timed.longest.last if core is None else _core(core, timed.launched)
        timeline = timed.longest.cores[read][shown]
        name = named.name if timed.launched == 1 else f"{named.name}, core {shown} of two"
        if svg is not None:
            draw(svg_report(timeline, name) + "\n")
        if perfetto is not None:
            for piece in perfetto_pieces(timeline, name, shown):
                export(piece)
    if json:
        launched = {"launches": len(timed.launches), "cores": timed.launched, "core": shown}
        print_json({**json_report(timeline, name), **launched})
        return
    screen = console()
    screen.print(text_report(timeline, name), markup=False)
    if len(timed.launches) > 1:
        screen.print(f"\nThe layer takes {len(timed.launches)} launches; this is the longest.")
    for path in (svg, perfetto):
        if path is not None:
            screen.print(f"wrote {path}", markup=False)


def _core(number: int, launched: int) -> int:
    if number not in range(launched):
        raise TrnconvError(f"--core {number} of a launch on {launched}: cores are numbered from 0.")
    return number


def _reading(name: str) -> ReadingOf:
    from nkisim.machine import Reading

    known = [reading.value for reading in Reading]
    if name not in known:
        raise TrnconvError(f"--reading {name}: one of {', '.join(known)}.")
    return Reading(name)
