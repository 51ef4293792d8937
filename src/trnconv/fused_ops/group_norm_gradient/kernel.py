"""Gradient of a group norm and of the activation behind it, in two launches.

    u = a_c x + b_c     n = r_c x + s_c     du = dy act'(u)
    sums[c] = sum over positions of du n, and of du          the first launch
    dx = A_c du + B_c x + C_c                                the second

Sums of a group, and A, B and C, follow from sums of its channels: some numbers for each channel,
which the caller makes between the launches. Channels stand on partitions; x and dy are read twice,
and nothing else. The Scalar engine takes act' and sums du n, the GpSimd engine multiplies du and n,
the Vector engine does the rest, each at another step.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import SLOPES, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.fused_ops.group_norm_gradient.recipe import GroupNormGradientRecipe
from trnconv.fused_ops.step_sums import StepSums
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing, sweep

LATE = 3  # steps from a load to its sums, or to its store
SLOTS = 4  # tiles of x, and of dy
OF_SUMS, OF_DX = 4, 5  # numbers of a channel: a, b, r and s; a, b, A, B and C
KINDS = 2  # sums of du n, and of du


def group_norm_sums(
    x: nl.NkiTensor, dy: nl.NkiTensor, constants: nl.NkiTensor, recipe: GroupNormGradientRecipe
) -> nl.NkiTensor:
    """x and dy [1, C, P], constants [partitions, four of every tile] -> sums [parts, C, 2]."""
    shape = (recipe.parts, recipe.shape[1], KINDS)
    sums = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm, name="sums")
    core = SumsCore(x, dy, constants, recipe)
    sweep(core, recipe.rows, recipe.width)
    core.sums.store(sums, recipe.part)
    return sums


def group_norm_sums_on_two_cores(
    x: nl.NkiTensor, dy: nl.NkiTensor, constants: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same, with each of two cores summing its positions."""
    sums = group_norm_sums(x, dy, constants, recipes.cores[nl.program_id(0)])
    wait_for_both(sums)
    return sums


def group_norm_gradient(
    x: nl.NkiTensor, dy: nl.NkiTensor, constants: nl.NkiTensor, recipe: GroupNormGradientRecipe
) -> nl.NkiTensor:
    """x and dy [1, C, P], constants [partitions, five of every tile] -> dx [1, C, P]."""
    dx = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="dx")
    sweep(InputCore(x, dy, dx, constants, recipe), recipe.rows, recipe.width)
    return dx


def group_norm_gradient_on_two_cores(
    x: nl.NkiTensor, dy: nl.NkiTensor, constants: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same, with each of two cores computing its positions."""
    dx = group_norm_gradient(x, dy, constants, recipes.cores[nl.program_id(0)])
    wait_for_both(dx)
    return dx


class InputTiles(nl.NKIObject):
    """x and dy, step by step; act' of it, and du in its place; and numbers of every channel."""

    def __init__(
        self,
        tensors: tuple[nl.NkiTensor, nl.NkiTensor],
        constants: nl.NkiTensor,
        numbers: int,
        recipe: GroupNormGradientRecipe,
    ) -> None:
        self.x = tensors[0]
        self.dy = tensors[1]
        self.recipe = recipe
        self.numbers = numbers
        self.pitches = (recipe.shape[1] * recipe.shape[2], recipe.shape[2])
        self.constants = nl.ndarray(constants.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=constants)
        tiles, size = recipe.tiles, (recipe.lines, recipe.width)
        self.xs = TileRing(SLOTS, tiles, size, self.x.dtype)
        self.dys = TileRing(SLOTS, tiles, size, self.dy.dtype)
        self.slopes = TileRing(SLOTS, tiles, size, recipe.between)

    def number(self, tile: int, which: int) -> nl.NkiTensor:
        """One of the numbers of each channel of a tile."""
        at = self.numbers * tile + which
        return self.constants[0 : self.recipe.tiles[tile][1], at : at + 1]

    def load(self, step: SweepStep, n: int) -> None:
        """x and dy of a step, tile by tile of channels."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile]
            x, dy = self.xs.at(n, tile, step.width), self.dys.at(n, tile, step.width)
            nisa.dma_copy(dst=x, src=step.positions(self.x, channels, self.pitches))
            nisa.dma_copy(dst=dy, src=step.positions(self.dy, channels, self.pitches))

    def slope(self, step: SweepStep, n: int) -> None:
        """act'(a x + b)."""
        if self.recipe.activation == "identity":
            return
        for tile in range(len(self.recipe.tiles)):
            nisa.activation(
                dst=self.slopes.at(n, tile, step.width),
                op=SLOPES[self.recipe.activation],
                data=self.xs.at(n, tile, step.width),
                scale=self.number(tile, 0),
                bias=self.number(tile, 1),
            )

    def du(self, step: SweepStep, n: int, tile: int) -> nl.NkiTensor:
        """Where du of a tile stands: in place of act', or it is dy itself."""
        ring = self.dys if self.recipe.activation == "identity" else self.slopes
        return ring.at(n, tile, step.width)

    def multiply(self, step: SweepStep, n: int) -> None:
        """du = dy act'."""
        if self.recipe.activation == "identity":
            return
        for tile in range(len(self.recipe.tiles)):
            du, dy = self.du(step, n, tile), self.dys.at(n, tile, step.width)
            nisa.tensor_tensor(
                dst=du, data1=du, data2=dy, op=nl.multiply, engine=nisa.engine.vector
            )

    def line(self, step: SweepStep, n: int, which: int, to: TileRing) -> None:
        """x times one number of its channel, plus the next."""
        for tile in range(len(self.recipe.tiles)):
            nisa.tensor_scalar(
                dst=to.at(n, tile, step.width),
                data=self.xs.at(n, tile, step.width),
                op0=nl.multiply,
                operand0=self.number(tile, which),
                op1=nl.add,
                operand1=self.number(tile, which + 1),
                engine=nisa.engine.vector,
            )


class SumsCore(nl.NKIObject):
    """The first launch on one core."""

    def __init__(
        self,
        x: nl.NkiTensor,
        dy: nl.NkiTensor,
        constants: nl.NkiTensor,
        recipe: GroupNormGradientRecipe,
    ) -> None:
        self.recipe = recipe
        self.inputs = InputTiles((x, dy), constants, OF_SUMS, recipe)
        size = (recipe.lines, recipe.width)
        self.sums = StepSums(recipe.tiles, size, recipe.between, KINDS)
        self.normed = TileRing(3, recipe.tiles, size, recipe.between)
        self.products = TileRing(3, recipe.tiles, size, recipe.between)

    def open_region(self) -> None:
        """Nothing is of a region: no PSUM."""

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        for n in range(len(steps) + LATE):
            if n < len(steps):
                self.inputs.load(steps[n], n)
            if n >= 1 and n - 1 < len(steps):
                self.inputs.slope(steps[n - 1], n - 1)
                self.inputs.line(steps[n - 1], n - 1, 2, self.normed)
            if n >= 2 and n - 2 < len(steps):
                self.inputs.multiply(steps[n - 2], n - 2)
                self.multiply(steps[n - 2], n - 2)
            if n >= LATE:
                self.sum_up(steps[n - LATE], n - LATE)
        self.sums.fold()

    def multiply(self, step: SweepStep, n: int) -> None:
        """du n."""
        for tile in range(len(self.recipe.tiles)):
            nisa.tensor_tensor(
                dst=self.products.at(n, tile, step.width),
                data1=self.inputs.du(step, n, tile),
                data2=self.normed.at(n, tile, step.width),
                op=nl.multiply,
                engine=nisa.engine.gpsimd,
            )

    def sum_up(self, step: SweepStep, n: int) -> None:
        """Both sums over positions."""
        for tile in range(len(self.recipe.tiles)):
            self.sums.add_by_vector(tile, 1, self.inputs.du(step, n, tile))
            self.sums.add_by_scalar(tile, 0, self.products.at(n, tile, step.width))
        self.sums.next_step()


class InputCore(nl.NKIObject):
    """The second launch on one core."""

    def __init__(
        self,
        x: nl.NkiTensor,
        dy: nl.NkiTensor,
        dx: nl.NkiTensor,
        constants: nl.NkiTensor,
        recipe: GroupNormGradientRecipe,
    ) -> None:
        self.dx = dx
        self.recipe = recipe
        self.inputs = InputTiles((x, dy), constants, OF_DX, recipe)
        size = (recipe.lines, recipe.width)
        self.lines = TileRing(3, recipe.tiles, size, recipe.between)
        self.dxs = TileRing(3, recipe.tiles, size, dx.dtype)

    def open_region(self) -> None:
        """Nothing is of a region: no PSUM."""

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        for n in range(len(steps) + LATE):
            if n < len(steps):
                self.inputs.load(steps[n], n)
            if n >= 1 and n - 1 < len(steps):
                self.inputs.slope(steps[n - 1], n - 1)
                self.inputs.line(steps[n - 1], n - 1, 3, self.lines)
            if n >= LATE:
                self.finish(steps[n - LATE], n - LATE)
            if n >= 2 and n - 2 < len(steps):
                self.inputs.multiply(steps[n - 2], n - 2)

    def finish(self, step: SweepStep, n: int) -> None:
        """A du + B x + C, to dx."""
        for tile in range(len(self.recipe.tiles)):
            dx = self.dxs.at(n, tile, step.width)
            nisa.scalar_tensor_tensor(
                dst=dx,
                data=self.inputs.du(step, n, tile),
                op0=nl.multiply,
                operand0=self.inputs.number(tile, 2),
                op1=nl.add,
                operand1=self.lines.at(n, tile, step.width),
            )
            dst = step.positions(self.dx, self.recipe.tiles[tile], self.inputs.pitches)
            nisa.dma_copy(dst=dst, src=dx)
