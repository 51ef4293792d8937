"""Sums over positions that grow step by step, of some kinds of values for every channel.

An engine sums a step into a column of its own; when columns are full, and at the end of an
iteration, the Vector engine folds them into the totals.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.fused_ops.sweep_kernel import TileRing, filled

COLUMNS = 64  # steps until sums are folded
_FOLDING = 2  # instructions that fold the columns of one kind of a tile


def fold_instructions(steps: int, kinds: int, tiles: int) -> int:
    """Static instructions that fold the sums of an iteration of so many steps."""
    return -(-steps // COLUMNS) * _FOLDING * kinds * tiles


class StepSums(nl.NKIObject):
    """Columns of sums for each tile of channels, and the totals of all steps before.

    `size` is that of tiles of values, partitions and positions; `tiles` first channel and channels.
    """

    def __init__(
        self, tiles: tuple[tuple[int, int], ...], size: tuple[int, int], dtype: str, kinds: int
    ) -> None:
        self.tiles = tiles
        self.kinds = kinds
        lines = size[0]
        self.columns = TileRing(kinds, tiles, (lines, COLUMNS), nl.float32)
        self.folds = TileRing(1, tiles, (lines, 1), nl.float32)
        self.read = nl.ndarray(size, dtype=dtype, buffer=nl.sbuf)
        self.totals: list[nl.NkiTensor] = []
        for _ in range(len(tiles)):
            self.totals.append(filled((lines, kinds), nl.float32, 0.0))
        self.held = 0

    def column(self, tile: int, kind: int) -> nl.NkiTensor:
        """Where the sums of this step go."""
        return self.columns.at(kind, tile, self.held + 1, self.held)

    def add_by_scalar(self, tile: int, kind: int, values: nl.NkiTensor) -> None:
        """The sums of a step, by a copy of the Scalar engine that nobody reads."""
        channels, width = values.shape
        nisa.activation(
            dst=self.read[0:channels, 0:width],
            op=nl.copy,
            data=values,
            reduce_op=nl.add,
            reduce_res=self.column(tile, kind),
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )

    def add_by_vector(self, tile: int, kind: int, values: nl.NkiTensor) -> None:
        """The same by the Vector engine."""
        nisa.tensor_reduce(dst=self.column(tile, kind), op=nl.add, data=values, axis=1)

    def next_step(self) -> None:
        """All sums of a step were added."""
        self.held += 1
        if self.held == COLUMNS:
            self.fold()

    def fold(self) -> None:
        """Columns that are held become part of the totals."""
        if self.held == 0:
            return
        for tile in range(len(self.tiles)):
            for kind in range(self.kinds):
                fold = self.folds.at(0, tile, 1)
                columns = self.columns.at(kind, tile, self.held)
                nisa.tensor_reduce(dst=fold, op=nl.add, data=columns, axis=1)
                total = self.totals[tile][0 : self.tiles[tile][1], kind : kind + 1]
                nisa.tensor_tensor(dst=total, data1=total, data2=fold, op=nl.add)
        self.held = 0

    def store(self, sums: nl.NkiTensor, part: int) -> None:
        """The totals, to a part of sums [parts, C, kinds]."""
        for tile in range(len(self.tiles)):
            first, channels = self.tiles[tile]
            dst = sums[part, first : first + channels, :]
            nisa.dma_copy(dst=dst, src=self.totals[tile][0:channels, :])
