"""`trnconv models`: the autoencoders that are known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnconv.cli.output import Json
from trnconv.cli.sheet import Csv, Field, Sheet, Wide, print_list, sheet

if TYPE_CHECKING:
    from trnconv.models import ModelEntry

_COLUMNS = (
    Field("name", words=True),
    Field("what", words=True, rank=3),
    Field("sizes, height x width x frames", words=True),
    Field("frames", words=True, rank=1),
    Field("class", words=True, rank=2),
)


def models(json: Json = False, csv: Csv = False, wide: Wide = False) -> None:
    """List the models of the registry with their sizes and diffusers classes."""
    from trnconv.models import models as registered

    answer = {"models": [_document(entry) for entry in registered()]}
    words = (
        "The first size is the default. Other sizes that the model accepts work as well.\n"
        "Classes are from diffusers, except TinyVideoAutoencoder (TAEHV) and TurboVideoDecoder\n"
        "(Turbo-VAED), which are our own versions of the published structures.\n"
        "LTX-2.5 encodes like ltx-2.3; its default decoder is attention and is not included.\n"
        f"Other names: {_aliases(answer)}."
    )
    print_list(answer, _sheet(answer), words, json=json, csv=csv, wide=wide)


def _document(entry: ModelEntry) -> dict[str, Any]:
    sizes = [size for size in entry.sizes if size != entry.tiny]
    return {
        "name": entry.name,
        "title": entry.title,
        "aliases": dict(entry.aliases),
        "diffusers_class": entry.diffusers_class,
        "own_class": entry.own_class,
        "phases": list(entry.phases),
        "frames": str(entry.frames),
        "compression": list(entry.compression),
        "latent_channels": entry.latent_channels,
        "in_time": entry.in_time,
        "default_size": entry.production.name,
        "sizes": [
            {
                "name": size.name,
                "height": size.height,
                "width": size.width,
                "frames": size.frames,
            }
            for size in sizes
        ],
        "source": entry.source,
    }


def _aliases(answer: dict[str, Any]) -> str:
    listed = [(model["name"], ", ".join(model["aliases"])) for model in answer["models"]]
    return "; ".join(f"{others} run on {name}" for name, others in listed if others)


def _sheet(answer: dict[str, Any]) -> Sheet:
    return sheet(_COLUMNS, [_row(model) for model in answer["models"]])


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    sizes = ", ".join(
        f"{size['height']}x{size['width']}x{size['frames']}" for size in model["sizes"]
    )
    made_by = model["diffusers_class"] or model["own_class"]
    return model["name"], model["title"], sizes, model["frames"], made_by
