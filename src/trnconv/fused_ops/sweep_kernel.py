"""What kernels that sweep over positions share: steps, their places, and hardware loops of them."""

from __future__ import annotations

from typing import Any

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import listed
from trnconv.fused_ops.sweep import IMAGES, ONCE, POSITIONS, SweepPiece, SweepRow


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

    def positions(
        self,
        tensor: nl.NkiTensor,
        tile: tuple[int, int],
        pitches: tuple[int, int],
        start: int = 0,
    ) -> nl.NkiTensor:
        """Its positions of a tile of channels, of a tensor whose positions begin at `start`.

        `pitches` are elements from one image to the next, and from one channel to the next.
        """
        first, channels = tile
        pattern = ((pitches[1], channels), (1, self.width))
        return self.of(tensor, pitches[0], pattern, first * pitches[1] + start + self.first)


def sweep(core: Any, rows: tuple[SweepRow, ...], width: int) -> None:
    """Row after row; `core.run` does the steps of a row, or of an iteration of one."""
    for row in rows:
        if row.along == ONCE:
            core.run(sweep_steps(row, width, None))
        else:
            run_loop(core, row, width)


def sweep_images(core: Any, rows: tuple[SweepRow, ...], width: int) -> None:
    """The same where images have something of their own: `core.begin` and `core.end` of a step.

    Those of an image whose positions are iterations stand around its loop.
    """
    for row in rows:
        if row.along != POSITIONS:
            sweep(core, (row,), width)
            continue
        piece = row.pieces[0]
        step = SweepStep(piece, (0, piece.length), ONCE, None)
        if piece.begins:
            core.begin(step)
        run_loop(core, row, width)
        if piece.ends:
            core.end(step)


def run_loop(core: Any, row: SweepRow, width: int) -> None:
    """One hardware loop."""

    def one_iteration(counter: nisa.VirtualRegister) -> None:
        core.open_region()
        core.run(sweep_steps(row, width, counter))

    nl.fori_loop(0, row.iterations * row.step, one_iteration, step=row.step)
    core.open_region()


def sweep_steps(row: SweepRow, width: int, counter: nisa.VirtualRegister | None) -> list[SweepStep]:
    """The steps of all pieces, in order."""
    steps = []
    for piece in row.pieces:
        for first in range(0, piece.length, width):
            span = (first, min(width, piece.length - first))
            steps.append(SweepStep(piece, span, row.along, counter))
    return steps


def load_positions(
    ring: TileRing,
    n: int,
    step: SweepStep,
    tensor: nl.NkiTensor,
    pitches: tuple[int, int],
    start: int = 0,
) -> None:
    """A step's positions, tile by tile of channels: see `SweepStep.positions`."""
    for tile in range(len(ring.tiles)):
        src = step.positions(tensor, ring.tiles[tile], pitches, start)
        nisa.dma_copy(dst=ring.at(n, tile, step.width), src=src)


def filled(shape: tuple[int, int], dtype: str, value: float) -> nl.NkiTensor:
    """A tile of one value."""
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


class TileRing(nl.NKIObject):
    """SBUF that steps use in turn: in each slot, a tile [partitions, columns] for each of channels.

    `tiles` are first channel and channels of each.
    """

    def __init__(
        self, slots: int, tiles: tuple[tuple[int, int], ...], size: tuple[int, int], dtype: str
    ) -> None:
        self.tiles = tiles
        self.slots: list[list[nl.NkiTensor]] = []
        for _ in range(slots):
            slot = []
            for _ in range(len(tiles)):
                slot.append(nl.ndarray(size, dtype=dtype, buffer=nl.sbuf))  # noqa: PERF401 (NKI 0.6)
            self.slots.append(slot)

    def whole(self, n: int, tile: int) -> nl.NkiTensor:
        """A tile of step `n`, all partitions and columns."""
        return self.slots[n % len(self.slots)][tile]

    def at(self, n: int, tile: int, end: int, first: int = 0) -> nl.NkiTensor:
        """The channels of a tile of step `n`, and some columns."""
        return self.whole(n, tile)[0 : self.tiles[tile][1], first:end]
