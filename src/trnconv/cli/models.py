"""`trnconv models`: the autoencoders that are known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnconv.cli.output import Json, console, print_json, table

if TYPE_CHECKING:
    from trnconv.models import ModelEntry

_WIDE = 200  # characters of the table, at most


def models(json: Json = False) -> None:
    """List the models of the registry: what they are, their sizes, their class in diffusers."""
    from trnconv.models import models as registered

    answer = {"models": [_document(entry) for entry in registered()]}
    if json:
        print_json(answer)
    else:
        _show(answer)


def _document(entry: ModelEntry) -> dict[str, Any]:
    sizes = [size for size in entry.sizes if size != entry.tiny]
    return {
        "name": entry.name,
        "title": entry.title,
        "diffusers_class": entry.diffusers_class,
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


def _show(answer: dict[str, Any]) -> None:
    shown = table(
        "", "name", "what", "sizes, height x width x frames", "frames", "class of diffusers"
    )
    for column in shown.columns:
        column.justify = "left"
    for model in answer["models"]:
        sizes = ", ".join(
            f"{size['height']}x{size['width']}x{size['frames']}" for size in model["sizes"]
        )
        shown.add_row(
            model["name"], model["title"], sizes, model["frames"], model["diffusers_class"]
        )
    screen = console(_WIDE)
    screen.print(shown)
    screen.print()
    screen.print("The first size is the default. Others work, too, if the model takes them.")
