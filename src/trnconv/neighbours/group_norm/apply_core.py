"""y = act(a_c x + b_c): coefficients from statistics of channels, then one pass."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import OPERATORS
from trnconv.neighbours.group_norm.coefficients import IMAGES, GroupCoefficients
from trnconv.neighbours.group_norm.recipe import GroupNormRecipe
from trnconv.neighbours.sweep_kernel import SweepStep, tile_rings

SLOTS = 4  # tiles of x
Y_SLOTS = 3  # a store takes longer than a step
LATE = 2  # steps from a load to its store


class ApplyCore(nl.NKIObject):
    """What a core holds: tiles of x and y, coefficients of some images."""

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
        self.recipe = recipe
        self.coefficients = GroupCoefficients(statistics, constants, recipe)
        lines, count = recipe.lines, len(recipe.tiles)
        self.xs = tile_rings(SLOTS, count, (lines, recipe.width), x.dtype)
        self.ys = tile_rings(Y_SLOTS, count, (lines, recipe.width), y.dtype)
        self.begun = 0
        self.slots: list[int] = []

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.coefficients.open_region()

    def end(self, step: SweepStep) -> None:
        """Nothing is left of an image."""

    def begin(self, step: SweepStep) -> None:
        """Coefficients of an image."""
        self.begun += 1
        self.coefficients.of_step(step, self.begun % IMAGES)

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
            factors = self.coefficients.factors(tile, self.slots[n])
            y = self.ys[n % Y_SLOTS][tile][0:channels, 0 : step.width]
            nisa.activation(
                dst=y,
                op=OPERATORS[self.recipe.activation],
                data=self.xs[n % SLOTS][tile][0:channels, 0 : step.width],
                scale=factors[:, 0:1],
                bias=factors[:, 1:2],
            )
            nisa.dma_copy(dst=self.positions(self.y, step, tile), src=y)
