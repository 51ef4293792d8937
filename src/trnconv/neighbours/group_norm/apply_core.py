"""y = act(a_c x + b_c): coefficients from statistics of channels, then one pass.

A matrix with 1 / (channels of a group) for every pair of channels of a group averages over groups,
and leaves the average on every channel. The variance of a group is the average of what its channels
vary, and of the squared distance of their means from the group's.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import OPERATORS, Banks
from trnconv.neighbours.group_norm.recipe import GroupNormRecipe
from trnconv.neighbours.group_norm.statistics_core import TRIPLE
from trnconv.neighbours.sweep_kernel import SweepStep, tile_rings

SLOTS = 4  # tiles of x
Y_SLOTS = 3  # a store takes longer than a step
LATE = 2  # steps from a load to its store
IMAGES = 3  # whose coefficients are held


class ApplyCore(nl.NKIObject):
    """What a core holds: constants, tiles of x and y, coefficients of some images."""

    def __init__(
        self,
        x: nl.NkiTensor,
        y: nl.NkiTensor,
        statistics: nl.NkiTensor,
        constants: nl.NkiTensor,
        recipe: GroupNormRecipe,
    ) -> None:
        self.x = x
        self.y = y
        self.statistics = statistics
        self.recipe = recipe
        lines, count = recipe.lines, len(recipe.tiles)
        self.constants = nl.ndarray(constants.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=constants)
        self.average = self.constants[:, 2 * count : 2 * count + lines]
        self.xs = tile_rings(SLOTS, count, (lines, recipe.width), x.dtype)
        self.ys = tile_rings(Y_SLOTS, count, (lines, recipe.width), y.dtype)
        self.triples = tile_rings(IMAGES, count, (lines, TRIPLE * recipe.parts), nl.float32)
        self.work = tile_rings(IMAGES, count, (lines, 6), nl.float32)
        self.banks = Banks(4, (lines, 1), nl.float32)
        self.begun = 0
        self.slots: list[int] = []

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.banks.open_region()

    def end(self, step: SweepStep) -> None:
        """Nothing is left of an image."""

    def begin(self, step: SweepStep) -> None:
        """Coefficients of an image."""
        self.begun += 1
        recipe = self.recipe
        channels = recipe.shape[1]
        slot = self.begun % IMAGES
        for tile in range(len(recipe.tiles)):
            first, lines = recipe.tiles[tile]
            pattern = ((TRIPLE, lines), (TRIPLE * channels, recipe.parts), (1, TRIPLE))
            pitch = TRIPLE * recipe.parts * channels
            src = step.of(self.statistics, pitch, pattern, TRIPLE * first)
            triples = self.triples[slot][tile][0:lines, :]
            nisa.dma_copy(dst=triples.reshape((lines, recipe.parts, TRIPLE)), src=src)
            self.coefficients(tile, lines, triples, self.work[slot][tile])

    def coefficients(
        self, tile: int, lines: int, triples: nl.NkiTensor, work: nl.NkiTensor
    ) -> None:
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

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another; coefficients are made as soon as a load is issued."""
        self.slots = []
        if steps[0].begins:
            self.begun = 0  # every turn of a loop begins alike
        for n in range(len(steps) + LATE):
            if n < len(steps):
                if steps[n].begins:
                    self.begin(steps[n])
                self.slots.append(self.begun % IMAGES)
                self.load(steps[n], n)
            if n >= LATE:
                self.finish(steps[n - LATE], n - LATE)

    def load(self, step: SweepStep, n: int) -> None:
        """x of a step, tile by tile of channels."""
        for tile in range(len(self.recipe.tiles)):
            dst = self.xs[n % SLOTS][tile][0 : self.recipe.tiles[tile][1], 0 : step.width]
            nisa.dma_copy(dst=dst, src=self.positions(self.x, step, tile))

    def positions(self, tensor: nl.NkiTensor, step: SweepStep, tile: int) -> nl.NkiTensor:
        """A step's positions of a tile of channels, of x or y."""
        recipe = self.recipe
        first, channels = recipe.tiles[tile]
        pattern = ((recipe.channel_pitch, channels), (1, step.width))
        offset = first * recipe.channel_pitch + step.first
        return step.of(tensor, recipe.image_pitch, pattern, offset)

    def finish(self, step: SweepStep, n: int) -> None:
        """act(a x + b), to y."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            work = self.work[self.slots[n]][tile]
            y = self.ys[n % Y_SLOTS][tile][0:channels, 0 : step.width]
            nisa.activation(
                dst=y,
                op=OPERATORS[self.recipe.activation],
                data=self.xs[n % SLOTS][tile][0:channels, 0 : step.width],
                scale=work[0:channels, 4:5],
                bias=work[0:channels, 5:6],
            )
            nisa.dma_copy(dst=self.positions(self.y, step, tile), src=y)
