"""The K side: which input line lies on each partition of a window.

A line is a channel of a frame (BY_FRAME), of a frame at a row shift (BY_ROW), or at a row and a
column shift (BY_COLUMN). Its key is (frame,), (frame, row shift) or (frame, row, column shift).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from nkisim.machine import PARTITIONS

Key = tuple[int, ...]


@dataclass(frozen=True)
class InLines:
    """Partitions `line` .. `line + channels - 1`: neighbouring channels under one key."""

    line: int
    key: Key
    channel: int
    channels: int


@dataclass(frozen=True)
class LineTile:
    """The lines of one window. All have keys of the same level."""

    level: int
    lines: tuple[InLines, ...]

    @property
    def count(self) -> int:
        """Partitions in use."""
        return self.lines[-1].line + self.lines[-1].channels

    @cached_property
    def dmas(self) -> tuple[int, int]:
        """DMAs that load it: lines in step together, or each by itself."""
        runs = [(line.channel, line.channels, line.key[:-1]) for line in self.lines]
        changes = sum(before != after for before, after in pairwise(runs))
        return 1 + changes, len(runs)


@dataclass(frozen=True)
class ReadNeeds:
    """What the outputs of a tile read: frames, and shifts of rows and columns."""

    frames: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def keys(self, level: int) -> list[Key]:
        """Every key of a level, in the order lines are stacked."""
        keys: list[Key] = [(frame,) for frame in self.frames]
        for shifts in (self.rows, self.columns)[: level - 1]:
            keys = [(*key, shift) for key in keys for shift in shifts]
        return keys


@lru_cache(maxsize=64)
def line_tiles(
    level: int, keys: tuple[Key, ...], channels: tuple[int, int], *, apart: bool = False
) -> tuple[LineTile, ...]:
    """The lines of some keys in a row, cut into tiles; `channels` are the first and their count.

    `apart`: lines of different keys are in tiles of their own.
    """
    if apart:
        return tuple(tile for key in keys for tile in _cut(level, [(key, *channels)]))
    return tuple(_cut(level, [(key, *channels) for key in keys]))


def cover(tiles: Sequence[LineTile], needs: ReadNeeds, levels: tuple[int, ...]) -> list[LineTile]:
    """The windows an accumulation reads, so that each line it needs is read exactly once.

    With one level, every shared tile that holds a needed line is read. With more, only tiles that
    are needed whole; lines left over are stacked at the next level, in windows of the
    accumulation's own.
    """
    needed = set(needs.keys(levels[0]))
    if len(levels) == 1:
        return [tile for tile in tiles if any(line.key in needed for line in tile.lines)]
    chosen: list[LineTile] = []
    left: list[tuple[Key, int, int]] = []
    for tile in tiles:
        wanted = [line for line in tile.lines if line.key in needed]
        if len(wanted) == len(tile.lines) and tile.count == PARTITIONS:
            chosen.append(tile)
        else:
            left += [(line.key, line.channel, line.channels) for line in wanted]
    for level, last in zip(levels[1:], [*[False] * (len(levels) - 2), True], strict=True):
        stacked = _cut(level, _deeper(left, needs, level))
        if not last and stacked and stacked[-1].count < PARTITIONS:
            partial = stacked.pop()
            left = [(line.key, line.channel, line.channels) for line in partial.lines]
        else:
            left = []
        chosen += stacked
    return chosen


def _deeper(
    ranges: list[tuple[Key, int, int]], needs: ReadNeeds, level: int
) -> list[tuple[Key, int, int]]:
    """The same channels at every shift of one level more (or two)."""
    for axis, added in ((BY_ROW_LENGTH, needs.rows), (BY_COLUMN_LENGTH, needs.columns)):
        if axis <= level:
            ranges = [
                ((*key, shift), channel, count) if len(key) == axis - 1 else (key, channel, count)
                for key, channel, count in ranges
                for shift in (added if len(key) == axis - 1 else (0,))
            ]
    return ranges


BY_ROW_LENGTH, BY_COLUMN_LENGTH = 2, 3  # numbers in a key of the level


def _cut(level: int, ranges: list[tuple[Key, int, int]]) -> list[LineTile]:
    tiles: list[list[InLines]] = []
    free = 0
    for key, first, count in ranges:
        done = 0
        while done < count:
            if free == 0:
                tiles.append([])
                free = PARTITIONS
            some = min(free, count - done)
            tiles[-1].append(InLines(PARTITIONS - free, key, first + done, some))
            done, free = done + some, free - some
    return [LineTile(level, tuple(lines)) for lines in tiles]
