"""y = act(a_c x + b_c): scale and shift from statistics of channels, then one pass."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import OPERATORS
from trnconv.fused_ops.group_norm.recipe import GroupNormRecipe
from trnconv.fused_ops.group_norm.scale_shift import IMAGES, GroupScaleShift
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing, load_positions

SLOTS = 4  # tiles of x
Y_SLOTS = 3  # a store takes longer than a step
LATE = 2  # steps from a load to its store


class ApplyCore(nl.NKIObject):
    """What a core holds: tiles of x and y, scale and shift of some images."""

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
        self.scale_shift = GroupScaleShift(statistics, constants, recipe)
        self.pitches = (recipe.image_pitch, recipe.channel_pitch)
        size = (recipe.lines, recipe.width)
        self.xs = TileRing(SLOTS, recipe.tiles, size, x.dtype)
        self.ys = TileRing(Y_SLOTS, recipe.tiles, size, y.dtype)
        self.begun = 0
        self.slots: list[int] = []

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.scale_shift.open_region()

    def end(self, step: SweepStep) -> None:
        """Nothing is left of an image."""

    def begin(self, step: SweepStep) -> None:
        """Scale and shift of an image."""
        self.begun += 1
        self.scale_shift.of_step(step, self.begun % IMAGES)

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another; a and b are made as soon as a load is issued."""
        self.slots = []
        if steps[0].begins:
            self.begun = 0  # every iteration of a loop begins so
        for n in range(len(steps) + LATE):
            if n < len(steps):
                if steps[n].begins:
                    self.begin(steps[n])
                self.slots.append(self.begun % IMAGES)
                load_positions(self.xs, n, steps[n], self.x, self.pitches)
            if n >= LATE:
                self.finish(steps[n - LATE], n - LATE)

    def finish(self, step: SweepStep, n: int) -> None:
        """act(a x + b), to y."""
        for tile in range(len(self.recipe.tiles)):
            scale_shift = self.scale_shift.of_tile(tile, self.slots[n])
            y = self.ys.at(n, tile, step.width)
            nisa.activation(
                dst=y,
                op=OPERATORS[self.recipe.activation],
                data=self.xs.at(n, tile, step.width),
                scale=scale_shift[:, 0:1],
                bias=scale_shift[:, 1:2],
            )
            nisa.dma_copy(dst=step.positions(self.y, self.recipe.tiles[tile], self.pitches), src=y)
