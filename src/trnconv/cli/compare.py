"""`trnconv compare`: two plans of whole models side by side."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.heartbeat import Tell, working
from trnconv.cli.layer_options import asked_machine
from trnconv.cli.model_options import NoCache, price_cache
from trnconv.cli.output import Json, console, print_json
from trnconv.cli.output_files import file_to_write
from trnconv.cli.sheet import Csv, Field, Sheet, Wide, require_one_algorithm, sheet
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.report.comparison import Comparison

_CHOICES = ("size", "phase", "machine", "accuracy", "cores", "tuned")
_HOW = (
    "A model with choices, as wan2.1,accuracy=fast,machine=trn3 (also size, phase, cores, tuned);"
    " or a file that `trnconv plan --json` wrote."
)


@dataclass(frozen=True)
class PlanSide:
    """One of the two: a model and how it is planned, or a file."""

    text: str
    model: str = ""
    size: str = ""
    phase: str = "decode"
    machine: str = "trn2"
    accuracy: str = "bf16"
    cores: str = ""
    tuned: str = ""

    @classmethod
    def parse(cls, text: str) -> PlanSide:
        """`wan2.1,accuracy=fast`; what is a file is left to `_document`."""
        if Path(text).is_file():
            return cls(text)
        model, *choices = text.split(",")
        side = cls(text, model)
        for choice in choices:
            name, equals, value = choice.partition("=")
            if name not in _CHOICES or not equals or not value:
                raise TrnconvError(
                    f"compare {text}: {choice!r} is no choice. Write name=value, with"
                    f" {', '.join(_CHOICES)}."
                )
            side = replace(side, **{name: value})
        return side


def compare(
    first: Annotated[str, typer.Argument(help=_HOW)],
    second: Annotated[
        str, typer.Argument(help="The plan to compare it with, written the same way.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write an HTML page to this file.")
    ] = None,
    no_cache: NoCache = False,
    wide: Wide = False,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Compare two model plans: other models, accuracies, machines, versions or tuning."""
    from trnconv.report.comparison import as_document, compared, comparison_page

    require_one_algorithm(json=json, csv=csv)
    sides = PlanSide.parse(first), PlanSide.parse(second)
    for side in sides:
        _require_understood(side)
    with file_to_write(output) as write, price_cache(unused=no_cache) as cache:
        documents = [_document(side, cache) for side in sides]
        made = compared((first, second), *documents)
        write(comparison_page(made))
    if json:
        print_json(as_document(made))
    elif csv:
        _numbers(made).print_csv()
    else:
        _show(made, output, wide=wide)


def _require_understood(side: PlanSide) -> None:
    """Refuse what cannot be planned before the other side is."""
    from trnconv.models import find
    from trnconv.models.sizes import size_of

    if side.model:
        size_of(find(side.model), side.size)
        asked_machine(side.machine)
        _cores(side)


def _document(side: PlanSide, cache: Any) -> dict[str, Any]:
    if not side.model:
        return _stored(Path(side.text))
    from trnconv.cli.plan_documents import model_document
    from trnconv.model_plan import PlanOptions, Prices, model_plan
    from trnconv.planner.tuned_plans import use_tuned

    cores = _cores(side)
    options = PlanOptions(asked_machine(side.machine).name, side.accuracy, cores)
    tuned = Path(side.tuned) if side.tuned else None
    with use_tuned(tuned), working(f"planning {side.text}") as tell:
        prices = Prices(cache, watch=_watching(tell), cores=cores)
        return model_document(model_plan(side.model, side.size, side.phase, options, prices))


def _watching(tell: Tell) -> Any:
    return lambda done, of: tell("prices", done, of)


def _cores(side: PlanSide) -> int | None:
    if side.cores and not side.cores.isdecimal():
        raise TrnconvError(f"compare {side.text}: cores={side.cores} is no number. Write 1 or 2.")
    return int(side.cores) if side.cores else None


def _stored(path: Path) -> dict[str, Any]:
    """A document of another time; it must be that of a model."""
    try:
        document = json_text.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrnconvError(
            f"compare {path}: it cannot be read as JSON ({error}). Name a model, or a file that"
            " `trnconv plan --model NAME --json` wrote."
        ) from error
    needed = ("model", "whole_seconds", "operations", "layers", "tuned")
    missing = (
        [key for key in needed if key not in document]
        if isinstance(document, dict)
        else list(needed)
    )
    if missing:
        raise TrnconvError(
            f"compare {path}: it has no {', '.join(missing)}. Name a file that `trnconv plan"
            " --model NAME --json` wrote."
        )
    return dict(document)


def _sheet(made: Comparison) -> Sheet:
    """Numbers with their units, for people."""
    from trnconv.report.comparison import written

    columns = (
        Field("what", words=True, least=24),
        Field("A"),
        Field("B"),
        Field("B / A", lambda ratio: "-" if ratio is None else f"{ratio:.3f}"),
    )
    rows = [
        (row.what, written(row.first, row.unit), written(row.second, row.unit), row.ratio)
        for row in (*made.rows, *made.layers)
    ]
    return sheet(columns, rows)


def _numbers(made: Comparison) -> Sheet:
    """The same in full, units apart, for programs."""
    columns = [Field(name) for name in ("what", "unit", "A", "B", "B / A")]
    rows = [
        (row.what, row.unit, row.first, row.second, row.ratio) for row in (*made.rows, *made.layers)
    ]
    return sheet(columns, rows)


def _show(made: Comparison, output: Path | None, *, wide: bool) -> None:
    screen = console()
    for letter, side in zip("AB", made.sides, strict=True):
        screen.print(f"{letter}: {side}", markup=False)
    screen.print("Modelled, default reading; nothing was measured.")
    screen.print()
    _sheet(made).show(screen, wide=wide)
    for letter, only in zip("AB", made.only, strict=True):
        if only:
            are = "layer is" if len(only) == 1 else "layers are"
            screen.print(f"{len(only)} {are} in {letter} alone, such as {only[0]}.")
    if output is not None:
        screen.print(f"wrote {output}", markup=False)
