"""A clip: where its video is, and the name its latents get."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trnconv.corpus.storage.addresses import absolute, readable
from trnconv.errors import TrnconvError

ID_DIGITS = 20  # hexadecimal: two of a billion clips collide with probability 4e-7
_NAMED = re.compile(r"[A-Za-z0-9_-]{1,200}")  # what may be part of a tensor's name


@dataclass(frozen=True, order=True)
class Clip:
    """One video, under an id that depends on nothing but its address."""

    id: str
    url: str
    version: str = ""  # size and time or tag when it was listed; a list does not know them
    note: str = ""  # caption and whatever else a list says of it: a JSON object, or nothing


def clip_of(url: str, version: str = "") -> Clip:
    """The clip at an address; its id is a hash of the address, local paths made absolute."""
    address = absolute(url)
    digest = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()
    return Clip(digest[:ID_DIGITS], address, version)


def clip_of_line(line: str) -> Clip:
    """A line of a list file: an address, or an id, a tab and an address."""
    name, tab, url = line.partition("\t")
    return _named(name, url) if tab else clip_of(line)


def clip_of_object(line: str) -> Clip:
    """A line of a .jsonl list: an object with `url`, perhaps `id`; all else is its note."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TrnconvError(
            f"a line of a list is no JSON: {line[:60]!r}. Write an object a line, with `url`."
        ) from error
    url = said.pop("url", None) if isinstance(said, dict) else None
    if not isinstance(url, str) or not url:
        raise TrnconvError(f"a line of a list has no `url` of text: {line[:60]!r}.")
    name = said.pop("id", None)
    if name is not None and not isinstance(name, str):
        raise TrnconvError(f"clip id {name!r} of {readable(url)}: an id is text.")
    clip = clip_of(url) if name is None else _named(name, url)
    return Clip(clip.id, clip.url, note=_noted(said))


def _named(name: str, url: str) -> Clip:
    if not _NAMED.fullmatch(name):
        raise TrnconvError(
            f"clip id {name!r} of {readable(url)}: an id has letters, digits, - and _ only, at"
            " most 200. Rename it, or leave it out and have one made of the address."
        )
    return Clip(name, absolute(url))


def _noted(said: dict[str, Any]) -> str:
    return json.dumps(said, sort_keys=True) if said else ""


def in_order(clips: Iterable[Clip]) -> tuple[Clip, ...]:
    """Every clip once, by id. Order of listing does not matter; equal ids of two videos do."""
    by_id: dict[str, Clip] = {}
    for clip in clips:
        other = by_id.setdefault(clip.id, clip)
        if other.url != clip.url:
            raise two_videos(clip.id, other.url, clip.url)
    return tuple(sorted(by_id.values()))


def two_videos(name: str, first: str, second: str) -> TrnconvError:
    """The refusal of an id that stands for two addresses."""
    return TrnconvError(
        f"clip id {name} has two videos, {readable(first)} and {readable(second)}: ids are unique."
        " Rename one in the list."
    )
