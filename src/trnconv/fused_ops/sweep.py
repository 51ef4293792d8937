"""Sweeps: positions of images in steps, steps in iterations of hardware loops, for every core.

All cores have the same loops.
A piece is a part of one image that goes through the engines in steps of `width` positions of all
channels. Whole images are the iterations of a loop if they are short, several to an iteration if
they are very short; an image that is long, or that is left over, is dealt to all cores, and its
steps are iterations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from nkisim.machine import Machine
from trnconv._nki import NKIObject
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.fused_ops.refusal import takes_loops

ITERATION_INSTRUCTIONS = 4000  # static, of an iteration: its start and end are then a few % of it
ONCE, IMAGES, POSITIONS = "once", "images", "positions"  # what a loop counts


@dataclass(frozen=True)
class Cut:
    """Decisions of a sweep: positions of a step, and most steps of an iteration."""

    width: int
    iteration_steps: int


def cut_of(width: int, step_length: int) -> Cut:
    """Iterations of as many steps as keep them short, for steps of so many static instructions."""
    return Cut(width, max(1, ITERATION_INSTRUCTIONS // step_length))


def widest_step(
    machine: Machine, constant_bytes: int, position_bytes: int, most: int, unit: int = 1
) -> int:
    """Positions of a step that fit SBUF, at most so many, in whole units; 0 if not one fits."""
    room = max(0, machine.sbuf_usable_bytes_per_partition - constant_bytes)
    return unit * (min(room // position_bytes, most) // unit)


@dataclass(frozen=True)
class SweepPiece(NKIObject):
    """A part of an image; in a loop, as it is in the first iteration."""

    image: int
    first: int  # position
    length: int  # positions
    alone: bool  # no other core has a part of the image
    begins: bool = False  # it is the first that its core has of the image
    ends: bool = False  # it is the last


@dataclass(frozen=True)
class SweepRow(NKIObject):
    """Pieces one after the other, `iterations` times; each time images or positions `step` on."""

    along: str
    iterations: int
    step: int
    pieces: tuple[SweepPiece, ...]


def channel_tiles(channels: int, machine: Machine, unit: int = 1) -> tuple[tuple[int, int], ...]:
    """First channel and channels of each tile, about equal, with whole units of channels."""
    units, most = channels // unit, machine.partitions // unit
    count = -(-units // most)
    bounds = [unit * (units * n // count) for n in range(count + 1)]
    return tuple((first, end - first) for first, end in pairwise(bounds))


def steps_of(length: int, width: int) -> tuple[tuple[int, int], ...]:
    """First position and width of every step of a piece."""
    return tuple((first, min(width, length - first)) for first in range(0, length, width))


def row_steps(row: SweepRow, width: int) -> list[int]:
    """Widths of the steps of an iteration."""
    return [count for piece in row.pieces for _, count in steps_of(piece.length, width)]


def sweeps(
    images: int, positions: int, cut: Cut, machine: Machine, cores: int
) -> tuple[tuple[SweepRow, ...], ...]:
    """What each core does."""
    steps = -(-positions // cut.width)
    whole = images // cores if steps <= cut.iteration_steps else 0
    loops = takes_loops(machine)
    rows = [
        _whole_images(core * whole, whole, positions, cut, loops=loops) for core in range(cores)
    ]
    for image in range(whole * cores, images):
        for core, dealt in enumerate(_dealt(image, positions, cut, cores, loops=loops)):
            rows[core] += dealt
    return tuple(tuple(_marked(_split(_joined(core), machine))) for core in rows)


def _whole_images(
    first: int, count: int, positions: int, cut: Cut, *, loops: bool
) -> list[SweepRow]:
    """Images of one core: a loop, and what is left over behind it."""
    group = max(1, cut.iteration_steps // -(-positions // cut.width))
    iterations = count // group if count > group and loops else 0
    looped = tuple(SweepPiece(first + n, 0, positions, alone=True) for n in range(group))
    left = range(first + iterations * group, first + count)
    rows = [SweepRow(IMAGES, iterations, group, looped)] if iterations else []
    return [*rows, _once(SweepPiece(image, 0, positions, alone=True) for image in left)]


def _dealt(
    image: int, positions: int, cut: Cut, cores: int, *, loops: bool
) -> list[list[SweepRow]]:
    """Rows of each core for its steps of one image."""
    steps = -(-positions // cut.width)
    bounds = [-(-steps * core // cores) * cut.width for core in range(cores + 1)]
    bounds[-1] = positions
    bounds = [min(bound, positions) for bound in bounds]
    fewest = min((end - at) // cut.width for at, end in pairwise(bounds))
    body = -(-fewest // max(1, -(-fewest // cut.iteration_steps)))
    iterations = fewest // body if fewest > cut.iteration_steps and loops else 0
    length = body * cut.width
    alone = bounds[1] == positions  # then the first core has all of it
    rows = []
    for at, end in pairwise(bounds):
        looped = [SweepRow(POSITIONS, iterations, length, (SweepPiece(image, at, length, alone),))]
        rest = at + iterations * length
        left = [SweepPiece(image, rest, end - rest, alone)] if end > rest else []
        rows.append([*(looped if iterations else []), _once(left)])
    return rows


def _once(pieces: Iterable[SweepPiece]) -> SweepRow:
    return SweepRow(ONCE, 1, 0, tuple(pieces))


def _joined(rows: list[SweepRow]) -> list[SweepRow]:
    """Rows without a loop that follow each other are one, so that engines do not run dry."""
    joined: list[SweepRow] = []
    for row in rows:
        if joined and row.along == joined[-1].along == ONCE:
            joined[-1] = _once((*joined[-1].pieces, *row.pieces))
        elif row.pieces:
            joined.append(row)
    return joined


def _split(rows: list[SweepRow], machine: Machine) -> list[SweepRow]:
    """Loops of as many iterations as a machine goes through."""
    split = []
    for row in rows:
        if row.along == ONCE:
            split.append(row)
            continue
        for first, end in loop_spans(row.iterations, machine):
            at = first * row.step
            images, positions = (at, 0) if row.along == IMAGES else (0, at)
            pieces = tuple(
                replace(piece, image=piece.image + images, first=piece.first + positions)
                for piece in row.pieces
            )
            split.append(SweepRow(row.along, end - first, row.step, pieces))
    return split


def _marked(rows: list[SweepRow]) -> list[SweepRow]:
    """Pieces that know whether they begin or end an image on their core."""
    places = [(n, m) for n, row in enumerate(rows) for m in range(len(row.pieces))]
    images = [rows[n].pieces[m].image for n, m in places]
    firsts = dict(zip(reversed(images), reversed(places), strict=True))
    lasts = dict(zip(images, places, strict=True))
    return [
        replace(
            row,
            pieces=tuple(
                replace(
                    piece,
                    begins=row.along == IMAGES or firsts[piece.image] == (n, m),
                    ends=row.along == IMAGES or lasts[piece.image] == (n, m),
                )
                for m, piece in enumerate(row.pieces)
            ),
        )
        for n, row in enumerate(rows)
    ]
