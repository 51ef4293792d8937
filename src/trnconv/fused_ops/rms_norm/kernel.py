"""Norm over channels, position by position, with an activation behind it.

    y[c, p] = act(scale[c] * x[c, p] * (sum over c of x[c, p]^2 + e)^-1/2 + b[c])

Channels stand on partitions. For a step of positions: three engines make the sums of squares
(`square_sums.py`); the Vector engine takes the power and multiplies x by it in one pass; the Scalar
engine does the rest. Nothing is rounded between the sums and y.

Squares of 16-bit types are bf16: fp16 would overflow above 255, and fp32 would be four times slower
on the Tensor engine. Each engine works on another step, so that none waits for the next.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import OPERATORS, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.fused_ops.rms_norm.recipe import RmsNormRecipe
from trnconv.fused_ops.rms_norm.square_sums import SquareSums
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing, sweep

LATE = 3  # steps from a load to its store


def rms_norm(x: nl.NkiTensor, constants: nl.NkiTensor, recipe: RmsNormRecipe) -> nl.NkiTensor:
    """x [N, C, Q], constants [partitions, scale and b of every tile] -> y [N, C, P], P of the Q."""
    y = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    sweep(RmsNormCore(x, y, constants, recipe), recipe.rows, recipe.width)
    return y


def rms_norm_on_two_cores(
    x: nl.NkiTensor,
    constants: nl.NkiTensor,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """The same, with each of two cores computing its steps."""
    y = rms_norm(x, constants, recipes.cores[nl.program_id(0)])
    wait_for_both(y)
    return y


class RmsNormCore(nl.NKIObject):
    """What a core holds: constants, and tiles that steps use in turn."""

    def __init__(
        self,
        x: nl.NkiTensor,
        y: nl.NkiTensor,
        constants: nl.NkiTensor,
        recipe: RmsNormRecipe,
    ) -> None:
        self.y = y
        self.recipe = recipe
        self.pitches = (recipe.shape[1] * recipe.shape[2], recipe.shape[2])
        size = (recipe.lines, recipe.width)
        self.constants = nl.ndarray(constants.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=constants)
        self.squares = SquareSums(x, recipe, 2)
        self.products = TileRing(2, recipe.tiles, size, nl.float32)
        self.ys = TileRing(2, recipe.tiles, size, y.dtype)
        self.sums: list[list[nl.NkiTensor]] = []

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.squares.open_region()

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        self.sums = []
        for n in range(len(steps) + LATE):
            if n < len(steps):
                self.squares.load(steps[n], n)
            if n >= 1 and n - 1 < len(steps):
                self.squares.square(steps[n - 1], n - 1)
                self.sums.append(self.squares.sum_up(steps[n - 1], n - 1))
            if n >= 2 and n - 2 < len(steps):
                self.squares.normed(steps[n - 2], n - 2, self.sums[n - 2], self.products)
            if n >= LATE:
                finish(self, steps[n - LATE], n - LATE)


def finish(core: RmsNormCore, step: SweepStep, n: int) -> None:
    """act(scale * product + b), rounded once, to y."""
    recipe = core.recipe
    for tile in range(len(recipe.tiles)):
        channels = recipe.tiles[tile][1]
        y = core.ys.at(n, tile, step.width)
        scale = core.constants[0:channels, 2 * tile : 2 * tile + 1]
        bias = core.constants[0:channels, 2 * tile + 1 : 2 * tile + 2]
        nisa.activation(
            dst=y,
            op=OPERATORS[recipe.activation],
            data=core.products.at(n, tile, step.width),
            scale=scale,
            bias=bias if recipe.has_beta else None,
        )
        nisa.dma_copy(dst=step.positions(core.y, recipe.tiles[tile], core.pitches), src=y)
