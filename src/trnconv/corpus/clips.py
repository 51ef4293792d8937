"""A clip: where its video is, and the name its latents get."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trnconv.errors import TrnconvError

ID_DIGITS = 20  # hexadecimal: two of a billion clips collide with probability 4e-7
_NAMED = re.compile(r"[A-Za-z0-9_-]+")  # what may be part of a tensor's name


@dataclass(frozen=True, order=True)
class Clip:
    """One video, under an id that depends on nothing but its address."""

    id: str
    url: str


def clip_of(url: str) -> Clip:
    """The clip at an address; its id is a hash of the address, local paths made absolute."""
    address = _absolute(url)
    return Clip(hashlib.sha256(address.encode()).hexdigest()[:ID_DIGITS], address)


def clip_of_line(line: str) -> Clip:
    """A line of a list file: an address, or an id, a tab and an address."""
    name, tab, url = line.partition("\t")
    if not tab:
        return clip_of(line)
    if not _NAMED.fullmatch(name):
        raise TrnconvError(
            f"clip id {name!r} of {url}: an id has letters, digits, - and _ only. Rename it, or"
            " leave it out and have one made of the address."
        )
    return Clip(name, _absolute(url))


def in_order(clips: Iterable[Clip]) -> tuple[Clip, ...]:
    """Every clip once, by id. Order of listing does not matter; equal ids of two videos do."""
    found: dict[str, Clip] = {}
    for clip in clips:
        other = found.setdefault(clip.id, clip)
        if other.url != clip.url:
            raise TrnconvError(
                f"clip id {clip.id} has two videos, {other.url} and {clip.url}: ids are unique."
                " Rename one in the list."
            )
    return tuple(sorted(found.values()))


def _absolute(url: str) -> str:
    return url if "://" in url else str(Path(url).absolute())
