"""The autoencoders trnconv knows by name, read from `data/registry.json`.

Nothing here builds a model: an entry says which class of diffusers makes it and with what
configuration, and `trnconv.pytorch.model_builder` does. Each entry states where its values come
from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from trnconv.errors import ShapeError, UnsupportedError

Config = Mapping[str, Any]  # values are numbers, strings, booleans and tuples of these


@dataclass(frozen=True)
class FrameRule:
    """The numbers of frames a model takes: `step * n + first`, for n = 0, 1, 2, ..."""

    step: int
    first: int

    @classmethod
    def parse(cls, text: str) -> FrameRule:
        """Read `4n+1`, `4n`, `any` (every number), or `image` (one frame)."""
        named = {"any": cls(1, 0), "image": cls(0, 1)}
        if text in named:
            return named[text]
        linear = re.fullmatch(r"(\d+)n(?:\+(\d+))?", text)
        if linear is None:
            raise ShapeError(f"frame rule {text!r}: write 4n+1, 4n, any or image.")
        return cls(int(linear[1]), int(linear[2] or 0))

    def __str__(self) -> str:
        if self.step == 0:
            return "image"
        if (self.step, self.first) == (1, 0):
            return "any"
        return f"{self.step}n+{self.first}" if self.first else f"{self.step}n"

    def allows(self, frames: int) -> bool:
        """Whether a clip may have this many frames."""
        beyond = frames - self.first
        if self.step == 0:
            return beyond == 0
        return frames > 0 and beyond >= 0 and beyond % self.step == 0


@dataclass(frozen=True)
class Size:
    """A clip: frames, and rows and columns of pixels. An image has one frame."""

    name: str  # e.g. 720p81
    frames: int
    height: int
    width: int
    production: bool = False  # the size people run the model at


@dataclass(frozen=True)
class LatentSize:
    """What an encoder makes of a clip."""

    channels: int
    frames: int
    height: int
    width: int


@dataclass(frozen=True)
class Calling:
    """How the methods of a class differ from `(batch, channels, frames, height, width)`."""

    input: str  # video: as above; frames: (batch * frames, channels, height, width)
    decode_argument: str  # what decode wants besides latents: none, timestep or num_frames
    decoded: str  # video, frames, or frames_before_channels
    encoded: str = "latent_dist"  # latent and latents: not a distribution; tensor: the result
    first_frames: int = 0  # copies of the first frame that encode wants before the clip


@dataclass(frozen=True)
class Capture:
    """Which size and tiling of the model a scenario of the catalogue was captured from."""

    scenario: str
    size: str
    tiling: str
    phases: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)  # there is one entry per name: itself is its key
class ModelEntry:
    """One autoencoder: the class that makes it, its configuration, its sizes, what it supports."""

    name: str
    title: str
    diffusers_class: str  # empty: diffusers has none
    source: str  # where the configuration comes from, and what was not compared with a release
    notes: str
    frames: FrameRule
    compression: tuple[int, int, int]  # pixels per latent element: time, height, width
    latent_channels: int
    reduced_latent_channels: int
    phases: tuple[str, ...]  # encode, decode
    in_time: str  # cached: chunks with a cache; blended: overlapping chunks; whole; none: an image
    tilings: tuple[str, ...]  # of default, off and on: those the class can do
    calling: Calling
    config: Config
    reduced_config: Config  # narrow and shallow, with every kind of layer
    reduced_attributes: Config  # set on a reduced instance, so that tiny clips have several tiles
    sizes: tuple[Size, ...]
    catalogue: str  # the model's name in trnconv.catalogue; empty if it is not there
    captures: tuple[Capture, ...]
    pixel_channels: int = 3
    own_class: str = ""  # of trnconv.pytorch.model_builder.OWN, where diffusers has none
    aliases: Mapping[str, str] = field(
        default_factory=dict
    )  # models that run on it: how that is known

    @property
    def class_name(self) -> str:
        """The class that makes it, of diffusers or ours."""
        return self.diffusers_class or self.own_class

    @property
    def production(self) -> Size:
        """The size people run it at."""
        return next(size for size in self.sizes if size.production)

    @property
    def tiny(self) -> Size:
        """A size for the reduced configuration: a second of work, several chunks where any."""
        return self.size("tiny")

    def size(self, name: str) -> Size:
        """The size of this name; a ShapeError lists those there are."""
        for size in self.sizes:
            if size.name == name:
                return size
        known = ", ".join(size.name for size in self.sizes)
        raise ShapeError(
            f"size {name!r} of {self.name}: named are {known}. Any other is a"
            " Size(name, frames, height, width)."
        )


@lru_cache(maxsize=1)
def models() -> tuple[ModelEntry, ...]:
    """Every entry, in the order of the file."""
    source = resources.files("trnconv.models") / "data" / "registry.json"
    return tuple(_entry(record) for record in json.loads(source.read_text(encoding="utf-8")))


def find(name: str) -> ModelEntry:
    """The entry of this name or alias; an UnsupportedError lists those there are."""
    for entry in models():
        if entry.name == name or name in entry.aliases:
            return entry
    names = [called for entry in models() for called in (entry.name, *entry.aliases)]
    plain = {_plain(called): called for called in names}
    near = get_close_matches(_plain(name), plain, n=1)
    meant = f" Did you mean {plain[near[0]]}?" if near else ""
    known = ", ".join(entry.name for entry in models())
    raise UnsupportedError(f"model {name!r} is not in the registry.{meant} It has {known}.")


def _plain(name: str) -> str:
    """Letters and digits: Wan-2.1 and wan21 are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def latent_size(entry: ModelEntry, size: Size, *, reduced: bool = False) -> LatentSize:
    """The latent of a clip; a ShapeError says which frames and pixels the model takes."""
    time, high, wide = entry.compression
    if not entry.frames.allows(size.frames):
        raise ShapeError(
            f"{size.frames} frames for {entry.name}: it takes {entry.frames} frames"
            f" (n = 0, 1, 2, ...), in production {entry.production.frames}. Cut or repeat frames."
        )
    if size.height % high or size.width % wide or min(size.height, size.width) <= 0:
        raise ShapeError(
            f"{size.height} x {size.width} pixels for {entry.name}: height must be a multiple of"
            f" {high} pixels and width of {wide}. Crop or pad the clip."
        )
    return LatentSize(
        channels=entry.reduced_latent_channels if reduced else entry.latent_channels,
        frames=-(-size.frames // time),
        height=size.height // high,
        width=size.width // wide,
    )


def _entry(record: dict[str, Any]) -> ModelEntry:
    fields = {name: _frozen(value) for name, value in record.items()}
    reduced = fields.pop("reduced")
    fields["reduced_config"] = MappingProxyType({**fields["config"], **reduced})
    fields["frames"] = FrameRule.parse(fields["frames"])
    fields["calling"] = Calling(**fields["calling"])
    fields["sizes"] = tuple(Size(**size) for size in fields["sizes"])
    fields["captures"] = tuple(Capture(**capture) for capture in fields["captures"])
    return ModelEntry(**fields)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({name: _frozen(inner) for name, inner in value.items()})
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value
