"""a_c and b_c of y = act(a_c x + b_c), from statistics of channels.

A matrix with 1 / (channels of a group) for every pair of channels of a group averages over groups,
and leaves the average on every channel. The variance of a group is the average of what its channels
vary, and of the squared distance of their means from the group's.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Banks, listed
from trnconv.fused_ops.group_norm.recipe import GroupNormRecipe
from trnconv.fused_ops.group_norm.statistics_core import TRIPLE
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing

IMAGES = 3  # whose scale and shift are held


class GroupScaleShift(nl.NKIObject):
    """Constants, and scale and shift of some images."""

    def __init__(
        self, statistics: nl.NkiTensor, constants: nl.NkiTensor, recipe: GroupNormRecipe
    ) -> None:
        self.statistics = statistics
        self.recipe = recipe
        lines, count = recipe.lines, len(recipe.tiles)
        self.constants = nl.ndarray(constants.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=constants)
        self.average = self.constants[:, 2 * count : 2 * count + lines]
        size = (lines, TRIPLE * recipe.parts)
        self.triples = TileRing(IMAGES, recipe.tiles, size, nl.float32)
        self.work = TileRing(IMAGES, recipe.tiles, (lines, 6), nl.float32)
        self.banks = Banks(4, (lines, 1), nl.float32)

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.banks.open_region()

    def of_step(self, step: SweepStep, slot: int) -> None:
        """Those of a step's image, in a slot."""
        pitch = TRIPLE * self.recipe.parts * self.recipe.shape[1]
        for tile in range(len(self.recipe.tiles)):
            first = TRIPLE * self.recipe.tiles[tile][0]
            src = step.of(self.statistics, pitch, self.pattern(tile), first)
            self.load(src, tile, slot)

    def of_image(self, image: int, slot: int) -> None:
        """Those of an image, in a slot."""
        channels = self.recipe.shape[1]
        flat = self.statistics.reshape(
            (self.recipe.images * self.recipe.parts * channels * TRIPLE,)
        )
        for tile in range(len(self.recipe.tiles)):
            at = TRIPLE * (image * self.recipe.parts * channels + self.recipe.tiles[tile][0])
            self.load(flat.ap(listed(self.pattern(tile)), offset=at), tile, slot)

    def pattern(self, tile: int) -> tuple[tuple[int, int], ...]:
        """Triples of a tile's channels, part by part."""
        channels = self.recipe.shape[1]
        lines = self.recipe.tiles[tile][1]
        return ((TRIPLE, lines), (TRIPLE * channels, self.recipe.parts), (1, TRIPLE))

    def load(self, src: nl.NkiTensor, tile: int, slot: int) -> None:
        """Statistics of a tile, and what follows from them."""
        lines, parts = self.recipe.tiles[tile][1], self.recipe.parts
        triples = self.triples.at(slot, tile, TRIPLE * parts)
        nisa.dma_copy(dst=triples.reshape((lines, parts, TRIPLE)), src=src)
        self.fill(tile, lines, triples, self.work.whole(slot, tile))

    def of_tile(self, tile: int, slot: int) -> nl.NkiTensor:
        """a and b of every channel of a tile."""
        return self.work.at(slot, tile, 6, 4)

    def fill(self, tile: int, lines: int, triples: nl.NkiTensor, work: nl.NkiTensor) -> None:
        """a and b of a tile of channels, in the last two columns of `work`."""
        mean, variance, distance = work[0:lines, 0:1], work[0:lines, 1:2], work[0:lines, 2:3]
        spread, a, b = work[0:lines, 3:4], work[0:lines, 4:5], work[0:lines, 5:6]
        gamma = self.constants[0:lines, 2 * tile : 2 * tile + 1]
        beta = self.constants[0:lines, 2 * tile + 1 : 2 * tile + 2]
        nisa.bn_aggr(dst=work[0:lines, 0:2], data=triples)
        of_group = self.averaged(mean, lines)
        nisa.tensor_tensor(dst=distance, data1=mean, data2=of_group, op=nl.subtract)
        nisa.scalar_tensor_tensor(
            dst=spread,
            data=distance,
            op0=nl.multiply,
            operand0=distance,
            op1=nl.add,
            operand1=variance,
        )
        nisa.tensor_scalar(
            dst=a,
            data=self.averaged(spread, lines),
            op0=nl.add,
            operand0=self.recipe.eps,
            op1=nl.power,
            operand1=-0.5,
        )
        nisa.tensor_tensor(dst=a, data1=a, data2=gamma, op=nl.multiply)
        nisa.scalar_tensor_tensor(
            dst=b,
            data=of_group,
            op0=nl.multiply,
            operand0=a,
            op1=nl.subtract,
            operand1=beta,
            reverse1=True,
        )

    def averaged(self, values: nl.NkiTensor, lines: int) -> nl.NkiTensor:
        """The average over its group, on every channel."""
        bank = self.banks.take()[0:lines, :]
        nisa.nc_matmul(
            dst=bank, stationary=self.average[0:lines, 0:lines], moving=values, accumulate=False
        )
        return bank
