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
    asked_question,
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
from trnconv.cli.output import console, print_json
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.report.assemble import ReportOptions
    from trnconv.report.content import Report

_DEFAULT_FILE = Path("report.html")
_STDOUT = "-"
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
        typer.Option("--output", "-o", help="The page; report.html if no file is named."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="The content as JSON there; - is stdout.")
    ] = None,
    heaviest: Annotated[
        int, typer.Option(min=0, help="Layers that are scheduled instruction by instruction.")
    ] = 3,
    no_effects: Annotated[
        bool, typer.Option("--no-effects", help="Leave out what each open point changes.")
    ] = False,
    tuned: TunedFile = None,
    no_cache: NoCache = False,
) -> None:
    """Write a self-contained HTML page: roofline, layers, engines, budgets, baseline, assumptions.

    A model by --model, with --size 720x1280x81; a layer by name (wan_96_wide) or by options.
    """
    from trnconv.planner.tuned_plans import use_tuned
    from trnconv.report.assemble import ReportOptions

    if output is None and json is None:
        output = _DEFAULT_FILE
    _require_folders(output, json)
    rest = {
        "--model": model,
        "--phase": phase,
        "--machine": machine,
        "--accuracy": accuracy,
        "--cores": cores,
        "--heaviest": heaviest,
        "--tuned": tuned,
        "-o": output,
        "--json": json,
    }
    what = model or layer.case or "a layer"
    with use_tuned(tuned), price_cache(unused=no_cache) as cache, working(what) as tell:
        asked = ReportOptions(
            command=_command(layer, rest, no_effects=no_effects),
            date=_today(),
            heaviest=heaviest,
            effects=not no_effects,
            tell=tell,
        )
        if model is None:
            require_no_phase(phase)
            made = _of_layer(layer, (machine, accuracy, cores), asked)
        else:
            require_model_alone(layer, model)
            names = (model, layer.size or "", phase or DEFAULT_PHASE)
            made = _of_model(names, (machine, accuracy, cores), asked, cache)
    _write(made, output, json)


def _of_layer(layer: LayerOptions, where: Where, asked: ReportOptions) -> Report:
    from trnconv.report.of_layer import report_of_layer

    one = asked_layer(layer)
    machine, accuracy, cores = where
    question = asked_question(one, machine, accuracy)
    return report_of_layer(one.name, one.note, question, asked, cores)


def _of_model(
    names: tuple[str, str, str], where: Where, asked: ReportOptions, cache: Any
) -> Report:
    from trnconv.model_plan import PlanOptions, Prices
    from trnconv.report.of_model import report_of_model

    machine, accuracy, cores = where
    options = PlanOptions(asked_machine(machine).name, accuracy, cores)
    prices = Prices(cache, watch=lambda done: asked.tell(f"{done} prices"), cores=cores)
    return report_of_model(*names, options, asked, prices)


def _require_folders(*files: Path | None) -> None:
    """Refuse before the work, not after it."""
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise TrnconvError(f"{file}: there is no folder {file.parent}. Make it first.")


def _command(layer: LayerOptions, rest: dict[str, Any], *, no_effects: bool) -> str:
    """What makes this report again."""
    named = layer.given(but=("case",))
    words = ["trnconv", "report", *([layer.case] if layer.case else [])]
    values = {name: getattr(layer, name.removeprefix("--")) for name in named} | rest
    for name, value in values.items():
        words += [] if value is None else [name, str(value)]
    return shlex.join([*words, "--no-effects"] if no_effects else words)


def _today() -> str:
    """The date, or that of SOURCE_DATE_EPOCH, so that a build can be repeated to the byte."""
    import os
    from datetime import datetime, timezone

    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(fixed), timezone.utc) if fixed else datetime.now(timezone.utc)
    return now.date().isoformat()


def _write(made: Report, output: Path | None, json: Path | None) -> None:
    from json import dumps

    from trnconv.report.content import as_json
    from trnconv.report.page import page

    if output is not None:
        output.write_text(page(made), encoding="utf-8")
    if json is not None and str(json) == _STDOUT:
        print_json(as_json(made))
        return
    if json is not None:
        json.write_text(dumps(as_json(made), indent=1) + "\n", encoding="utf-8")
    _tell(made, [file for file in (output, json) if file is not None])


def _tell(made: Report, files: list[Path]) -> None:
    from trnconv.ask.cores import cores_in_words
    from trnconv.report.numbers import duration, measured_in, times

    screen, totals, machine = console(), made.totals, made.machine
    line = f"{made.subject.title}: {duration(totals.whole_seconds)}"
    if totals.baseline_whole_seconds is not None:
        faster = times(totals.baseline_whole_seconds / totals.whole_seconds)
        line += f", {faster} as fast as the baseline"
    screen.print(line, markup=False)
    screen.print(
        f"Modelled: {machine.name}, constants {machine.constants_version}, {machine.reading}"
        f" reading, {cores_in_words(machine.cores)}, accuracy {totals.accuracy};"
        f" {measured_in(machine.name)}."
    )
    for file in files:
        screen.print(f"wrote {file}", markup=False)
