"""What kernels that sweep over positions share: steps, their places, and hardware loops of them."""

from __future__ import annotations

from typing import Any

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import listed
from trnconv.neighbours.sweep import IMAGES, ONCE, POSITIONS, SweepPiece, SweepRow


class SweepStep(nl.NKIObject):
    """Some positions of an image; `counter` of a loop is added to the image or to the position."""

    def __init__(
        self,
        piece: SweepPiece,
        span: tuple[int, int],
        along: str,
        counter: nisa.VirtualRegister | None,
    ) -> None:
        self.image = piece.image
        self.first = piece.first + span[0]
        self.width = span[1]
        self.begins = piece.begins and along != POSITIONS and span[0] == 0
        self.ends = piece.ends and along != POSITIONS and span[0] + span[1] == piece.length
        self.alone = piece.alone
        self.along = along
        self.counter = counter

    def of(
        self, tensor: nl.NkiTensor, pitch: int, pattern: tuple[tuple[int, int], ...], offset: int
    ) -> nl.NkiTensor:
        """A pattern of a tensor whose images are `pitch` apart, from an offset on.

        The offset does not have the step's first position.
        """
        elems = 1
        for size in tensor.shape:
            elems *= size
        at = self.image * pitch + offset
        if self.along == IMAGES:
            rows = tensor.reshape((elems // pitch, pitch))
            return rows.ap(listed(pattern), offset=at, scalar_offset=self.counter, indirect_dim=0)
        flat = tensor.reshape((elems,))
        if self.along == ONCE:
            return flat.ap(listed(pattern), offset=at)
        return flat.ap(listed(pattern), offset=at, scalar_offset=self.counter, indirect_dim=0)


def sweep(core: Any, rows: tuple[SweepRow, ...], width: int) -> None:
    """Row after row; `core.run` does the steps of a row, or of a turn of one."""
    for row in rows:
        if row.along == ONCE:
            core.run(sweep_steps(row, width, None))
        else:
            roll(core, row, width)


def sweep_images(core: Any, rows: tuple[SweepRow, ...], width: int) -> None:
    """The same where images have something of their own: `core.begin` and `core.end` of a step.

    Those of an image whose positions are turns stand around its loop.
    """
    for row in rows:
        if row.along != POSITIONS:
            sweep(core, (row,), width)
            continue
        piece = row.pieces[0]
        step = SweepStep(piece, (0, piece.length), ONCE, None)
        if piece.begins:
            core.begin(step)
        roll(core, row, width)
        if piece.ends:
            core.end(step)


def roll(core: Any, row: SweepRow, width: int) -> None:
    """One hardware loop."""

    def one_turn(counter: nisa.VirtualRegister) -> None:
        core.open_region()
        core.run(sweep_steps(row, width, counter))

    nl.fori_loop(0, row.turns * row.step, one_turn, step=row.step)
    core.open_region()


def sweep_steps(row: SweepRow, width: int, counter: nisa.VirtualRegister | None) -> list[SweepStep]:
    """The steps of all pieces, in order."""
    steps = []
    for piece in row.pieces:
        for first in range(0, piece.length, width):
            span = (first, min(width, piece.length - first))
            steps.append(SweepStep(piece, span, row.along, counter))
    return steps


def filled(shape: tuple[int, int], dtype: str, value: float) -> nl.NkiTensor:
    """A tile of one value."""
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


def tile_rings(
    slots: int, count: int, shape: tuple[int, int], dtype: str
) -> list[list[nl.NkiTensor]]:
    """For each slot of a ring, a tile for each tile of channels."""
    rings = []
    for _ in range(slots):
        ring = []
        for _ in range(count):
            ring.append(nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf))  # noqa: PERF401 (NKI 0.6)
        rings.append(ring)
    return rings
