"""Regions: the loops of a program. The two programs of a launch must have the same ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkisim.trace import Loop


@dataclass
class Region:
    """A loop of a program, and the loops inside; without a `loop` it never ran."""

    loop: Loop | None = None
    inside: list[Region] = field(default_factory=list)

    @property
    def trips(self) -> int | None:
        """How often it runs; None where only the device knows."""
        return 0 if self.loop is None else self.loop.trips


def difference(first: list[Region], second: list[Region]) -> str | None:
    """Where the loops of two programs differ; None if they do not.

    A loop that did not run in one program may have anything inside; that its trips differ is for
    the rule about loops of no trips.
    """
    if len(first) != len(second):
        return f"{len(first)} loops in one program, {len(second)} in the other"
    for mine, theirs in zip(first, second, strict=True):
        if 0 in (mine.trips, theirs.trips):
            continue
        if None not in (mine.trips, theirs.trips) and mine.trips != theirs.trips:
            return f"a loop of {mine.trips} trips in one program, of {theirs.trips} in the other"
        unlike = difference(mine.inside, theirs.inside)
        if unlike is not None:
            return unlike
    return None
