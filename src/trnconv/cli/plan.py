"""`trnconv plan`: how a layer, or every layer of a model, would run, and what it would take."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.heartbeat import working
from trnconv.cli.layer_options import (
    Accuracy,
    Cores,
    LayerOptions,
    MachineName,
    asked_dtype,
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
from trnconv.cli.own_options import OwnModel, OwnOptions, asked_own
from trnconv.cli.sheet import Csv, Wide, require_one_form
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.cli.plan_documents import ClipCall

_SHOWN = 15  # layers, unless --top says otherwise


@with_layer_or_model
def plan(
    layer: LayerOptions,
    model: ModelName = None,
    phase: Phase = None,
    module: Annotated[
        str | None, typer.Option(help="Your own torch.nn.Module, as package.module:Class.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="With --module: a JSON file with the constructor's arguments."),
    ] = None,
    diffusers: Annotated[
        Path | None, typer.Option(help="A model folder written by diffusers' save_pretrained.")
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(
            "--input", help="With --module or --diffusers: the input's shape, as in 1x3x17x256x256."
        ),
    ] = None,
    machine: MachineName = "trn2",
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Show only this many layers, slowest first.")
    ] = None,
    tuned: TunedFile = None,
    no_cache: NoCache = False,
    jobs: Jobs = None,
    wide: Wide = False,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Plan a layer or a whole model: modelled time, bound, instructions, memory.

    A layer is given by name (wan_96_wide) or by --channels, --kernel, --size and so on; a model by
    --model, with --size 720x1280x81 or a size of `trnconv models`, --batch and --dtype; your own
    module by --module or --diffusers, with --input (needs torch).
    """
    from trnconv.cli import plan_views
    from trnconv.planner.tuned_plans import use_tuned

    require_one_form(json=json, csv=csv)
    own = asked_own(OwnOptions(module, config, diffusers, input_shape), layer, model)
    whole = model is not None or own is not None
    if csv and not whole:
        raise TrnconvError(
            "--csv with one layer: only the layers of a model form a table. Use --json."
        )
    with use_tuned(tuned), price_cache(unused=no_cache) as cache:
        prices = _prices(cache, cores, jobs)
        if own is not None:
            answer = _of_own(own, phase, (machine, accuracy), prices)
        elif model is not None:
            require_model_alone(layer, model, "batch", "dtype")
            asked = (model, layer.size or "", phase or DEFAULT_PHASE)
            answer = _of_model(asked, _called(layer), (machine, accuracy), prices)
        else:
            require_no_phase(phase)
            answer = _of_layer(layer, (machine, accuracy), cores, cache)
    if whole and (top is not None or not (json or csv)):
        answer["layers"] = answer["layers"][: top or _SHOWN]
    if json:
        print_json(answer)
    elif csv:
        plan_views.layer_sheet(answer).print_csv()
    elif whole:
        plan_views.show_model(answer, wide=wide)
    else:
        plan_views.show_layer(answer)


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


def _called(layer: LayerOptions) -> ClipCall:
    """Clips at once and their type, of a model."""
    from trnconv.cli.plan_documents import ONE_CLIP, ClipCall

    batch = ONE_CLIP.batch if layer.batch is None else layer.batch
    if batch < 1:
        raise TrnconvError(f"--batch {batch}: it must be at least 1.")
    return ClipCall(batch, asked_dtype(layer.dtype) or ONE_CLIP.dtype)


def _of_model(
    asked: tuple[str, str, str], called: ClipCall, where: tuple[str, str], prices: Any
) -> dict[str, Any]:
    from trnconv.cli.plan_documents import model_document
    from trnconv.model_plan import PlanOptions, observation, plan_observed
    from trnconv.models import find
    from trnconv.models.sizes import size_of

    model, size, phase = asked
    options = PlanOptions(asked_machine(where[0]).name, where[1], prices.cores)
    entry = find(model)
    clip = size_of(entry, size)
    with working(f"planning {model}") as tell:
        watched = replace(prices, watch=lambda done, of: tell("prices", done, of))
        seen = observation(entry, clip, phase, called.batch, called.dtype)
        return model_document(plan_observed(seen, clip, options, watched), called)


def _of_own(
    own: OwnModel, phase: str | None, where: tuple[str, str], prices: Any
) -> dict[str, Any]:
    from trnconv.cli.plan_documents import ClipCall, model_document
    from trnconv.model_plan import PlanOptions, plan_observed
    from trnconv.models import Size

    options = PlanOptions(asked_machine(where[0]).name, where[1], prices.cores)
    with working(f"planning {own.name}") as tell:
        seen = own.observed(phase)
        watched = replace(prices, watch=lambda done, of: tell("prices", done, of))
        size = Size("", seen.frames, seen.height, seen.width)
        called = ClipCall(own.shape[0], own.dtype, own.name)
        return model_document(plan_observed(seen, size, options, watched), called)
