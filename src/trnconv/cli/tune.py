"""`trnconv tune`: time the best candidates in nkisim and keep the winners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.heartbeat import Tell, working
from trnconv.cli.layer_options import (
    Accuracy,
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
    price_cache,
    require_model_alone,
    require_no_phase,
    with_layer_or_model,
)
from trnconv.cli.output import Json, console, print_json
from trnconv.cli.output_files import file_to_write
from trnconv.cli.sheet import Field, Wide, sheet
from trnconv.cli.tune_registry import tune_registry
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.problem.conv_problem import ConvProblem
    from trnconv.runtime.tuning import Tuning

DEFAULT_MACHINE = "trn2"
_COLUMNS = (
    Field("layer", words=True, least=16),
    Field("input"),
    Field("tried", rank=2),
    Field("planner's, us", "{:,.1f}".format),
    Field("tuned, us", "{:,.1f}".format),
    Field("gain", "{:.1%}".format),
    Field("plan", words=True, rank=1),
)
Named = tuple[str, "ConvProblem"]


@with_layer_or_model
def tune(
    layer: LayerOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File that tuned plans are added to; with --registry, a folder."
        ),
    ] = None,
    model: ModelName = None,
    phase: Phase = None,
    machine: MachineName = DEFAULT_MACHINE,
    accuracy: Accuracy = "bf16",
    candidates: Annotated[
        int, typer.Option(min=1, help="Candidate plans to schedule per layer.")
    ] = 4,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="With --model: tune only this many layers, slowest first."),
    ] = None,
    registry: Annotated[
        bool,
        typer.Option(
            "--registry", help="Rebuild the plans that ship with the package (takes hours)."
        ),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="With --registry: search also what has plans, and keep those that are faster.",
        ),
    ] = False,
    no_cache: NoCache = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Autotune: schedule several plans per layer in nkisim and store the fastest.

    `trnconv plan --tuned FILE`, or the environment variable TRNCONV_TUNED, uses the stored plans.
    Candidates are timed on one core; with two cores, each core uses the winning plan for its half.
    --registry tunes all models (or --model) at their stored sizes, on trn2 and trn3, and resumes a
    run that was interrupted; with --again it begins anew.
    """
    if registry:
        _require_registry_alone(layer, phase, machine, top)
        tune_registry(model, accuracy, candidates, out, again=again, json=json)
        return
    if again:
        raise TrnconvError(
            "--again without --registry: a named layer is always searched. Leave it out."
        )
    if out is None:
        raise TrnconvError("tune without --out: name the file that plans are stored in.")
    chosen = asked_machine(machine).name
    from trnconv.planner.tuned_file import written

    before = _before(out, chosen)
    if model is None:
        require_no_phase(phase)
        asked = asked_layer(layer)
        named: list[Named] = [(asked.name, asked_problem(asked, machine, accuracy))]
    else:
        require_model_alone(layer, model)
        with price_cache(unused=no_cache) as cache:
            wanted = (model, layer.size or "", phase or DEFAULT_PHASE)
            named = _heaviest(wanted, (machine, accuracy), cache)[:top]
    with file_to_write(out) as write:
        done = list(_tunings(named, candidates))
        write(written(chosen, [tuning.tuned for _, tuning in done], before))
    answer = _answer(out, chosen, accuracy, done)
    if json:
        print_json(answer)
    else:
        _show(answer, wide=wide)


def _require_registry_alone(
    layer: LayerOptions, phase: str | None, machine: str, top: int | None
) -> None:
    """Refuse what --registry does not look at."""
    options = {"--phase": phase, "--machine": machine != DEFAULT_MACHINE, "--top": top}
    others = [*layer.given(), *(name for name, value in options.items() if value)]
    if others:
        raise TrnconvError(
            f"--registry and {', '.join(others)}: it tunes all sizes and phases of its models,"
            " on the machines that plans are shipped for. Leave these options out."
        )


def _before(out: Path, machine: str) -> Any:
    """What the file has already: it must be of this machine and this version."""
    from trnconv.planner.tuned_file import read

    if not out.exists():
        return None
    earlier = read(out)
    if earlier.machine != machine:
        raise TrnconvError(
            f"--out {out}: the file holds plans for {earlier.machine}, these are for {machine}."
            " Use another file."
        )
    return earlier


def _heaviest(wanted: tuple[str, str, str], how: tuple[str, str], cache: Any) -> list[Named]:
    """The layers of a model, those that take longest first."""
    from trnconv.model_plan import PlanOptions, Prices, model_plan
    from trnconv.problem.policy import policy_of

    options = PlanOptions(asked_machine(how[0]).name, how[1], cores=1)
    plan = model_plan(*wanted, options, Prices(cache, cores=1))
    policy = policy_of(how[1])
    return [
        (layer.modules[0], layer.work.problem(options.machine, policy=policy))
        for layer in plan.heaviest()
    ]


def _tunings(named: list[Named], candidates: int) -> Iterator[tuple[str, Tuning]]:
    from trnconv.runtime.tuning import tune as tune_layer

    with working("tuning") as tell:
        for at, (name, problem) in enumerate(named, 1):
            watch = _teller(tell, f"layer {at} of {len(named)}, {name}")
            yield from ((name, tuning) for tuning in tune_layer(problem, candidates, watch))


def _teller(tell: Tell, where: str) -> Callable[[int, int], None]:
    tell(where, 0, 0)
    return lambda done, count: tell(f"{where}: plans", done, count)


def _answer(
    out: Path, machine: str, accuracy: str, done: list[tuple[str, Tuning]]
) -> dict[str, Any]:
    from trnconv.planner.tuned_file import stamp

    return {
        "kind": "modelled",
        "file": str(out),
        "stamp": stamp(machine),
        "reading": "default",
        "accuracy": accuracy,
        "layers": [_document(name, tuning) for name, tuning in done],
    }


def _document(name: str, tuning: Tuning) -> dict[str, Any]:
    return {
        "layer": name,
        "input": "x".join(map(str, tuning.problem.shape.size)),
        "planned_ns": tuning.planned.ns,
        "tuned_ns": tuning.winner.ns,
        "changed": tuning.winner is not tuning.planned,
        "plan": tuning.winner.candidate.plan.in_words(),
        "timed": [
            {
                "plan": timed.candidate.plan.in_words(),
                "cost_model_ns": timed.candidate.cost.total_ns,
                "scheduled_ns": timed.ns,
                "bound": timed.bound,
            }
            for timed in tuning.timed
        ],
    }


def _show(answer: dict[str, Any], *, wide: bool) -> None:
    from trnconv.report.numbers import measured_in

    screen, stamp = console(), answer["stamp"]
    screen.print(
        f"Modelled: {stamp['machine']}, constants {stamp['constants']}, default reading, one core,"
        f" accuracy {answer['accuracy']}; scheduled in nkisim, {measured_in(stamp['machine'])}."
    )
    screen.print()
    sheet(_COLUMNS, [_row(layer) for layer in answer["layers"]]).show(screen, wide=wide)
    screen.print()
    screen.print(f"Stored: {answer['file']}. Use it: trnconv plan --tuned {answer['file']} ...")


def _row(layer: dict[str, Any]) -> tuple[Any, ...]:
    return (
        layer["layer"],
        layer["input"],
        len(layer["timed"]),
        layer["planned_ns"] / 1e3,
        layer["tuned_ns"] / 1e3,
        layer["planned_ns"] / layer["tuned_ns"] - 1,
        layer["plan"] if layer["changed"] else "the planner's",
    )
