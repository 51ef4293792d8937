"""`trnconv bench`: ours beside a baseline, for layers and models; on request, beside this CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.completion import case_names, model_names
from trnconv.cli.heartbeat import Tell, working
from trnconv.cli.layer_options import Cores, MachineName, asked_machine
from trnconv.cli.model_options import NoCache, TunedFile, price_cache
from trnconv.cli.output import Json, console, print_json
from trnconv.cli.sheet import Csv, Field, Sheet, Wide, require_one_algorithm, sheet
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from nkisim.machine import Machine
    from trnconv.cases import Case
    from trnconv.model_plan import Prices

_ACCURACIES = ("direct", "bf16", "fast")
_ALL = "all"
_NONE = "-"


def bench(
    layers: Annotated[
        list[str] | None,
        typer.Argument(help="Layer names or keys. Default: all.", autocompletion=case_names),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Benchmark models instead of layers; may be repeated; `all` for every model.",
            autocompletion=model_names,
        ),
    ] = None,
    machine: MachineName = "trn2",
    cores: Cores = None,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate",
            help="Schedule every launch instead of using the cost model; slower.",
        ),
    ] = False,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Also measure the layers on this computer's CPU.")
    ] = False,
    tuned: TunedFile = None,
    no_cache: NoCache = False,
    wide: Wide = False,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Compare modelled times with a baseline that follows nki-library's design.

    The baseline's times ship with the package, for trn2 and the registry's sizes. On two cores it
    is assumed to take half of its time on one core.
    """
    from trnconv.model_plan import Prices
    from trnconv.planner.tuned_plans import use_tuned
    from trnconv.problem.cores import cores_of

    require_one_algorithm(json=json, csv=csv)
    _require_sense(layers, model, cpu=cpu)
    chosen = asked_machine(machine)
    with use_tuned(tuned), price_cache(unused=no_cache) as cache, working("planning") as tell:
        launched = cores_of(chosen, cores)
        prices = Prices(cache, simulate, cores=launched)
        if model:
            rows = _model_rows(model, chosen, prices, tell)
        else:
            rows = _layer_rows(layers, chosen, prices, tell)
            if cpu:
                _measure(rows, tell)
    answer = {
        **_heading(chosen, launched, simulate=simulate),
        "rows": [_public(row) for row in rows],
    }
    made = _sheet(answer["rows"], what="model" if model else "layer", cpu=cpu)
    if json:
        print_json(answer)
    elif csv:
        made.print_csv()
    else:
        _show(answer, made, wide=wide)


def _require_sense(layers: list[str] | None, model: list[str] | None, *, cpu: bool) -> None:
    if model and layers:
        raise TrnconvError(f"{', '.join(layers)} and --model: give layers or models, not both.")
    if model and cpu:
        raise TrnconvError(
            "--cpu with --model: a whole model takes hours on a CPU. Measure layers."
        )


def _heading(machine: Machine, cores: int, *, simulate: bool) -> dict[str, Any]:
    from trnconv.baseline import what

    return {
        "kind": "modelled",
        "machine": machine.name,
        "constants_version": machine.constants,
        "reading": "default",
        "method": "scheduled" if simulate else "cost model",
        "cores": cores,
        "baseline": what(cores),
    }


def _layer_rows(
    names: list[str] | None, machine: Machine, prices: Prices, tell: Tell
) -> list[dict[str, Any]]:
    from trnconv.cases import BENCHMARK, find

    cases = [find(name) for name in names] if names else list(BENCHMARK)
    rows = []
    for done, case in enumerate(cases):
        tell("layers", done, len(cases))
        rows.append(_layer_row(case, machine, prices))
    return rows


def _layer_row(case: Case, machine: Machine, prices: Prices) -> dict[str, Any]:
    from trnconv.baseline import layer_ns
    from trnconv.problem.conv_problem import ConvProblem
    from trnconv.problem.cores import cores_of
    from trnconv.problem.policy import Policy

    price_by_method = {
        name: prices.of(ConvProblem(case.shape, machine, case.dtype, policy=Policy(name)))
        for name in _ACCURACIES
    }
    known = layer_ns(case.shape, machine, case.dtype, cores_of(machine, prices.cores))
    return {
        "name": case.name,
        "key": case.key,
        "seconds": {name: price.ns / 1e9 for name, price in price_by_method.items()},
        "bound": {name: price.bound for name, price in price_by_method.items()},
        "baseline_seconds": None if known is None else known / 1e9,
        "multiply_adds": case.shape.macs(),
        "_case": case,
    }


def _model_rows(
    names: list[str], machine: Machine, prices: Prices, tell: Tell
) -> list[dict[str, Any]]:
    from trnconv.baseline import model_baseline
    from trnconv.model_plan import PlanOptions, model_plan
    from trnconv.models import find, models
    from trnconv.problem.cores import cores_of

    entries = list(models()) if _ALL in names else [find(name) for name in names]
    cores, rows = cores_of(machine, prices.cores), list[dict[str, Any]]()
    phases = sum(len(entry.phases) for entry in entries)
    for entry in entries:
        for phase in entry.phases:
            tell("models and phases", len(rows), phases)
            plans = {
                name: model_plan(
                    entry, "", phase, PlanOptions(machine.name, name, prices.cores), prices
                )
                for name in _ACCURACIES
            }
            known = model_baseline(entry, entry.production, phase, machine, cores)
            rows.append(
                {
                    "name": f"{entry.name} {entry.production.name} {phase}",
                    "seconds": {name: plan.seconds for name, plan in plans.items()},
                    "baseline_seconds": None if known is None else known.seconds,
                    "multiply_adds": plans["direct"].macs,
                }
            )
    return rows


def _measure(rows: list[dict[str, Any]], tell: Tell) -> None:
    """Add times of this CPU to rows of layers."""
    from trnconv.cpu_time import measurable, measure

    for done, row in enumerate(rows):
        tell("measuring layers on this CPU", done, len(rows))
        shape = row["_case"].shape
        timed = measure(shape) if measurable(shape) else None
        row["cpu_measured_seconds"] = None if timed is None else timed.seconds
        row["cpu_measured_by"] = None if timed is None else timed.by


def _public(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _sheet(rows: list[dict[str, Any]], *, what: str, cpu: bool) -> Sheet:
    scale, unit = (1e3, "ms") if what == "layer" else (1.0, "s")
    times = [Field(f"{name}, {unit}", _figure) for name in (*_ACCURACIES, "baseline")]
    columns = [
        Field(what, words=True, least=16),
        *times,
        Field("baseline / bf16", lambda ratio: _NONE if ratio is None else f"{ratio:.2f}", rank=1),
        *([Field("this CPU, ms", _whole)] if cpu else []),
    ]
    return sheet(columns, [(*_cells(row, scale), *_cpu(row, cpu=cpu)) for row in rows])


def _cells(row: dict[str, Any], scale: float) -> tuple[Any, ...]:
    ours, known = row["seconds"], row["baseline_seconds"]
    name = f"{row['key']:>2}  {row['name']}" if row.get("key") else row["name"]
    times = [scale * ours[accuracy] for accuracy in _ACCURACIES]
    if known is None:
        return (name, *times, None, None)
    return (name, *times, scale * known, known / ours["bf16"])


def _cpu(row: dict[str, Any], *, cpu: bool) -> tuple[Any, ...]:
    seconds = row.get("cpu_measured_seconds")
    return () if not cpu else (None if seconds is None else 1e3 * seconds,)


def _figure(value: float | None) -> str:
    from trnconv.report.numbers import significant

    return _NONE if value is None else significant(value)


def _whole(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def _show(answer: dict[str, Any], made: Sheet, *, wide: bool) -> None:
    from trnconv.problem.cores import describe_cores

    screen, rows = console(), answer["rows"]
    screen.print(
        f"Modelled: {answer['machine']}, constants {answer['constants_version']},"
        f" {answer['reading']} reading, {describe_cores(answer['cores'])}, {answer['method']};"
        " nothing was measured on a device."
    )
    screen.print()
    made.show(screen, wide=wide)
    screen.print()
    screen.print(f"Baseline: {answer['baseline']}.", markup=False)
    for by in dict.fromkeys(row.get("cpu_measured_by") for row in rows):
        if by:
            screen.print(f"This CPU: really measured, {by}.")
