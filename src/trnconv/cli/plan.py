"""`trnconv plan`: how a layer, or every layer of a model, would run, and what it would take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    asked_problem,
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
from trnconv.cli.plan_answers import Document, ModelRequest, kept_or_made
from trnconv.cli.sheet import Csv, Wide, require_one_algorithm
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.cli.plan_documents import ClipCall
    from trnconv.model_plan import Prices

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

    require_one_algorithm(json=json, csv=csv)
    own = asked_own(OwnOptions(module, config, diffusers, input_shape), layer, model)
    whole = model is not None or own is not None
    if csv and not whole:
        raise TrnconvError(
            "--csv with one layer: only the layers of a model form a table. Use --json."
        )
    pricing = _Pricing(tuned, cores, jobs, no_cache=no_cache)
    if model is not None:
        require_model_alone(layer, model, "batch", "dtype")
        asked = (model, layer.size or "", phase or DEFAULT_PHASE)
        request = ModelRequest(*asked, machine, accuracy, cores, layer.batch, layer.dtype)
        made = partial(_of_model, request, pricing)
        answer = kept_or_made(request, made, unused=no_cache or tuned is not None)
    elif own is not None:
        answer = _of_own(own, phase, (machine, accuracy), pricing)
    else:
        require_no_phase(phase)
        answer = _of_layer(layer, (machine, accuracy), pricing)
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


@dataclass(frozen=True)
class _Pricing:
    """How a price is found."""

    tuned: Path | None
    cores: int | None
    jobs: int | None
    no_cache: bool

    @contextmanager
    def prices(self) -> Iterator[Prices]:
        """Prices by these options; while they are open, tuned plans are in use."""
        from trnconv.model_plan import Prices
        from trnconv.planner.tuned_plans import use_tuned

        jobs = self.jobs or os.cpu_count() or 1
        with use_tuned(self.tuned), price_cache(unused=self.no_cache) as cache:
            yield Prices(cache, cores=self.cores, jobs=jobs)


def _of_layer(layer: LayerOptions, where: tuple[str, str], pricing: _Pricing) -> Document:
    from trnconv.cli.plan_documents import layer_document
    from trnconv.problem.launches import require_room

    named = asked_layer(layer)
    problem = asked_problem(named, *where)
    require_room(problem)
    with pricing.prices() as prices, working(f"planning {named.name}"):
        return layer_document(named, problem, prices.of(problem), pricing.cores)


def _of_model(request: ModelRequest, pricing: _Pricing) -> tuple[Document, bool]:
    """The plan, and whether it follows from this package alone."""
    from trnconv.cli.plan_documents import model_document
    from trnconv.model_plan import PlanOptions, model_trace, plan_trace
    from trnconv.model_plan.traces import stored_trace
    from trnconv.models import find
    from trnconv.models.sizes import size_of

    called = _called(request)
    machine = asked_machine(request.machine).name
    options = PlanOptions(machine, request.accuracy, request.cores)
    entry = find(request.model)
    clip = size_of(entry, request.size)
    how = (entry, clip, request.phase, called.batch, called.dtype)
    with pricing.prices() as prices, working(f"planning {request.model}") as tell:
        watched = replace(prices, watch=lambda done, of: tell("prices", done, of))
        stored = stored_trace(*how)
        planned = plan_trace(stored or model_trace(*how), clip, options, watched)
        return model_document(planned, called), stored is not None


def _called(request: ModelRequest) -> ClipCall:
    """Clips at once and their type, of a model."""
    from trnconv.cli.plan_documents import ONE_CLIP, ClipCall

    batch = ONE_CLIP.batch if request.batch is None else request.batch
    if batch < 1:
        raise TrnconvError(f"--batch {batch}: it must be at least 1.")
    return ClipCall(batch, asked_dtype(request.dtype) or ONE_CLIP.dtype)


def _of_own(
    own: OwnModel, phase: str | None, where: tuple[str, str], pricing: _Pricing
) -> Document:
    from trnconv.cli.plan_documents import ClipCall, model_document
    from trnconv.model_plan import PlanOptions, plan_trace
    from trnconv.models import Size

    options = PlanOptions(asked_machine(where[0]).name, where[1], pricing.cores)
    with pricing.prices() as prices, working(f"planning {own.name}") as tell:
        trace = own.trace(phase)
        watched = replace(prices, watch=lambda done, of: tell("prices", done, of))
        size = Size("", trace.frames, trace.height, trace.width)
        called = ClipCall(own.shape[0], own.dtype, own.name)
        return model_document(plan_trace(trace, size, options, watched), called)
