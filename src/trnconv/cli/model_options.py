"""A whole model by options, in place of a layer; and where prices and plans are remembered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.completion import model_names, phase_names
from trnconv.cli.layer_options import LayerOptions, with_layer
from trnconv.cli.refusals import print_refusal
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.cache import Cache

Command = Callable[..., None]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", help="A model by name (see `trnconv models`).", autocompletion=model_names
    ),
]
Phase = Annotated[
    str | None,
    typer.Option(help="With --model: decode (default) or encode.", autocompletion=phase_names),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Do not read or write the cache of prices and plans.")
]
TunedFile = Annotated[
    Path | None,
    typer.Option(
        "--tuned", help="Use plans that `trnconv tune` wrote. Default: the file in TRNCONV_TUNED."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Worker processes. Default: one per CPU."),
]
_SIZE = Annotated[
    str | None,
    typer.Option(
        help="A layer's input: frames x rows x columns. With --model: height x width x frames."
    ),
]
DEFAULT_PHASE = "decode"


def with_layer_or_model(command: Command) -> Command:
    """A command with the options of a layer, of which `--size` may also be that of a model."""
    taking = with_layer(command)
    signature = inspect.signature(taking)
    parameters = [
        parameter.replace(annotation=_SIZE) if parameter.name == "size" else parameter
        for parameter in signature.parameters.values()
    ]

    @wraps(taking)
    def either(**values: Any) -> None:
        taking(**values)

    either.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    either.__dict__["__signature__"] = inspect.Signature(parameters)
    return either


def require_model_alone(layer: LayerOptions, model: str, *also: str) -> None:
    """Refuse a model and a layer at once; `also` are options that both have."""
    others = layer.given(but=("size", *also))
    if others:
        raise TrnconvError(
            f"--model {model} and {', '.join(others)}: these options describe a single layer."
            " Give a model or a layer, not both."
        )


def require_no_phase(phase: str | None) -> None:
    """Refuse a phase without a model."""
    if phase is not None:
        raise TrnconvError(f"--phase {phase} without --model: only models have phases.")


def price_cache(*, unused: bool) -> AbstractContextManager[Cache | None]:
    """The prices on disk, unless they are not to be used. Troubles are told on stderr."""
    from trnconv.cache import Cache

    return _telling(None if unused else Cache.named("prices"))


def plan_cache(*, unused: bool) -> AbstractContextManager[Cache | None]:
    """The same of whole plans."""
    from trnconv.cache import Cache, package_stamp

    return _telling(None if unused else Cache.named("plans", package_stamp))


@contextmanager
def _telling(cache: Cache | None) -> Iterator[Cache | None]:
    yield cache
    if cache is not None and cache.troubles:
        print_refusal(cache.told())
