"""`trnconv report`: one page about a model or a layer, and the same as JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.heartbeat import working
from trnconv.cli.layer_options import (
    Accuracy,
    Cores,
    LayerOptions,
    MachineName,
    asked_layer,
    asked_machine,
    asked_problem,
)
from trnconv.cli.model_options import (
    DEFAULT_PHASE,
    ModelName,
    NoCache,
    Phase,
    TunedFile,
    price_cache,
    require_model_alone,
    require_no_phase,
    with_layer_or_model,
)
from trnconv.cli.output import Json, console, print_json
from trnconv.cli.output_files import file_to_write

if TYPE_CHECKING:
    from trnconv.report.assemble import ReportOptions
    from trnconv.report.content import Report

_DEFAULT_FILE = Path("report.html")
Where = tuple[str, str, int | None]  # machine, accuracy, cores of a launch


@with_layer_or_model
def report(
    layer: LayerOptions,
    model: ModelName = None,
    phase: Phase = None,
    machine: MachineName = "trn2",
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output file. Default: report.html."),
    ] = None,
    heaviest: Annotated[
        int,
        typer.Option(
            min=0, help="Schedule this many of the slowest layers instruction by instruction."
        ),
    ] = 3,
    no_effects: Annotated[
        bool,
        typer.Option(
            "--no-effects", help="Skip the section on the effect of each open assumption."
        ),
    ] = False,
    tuned: TunedFile = None,
    no_cache: NoCache = False,
    json: Json = False,
) -> None:
    """Write a self-contained HTML report on a layer or a model.

    It shows the roofline, layers, engine timelines, budgets, the baseline and all assumptions. A
    model is given by --model, with --size 720x1280x81; a layer by name (wan_96_wide) or by options.
    With --json the content is printed to stdout, and a page is written only if -o names a file.
    """
    from trnconv.planner.tuned_plans import use_tuned
    from trnconv.report.assemble import ReportOptions
    from trnconv.report.content import as_json
    from trnconv.report.page import page

    if output is None and not json:
        output = _DEFAULT_FILE
    rest = {
        "--model": model,
        "--phase": phase,
        "--machine": machine,
        "--accuracy": accuracy,
        "--cores": cores,
        "--heaviest": heaviest,
        "--tuned": tuned,
        "-o": output,
        "--no-effects": no_effects,
        "--json": json,
    }
    what = f"report of {model or layer.case or 'a layer'}"
    with (
        file_to_write(output) as write,
        use_tuned(tuned),
        price_cache(unused=no_cache) as cache,
        working(what) as tell,
    ):
        options = ReportOptions(
            command=_command(layer, rest),
            date=_today(),
            heaviest=heaviest,
            effects=not no_effects,
            tell=tell,
        )
        if model is None:
            require_no_phase(phase)
            made = _of_layer(layer, (machine, accuracy, cores), options)
        else:
            require_model_alone(layer, model)
            names = (model, layer.size or "", phase or DEFAULT_PHASE)
            made = _of_model(names, (machine, accuracy, cores), options, cache)
        write(page(made))
    if json:
        print_json(as_json(made))
    else:
        _tell(made, output)


def _of_layer(layer: LayerOptions, where: Where, options: ReportOptions) -> Report:
    from trnconv.report.of_layer import report_of_layer

    named = asked_layer(layer)
    machine, accuracy, cores = where
    problem = asked_problem(named, machine, accuracy)
    return report_of_layer(named.name, named.note, problem, options, cores)


def _of_model(
    names: tuple[str, str, str], where: Where, asked: ReportOptions, cache: Any
) -> Report:
    from trnconv.model_plan import PlanOptions, Prices
    from trnconv.report.of_model import report_of_model

    machine, accuracy, cores = where
    options = PlanOptions(asked_machine(machine).name, accuracy, cores)
    prices = Prices(cache, watch=lambda done, of: asked.tell("prices", done, of), cores=cores)
    return report_of_model(*names, options, asked, prices)


def _command(layer: LayerOptions, rest: dict[str, Any]) -> str:
    """What makes this report again: values behind their options, flags alone."""
    named = layer.given(but=("case",))
    written = {name: getattr(layer, name[2:].replace("-", "_")) for name in named} | rest
    words = ["trnconv", "report", *([layer.case] if layer.case else [])]
    for name, value in written.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    return shlex.join(words)


def _today() -> str:
    """The date, or that of SOURCE_DATE_EPOCH, so that a build can be repeated to the byte."""
    import os
    from datetime import datetime, timezone

    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(fixed), timezone.utc) if fixed else datetime.now(timezone.utc)
    return now.date().isoformat()


def _tell(made: Report, output: Path | None) -> None:
    from trnconv.problem.cores import describe_cores
    from trnconv.report.numbers import duration, measured_in, times

    screen, totals, machine = console(), made.totals, made.machine
    line = f"{made.subject.title}: {duration(totals.whole_seconds)}"
    if totals.baseline_whole_seconds is not None:
        faster = times(totals.baseline_whole_seconds / totals.whole_seconds)
        line += f", {faster} as fast as the baseline"
    screen.print(line, markup=False)
    screen.print(
        f"Modelled: {machine.name}, constants {machine.constants_version}, {machine.reading}"
        f" reading, {describe_cores(machine.cores)}, accuracy {totals.accuracy};"
        f" {measured_in(machine.name)}."
    )
    if output is not None:
        screen.print(f"wrote {output}", markup=False)
