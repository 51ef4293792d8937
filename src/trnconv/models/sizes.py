"""Sizes of clips as people write them: a name of the registry, or height x width x frames."""

from __future__ import annotations

import re

from trnconv.errors import ShapeError
from trnconv.models.registry import ModelEntry, Size, latent_size


def size_of(entry: ModelEntry, text: str = "") -> Size:
    """The size that a text names: 720p81, 720x1280x81; empty: the production size.

    A model of images takes 1024x1024, too. A ShapeError says what can be written, and which frames
    and pixels the model takes.
    """
    if not text:
        return entry.production
    for known in entry.sizes:
        if text == known.name:
            return known
    numbers = re.fullmatch(r"(\d+)x(\d+)(?:x(\d+))?", text)
    if numbers is None:
        named = ", ".join(size.name for size in entry.sizes)
        raise ShapeError(
            f"size {text!r} of {entry.name}: write height x width x frames, such as"
            f" {_written(entry.production)}, or one of {named}."
        )
    if numbers[3] is None and entry.production.frames > 1:
        raise ShapeError(
            f"size {text!r} of {entry.name}, a model of videos: how many frames? Write"
            f" {text}x{entry.production.frames}; it takes {entry.frames} frames."
        )
    asked = Size(text, int(numbers[3] or 1), int(numbers[1]), int(numbers[2]))
    for known in entry.sizes:
        if (known.frames, known.height, known.width) == (asked.frames, asked.height, asked.width):
            return known
    latent_size(entry, asked)
    return asked


def _written(size: Size) -> str:
    return f"{size.height}x{size.width}x{size.frames}"
