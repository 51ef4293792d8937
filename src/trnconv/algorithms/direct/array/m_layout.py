"""The M side: which output each partition of a sum belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

from nkisim.machine import PARTITIONS, QUADRANT
from trnconv.algorithms.direct.plan import PePacking


@dataclass(frozen=True)
class OutLines:
    """Partitions `line`, `line + step` ...: channels of one output position of the stack."""

    line: int
    step: int
    channel: int
    channels: int
    frame: int
    row: int
    column: int


@dataclass(frozen=True)
class OutBox:
    """Consecutive partitions that hold channels of some frames and rows.

    Their order is frames x rows x channels, or channels x frames x rows unless there are more
    channels than rows: what is innermost is a run that one store takes if it may not be split.
    """

    line: int
    channel: int
    channels: int
    frame: int
    frames: int
    row: int
    rows: int

    @property
    def lines(self) -> int:
        """Partitions of the box."""
        return self.channels * self.frames * self.rows

    @property
    def channels_inside(self) -> bool:
        """Whether the channels of a position lie side by side, not its rows."""
        return self.channels > self.rows

    def out_lines(self, column: int = 0) -> tuple[OutLines, ...]:
        """Its partitions, position by position; `column` is what the stack has in all of them."""
        positions = product(range(self.frames), range(self.rows))
        step, apart = (1, self.channels) if self.channels_inside else (self.frames * self.rows, 1)
        return tuple(
            OutLines(
                line=self.line + number * apart,
                step=step,
                channel=self.channel,
                channels=self.channels,
                frame=self.frame + frame,
                row=self.row + row,
                column=column,
            )
            for number, (frame, row) in enumerate(positions)
        )

    @property
    def is_split(self) -> bool:
        """Whether its partitions are more than one dimension of a store."""
        return sum(count > 1 for count in (self.channels, self.frames, self.rows)) > 1

    def whole(self) -> tuple[OutBox, ...]:
        """The same partitions in boxes that are not split."""
        if not self.is_split:
            return (self,)
        if self.channels_inside:
            return tuple(
                OutBox(lines.line, self.channel, self.channels, lines.frame, 1, lines.row, 1)
                for lines in self.out_lines()
            )
        counts = product(range(self.channels), range(self.frames))
        return tuple(
            OutBox(
                self.line + (channel * self.frames + frame) * self.rows,
                self.channel + channel,
                1,
                self.frame + frame,
                1,
                self.row,
                self.rows,
            )
            for channel, frame in counts
        )


@dataclass(frozen=True)
class OutPart:
    """Neighbouring columns that one matmul computes: all of a tile, or one column tile."""

    line: int
    width: int


@dataclass(frozen=True)
class OutTile:
    """The sums of one PSUM tile: the columns of one stationary matrix, or of several."""

    width: int  # columns, gaps included
    lines: tuple[OutLines, ...]
    boxes: tuple[OutBox, ...]
    phases: tuple[tuple[int, int], ...]  # first partition, and the column, of each column phase
    parts: tuple[OutPart, ...]
    phase_lines: int  # partitions of one column phase
    opens: bool = True  # an output buffer of its own; else it goes on with the one before
    row: int = 0  # which rows of a shared output buffer are its own

    @cached_property
    def whole_boxes(self) -> tuple[OutBox, ...]:
        """The boxes, none of them split."""
        return tuple(part for box in self.boxes for part in box.whole())

    def stacked(self, axis: int, part: OutPart) -> tuple[int, ...]:
        """The frames (0), rows (1) or columns (2) of the stack that a part has channels of."""
        end = part.line + part.width
        places = {
            (line.frame, line.row, line.column)[axis]
            for line in self.lines
            if part.line <= line.line < end
        }
        return tuple(sorted(places))


@lru_cache(maxsize=1024)
def out_tiles(packing: PePacking) -> tuple[OutTile, ...]:
    """The sums of a pass, at most as many partitions each as the machine has."""
    if packing.tile_columns < PARTITIONS:
        return _column_tiles(packing)
    if packing.separate:
        return _separate(packing)
    if (
        phase_pitch(packing) * (packing.columns - 1)
        + packing.channels * packing.frames * packing.rows
        <= PARTITIONS
    ):
        return (_in_one(packing),)
    return _channel_minor(packing)


def phase_pitch(packing: PePacking) -> int:
    """Partitions from one column phase to the next: engines start on quadrants only."""
    lines = packing.channels * packing.frames * packing.rows
    return lines if packing.columns == 1 else _quadrants(lines)


def _quadrants(lines: int) -> int:
    """Partitions of the quadrants that so many are in."""
    return -(-lines // QUADRANT) * QUADRANT


def _in_one(packing: PePacking) -> OutTile:
    """All of a pass in one tile: column phases lie alike, and are stored together as one box."""
    box = OutBox(0, packing.first_channel, packing.channels, 0, packing.frames, 0, packing.rows)
    pitch = phase_pitch(packing)
    phases = tuple((column * pitch, column) for column in range(packing.columns))
    lines = tuple(
        line for first, column in phases for line in replace(box, line=first).out_lines(column)
    )
    width = phases[-1][0] + box.lines
    return OutTile(width, lines, (box,), phases, (OutPart(0, width),), box.lines)


def _channel_minor(packing: PePacking) -> tuple[OutTile, ...]:
    """Channels innermost, cut into full tiles: each meets few positions, so it reads few lines."""
    pieces: list[list[OutLines]] = [[]]
    free = PARTITIONS
    for frame in range(packing.frames):
        for row in range(packing.rows):
            done = 0
            while done < packing.channels:
                if free == 0:
                    pieces.append([])
                    free = PARTITIONS
                count = min(free, packing.channels - done)
                channel = packing.first_channel + done
                pieces[-1].append(
                    OutLines(PARTITIONS - free, 1, channel, count, frame, row, column=0)
                )
                done, free = done + count, free - count
    return tuple(_tile_of(lines) for lines in pieces)


def _separate(packing: PePacking) -> tuple[OutTile, ...]:
    """A tile for each position, or row, of the stack; those of a frame share an output buffer."""
    tiles = []
    together = packing.columns if packing.pairs_columns else 1
    positions = list(product(range(packing.rows), range(0, packing.columns, together)))
    for frame, first in product(range(packing.frames), range(0, packing.channels, PARTITIONS)):
        count = min(PARTITIONS, packing.channels - first)
        channel = packing.first_channel + first
        pitch = _quadrants(count)
        for row, column in positions:
            box = OutBox(0, channel, count, frame, 1, 0, 1)
            width = (together - 1) * pitch + count
            tiles.append(
                OutTile(
                    width,
                    tuple(
                        OutLines(n * pitch, 1, channel, count, frame, row, column + n)
                        for n in range(together)
                    ),
                    (box,) if (row, column) == positions[-1] else (),
                    tuple((n * pitch, column + n) for n in range(together)),
                    (OutPart(0, width),),
                    count,
                    opens=(row, column) == positions[0],
                    row=row,
                )
            )
    return tuple(tiles)


def _tile_of(lines: list[OutLines]) -> OutTile:
    boxes = tuple(
        OutBox(line.line, line.channel, line.channels, line.frame, 1, line.row, 1) for line in lines
    )
    width = boxes[-1].line + boxes[-1].lines
    return OutTile(width, tuple(lines), boxes, ((0, 0),), (OutPart(0, width),), width)


def _column_tiles(packing: PePacking) -> tuple[OutTile, ...]:
    """Units of a few channels, frames and rows, each in a column tile of its own."""
    frames, rows = packing.unit
    channels = min(packing.channels, packing.tile_columns // (frames * rows))
    units = [
        OutBox(
            0,
            packing.first_channel + first,
            min(channels, packing.channels - first),
            f,
            frames,
            r,
            rows,
        )
        for f in range(0, packing.frames, frames)
        for r in range(0, packing.rows, rows)
        for first in range(0, packing.channels, channels)
    ]
    side_by_side = PARTITIONS // packing.tile_columns
    return tuple(
        _side_by_side(units[first : first + side_by_side], packing.tile_columns)
        for first in range(0, len(units), side_by_side)
    )


def _side_by_side(units: list[OutBox], tile_columns: int) -> OutTile:
    boxes = [replace(unit, line=n * tile_columns) for n, unit in enumerate(units)]
    lines = tuple(line for box in boxes for line in box.out_lines())
    parts = tuple(OutPart(box.line, box.lines) for box in boxes)
    width = parts[-1].line + parts[-1].width
    return OutTile(width, lines, tuple(boxes), ((0, 0),), parts, width)
