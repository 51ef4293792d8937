"""Sums over positions that grow step by step, for every channel: of du n, and of du.

The Scalar engine sums a step into a column of its own; when columns are full, and at the end of a
turn, the Vector engine folds them into what is kept.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.neighbours.channel_norm_gradient.recipe import ChannelNormGradientRecipe
from trnconv.neighbours.sweep_kernel import filled, tile_rings

COLUMNS = 64  # steps until sums are folded
KINDS = 2  # of du n, of du


class StepSums(nl.NKIObject):
    """Columns of sums for each tile of channels, and what is kept of all before."""

    def __init__(self, recipe: ChannelNormGradientRecipe) -> None:
        norm = recipe.norm
        self.recipe = recipe
        self.kinds = KINDS if norm.has_beta else 1
        count = len(norm.tiles)
        self.columns = tile_rings(self.kinds, count, (norm.lines, COLUMNS), nl.float32)
        self.folds = tile_rings(1, count, (norm.lines, 1), nl.float32)[0]
        self.read = nl.ndarray((norm.lines, norm.width), dtype=recipe.between, buffer=nl.sbuf)
        self.kept: list[nl.NkiTensor] = []
        for _ in range(count):
            self.kept.append(filled((norm.lines, KINDS), nl.float32, 0.0))
        self.held = 0

    def add(self, tile: int, kind: int, values: nl.NkiTensor) -> None:
        """The sums of a step, to its column."""
        channels, width = values.shape
        nisa.activation(
            dst=self.read[0:channels, 0:width],
            op=nl.copy,
            data=values,
            reduce_op=nl.add,
            reduce_res=self.columns[kind][tile][0:channels, self.held : self.held + 1],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )

    def next_step(self) -> None:
        """All sums of a step were added."""
        self.held += 1
        if self.held == COLUMNS:
            self.fold()

    def fold(self) -> None:
        """Columns that are held become part of what is kept."""
        if self.held == 0:
            return
        for tile in range(len(self.recipe.norm.tiles)):
            channels = self.recipe.norm.tiles[tile][1]
            for kind in range(self.kinds):
                fold = self.folds[tile][0:channels, :]
                columns = self.columns[kind][tile][0:channels, 0 : self.held]
                nisa.tensor_reduce(dst=fold, op=nl.add, data=columns, axis=1)
                kept = self.kept[tile][0:channels, kind : kind + 1]
                nisa.tensor_tensor(dst=kept, data1=kept, data2=fold, op=nl.add)
        self.held = 0

    def store(self, sums: nl.NkiTensor) -> None:
        """What is kept, to this core's part of sums [parts, C, 2]."""
        for tile in range(len(self.recipe.norm.tiles)):
            first, channels = self.recipe.norm.tiles[tile]
            own = sums[self.recipe.part, first : first + channels, :]
            nisa.dma_copy(dst=own, src=self.kept[tile][0:channels, :])
