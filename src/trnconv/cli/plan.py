"""`trnconv plan`: how a layer, or every layer of a model, would run, and what it would take."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated, Any

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
    Jobs,
    ModelName,
    NoCache,
    Phase,
    TunedFile,
    price_cache,
    require_model_alone,
    require_no_phase,
    with_layer_or_model,
)
from trnconv.cli.output import Json, print_json
from trnconv.cli.sheet import Csv, Wide, require_one_form
from trnconv.errors import TrnconvError

_SHOWN = 15  # layers, unless --top says otherwise


@with_layer_or_model
def plan(
    layer: LayerOptions,
    model: ModelName = None,
    phase: Phase = None,
    machine: MachineName = "trn2",
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Only so many layers, the heaviest.")
    ] = None,
    tuned: TunedFile = None,
    no_cache: NoCache = False,
    jobs: Jobs = None,
    wide: Wide = False,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Plan one layer, or a whole model: modelled time, bound, instructions, traffic, memory.

    A layer by name (wan_96_wide) or by --channels, --kernel, --size ...; a model by --model, with
    --size 720x1280x81 or a size of `trnconv models`.
    """
    from trnconv.cli import plan_views
    from trnconv.planner.tuned_plans import use_tuned

    require_one_form(json=json, csv=csv)
    if csv and model is None:
        raise TrnconvError("--csv of one layer: a model's layers make a table. Ask with --json.")
    with use_tuned(tuned), price_cache(unused=no_cache) as cache:
        if model is None:
            require_no_phase(phase)
            answer = _of_layer(layer, (machine, accuracy), cores, cache)
        else:
            require_model_alone(layer, model)
            asked = (model, layer.size or "", phase or DEFAULT_PHASE)
            prices = _prices(cache, cores, jobs)
            answer = _of_model(asked, (machine, accuracy), prices)
    if model is not None and (top is not None or not (json or csv)):
        answer["layers"] = answer["layers"][: top or _SHOWN]
    if json:
        print_json(answer)
    elif csv:
        plan_views.layer_sheet(answer).print_csv()
    elif model is None:
        plan_views.show_layer(answer)
    else:
        plan_views.show_model(answer, wide=wide)


def _of_layer(
    layer: LayerOptions, where: tuple[str, str], cores: int | None, cache: Any
) -> dict[str, Any]:
    from trnconv.ask.launches import require_room
    from trnconv.cli.plan_documents import layer_document
    from trnconv.model_plan import Prices

    asked = asked_layer(layer)
    question = asked_question(asked, *where)
    require_room(question)
    with working(f"planning {asked.name}"):
        price = Prices(cache, cores=cores).of(question)
    return layer_document(asked, question, price, cores)


def _prices(cache: Any, cores: int | None, jobs: int | None) -> Any:
    from trnconv.model_plan import Prices

    return Prices(cache, cores=cores, jobs=jobs or os.cpu_count() or 1)


def _of_model(asked: tuple[str, str, str], where: tuple[str, str], prices: Any) -> dict[str, Any]:
    from trnconv.cli.plan_documents import model_document
    from trnconv.model_plan import PlanOptions, model_plan

    model, size, phase = asked
    machine, accuracy = where
    options = PlanOptions(asked_machine(machine).name, accuracy, prices.cores)
    with working(f"planning {model}") as tell:
        watched = replace(prices, watch=lambda done, of: tell("prices", done, of))
        return model_document(model_plan(model, size, phase, options, watched))
