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
from trnconv.forms.kernel_parts import SLOPES, wait_for_both
from trnconv.forms.recipe_parts import RecipePair
from trnconv.neighbours.group_norm_gradient.recipe import GroupNormGradientRecipe
from trnconv.neighbours.step_sums import StepSums
from trnconv.neighbours.sweep_kernel import SweepStep, sweep, tile_rings

LATE = 3  # steps from a load to its sums, or to its store
GIVEN = 4  # tiles of x, and of dy
OF_SUMS, OF_DX = 4, 5  # numbers of a channel: a, b, r and s; a, b, A, B and C
KINDS = 2  # sums of du n, and of du


def group_norm_sums(
    x: nl.NkiTensor, dy: nl.NkiTensor, constants: nl.NkiTensor, recipe: GroupNormGradientRecipe
) -> nl.NkiTensor:
    """x and dy [1, C, P], constants [partitions, four of every tile] -> sums [parts, C, 2]."""
    sums = all_sums(recipe)
    core = SumsCore(x, dy, constants, recipe)
    sweep(core, recipe.rows, recipe.width)
    core.kept.store(sums, recipe.part)
    return sums


def group_norm_sums_on_two_cores(
    x: nl.NkiTensor, dy: nl.NkiTensor, constants: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same, with each of two cores summing its positions."""
    recipe = recipes.cores[nl.program_id(0)]
    sums = all_sums(recipe)
    core = SumsCore(x, dy, constants, recipe)
    sweep(core, recipe.rows, recipe.width)
    core.kept.store(sums, recipe.part)
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
    recipe = recipes.cores[nl.program_id(0)]
    dx = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="dx")
    sweep(InputCore(x, dy, dx, constants, recipe), recipe.rows, recipe.width)
    wait_for_both(dx)
    return dx


def all_sums(recipe: GroupNormGradientRecipe) -> nl.NkiTensor:
    """To be written, by each core."""
    shape = (recipe.parts, recipe.shape[1], KINDS)
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm, name="sums")


class GivenTiles(nl.NKIObject):
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
        self.image = recipe.shape[1] * recipe.shape[2]
        self.constants = nl.ndarray(constants.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=constants)
        count, size = len(recipe.tiles), (recipe.lines, recipe.width)
        self.xs = tile_rings(GIVEN, count, size, self.x.dtype)
        self.dys = tile_rings(GIVEN, count, size, self.dy.dtype)
        self.slopes = tile_rings(GIVEN, count, size, recipe.between)

    def number(self, tile: int, which: int) -> nl.NkiTensor:
        """One of the numbers of each channel of a tile."""
        at = self.numbers * tile + which
        return self.constants[0 : self.recipe.tiles[tile][1], at : at + 1]

    def positions(self, tensor: nl.NkiTensor, step: SweepStep, tile: int) -> nl.NkiTensor:
        """A step's positions of a tile of channels, in memory."""
        first, channels = self.recipe.tiles[tile]
        pitch = self.recipe.shape[2]
        pattern = ((pitch, channels), (1, step.width))
        return step.of(tensor, self.image, pattern, first * pitch + step.first)

    def load(self, step: SweepStep, n: int) -> None:
        """x and dy of a step, tile by tile of channels."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            x = self.xs[n % GIVEN][tile][0:channels, 0 : step.width]
            nisa.dma_copy(dst=x, src=self.positions(self.x, step, tile))
            dy = self.dys[n % GIVEN][tile][0:channels, 0 : step.width]
            nisa.dma_copy(dst=dy, src=self.positions(self.dy, step, tile))

    def slope(self, step: SweepStep, n: int) -> None:
        """act'(a x + b)."""
        if self.recipe.activation == "identity":
            return
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            nisa.activation(
                dst=self.slopes[n % GIVEN][tile][0:channels, 0 : step.width],
                op=SLOPES[self.recipe.activation],
                data=self.xs[n % GIVEN][tile][0:channels, 0 : step.width],
                scale=self.number(tile, 0),
                bias=self.number(tile, 1),
            )

    def du(self, step: SweepStep, n: int, tile: int) -> nl.NkiTensor:
        """Where du of a tile stands: in place of act', or it is dy itself."""
        channels = self.recipe.tiles[tile][1]
        if self.recipe.activation == "identity":
            return self.dys[n % GIVEN][tile][0:channels, 0 : step.width]
        return self.slopes[n % GIVEN][tile][0:channels, 0 : step.width]

    def multiply(self, step: SweepStep, n: int) -> None:
        """du = dy act'."""
        if self.recipe.activation == "identity":
            return
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            du = self.du(step, n, tile)
            dy = self.dys[n % GIVEN][tile][0:channels, 0 : step.width]
            nisa.tensor_tensor(
                dst=du, data1=du, data2=dy, op=nl.multiply, engine=nisa.engine.vector
            )

    def line(self, step: SweepStep, n: int, which: int, to: list[nl.NkiTensor]) -> None:
        """x times one number of its channel, plus the next."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            nisa.tensor_scalar(
                dst=to[tile][0:channels, 0 : step.width],
                data=self.xs[n % GIVEN][tile][0:channels, 0 : step.width],
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
        self.given = GivenTiles((x, dy), constants, OF_SUMS, recipe)
        count, size = len(recipe.tiles), (recipe.lines, recipe.width)
        self.kept = StepSums(recipe.tiles, size, recipe.between, KINDS)
        self.normed = tile_rings(3, count, size, recipe.between)
        self.products = tile_rings(3, count, size, recipe.between)

    def open_region(self) -> None:
        """Nothing is of a region: no PSUM."""

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        for n in range(len(steps) + LATE):
            if n < len(steps):
                self.given.load(steps[n], n)
            if n >= 1 and n - 1 < len(steps):
                self.given.slope(steps[n - 1], n - 1)
                self.given.line(steps[n - 1], n - 1, 2, self.normed[(n - 1) % 3])
            if n >= 2 and n - 2 < len(steps):
                self.given.multiply(steps[n - 2], n - 2)
                self.multiply(steps[n - 2], n - 2)
            if n >= LATE:
                self.sum_up(steps[n - LATE], n - LATE)
        self.kept.fold()

    def multiply(self, step: SweepStep, n: int) -> None:
        """du n."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            nisa.tensor_tensor(
                dst=self.products[n % 3][tile][0:channels, 0 : step.width],
                data1=self.given.du(step, n, tile),
                data2=self.normed[n % 3][tile][0:channels, 0 : step.width],
                op=nl.multiply,
                engine=nisa.engine.gpsimd,
            )

    def sum_up(self, step: SweepStep, n: int) -> None:
        """Both sums over positions."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            self.kept.add_by_vector(tile, 1, self.given.du(step, n, tile))
            product = self.products[n % 3][tile][0:channels, 0 : step.width]
            self.kept.add_by_scalar(tile, 0, product)
        self.kept.next_step()


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
        self.given = GivenTiles((x, dy), constants, OF_DX, recipe)
        count, size = len(recipe.tiles), (recipe.lines, recipe.width)
        self.lines = tile_rings(3, count, size, recipe.between)
        self.dxs = tile_rings(3, count, size, dx.dtype)

    def open_region(self) -> None:
        """Nothing is of a region: no PSUM."""

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        for n in range(len(steps) + LATE):
            if n < len(steps):
                self.given.load(steps[n], n)
            if n >= 1 and n - 1 < len(steps):
                self.given.slope(steps[n - 1], n - 1)
                self.given.line(steps[n - 1], n - 1, 3, self.lines[(n - 1) % 3])
            if n >= LATE:
                self.finish(steps[n - LATE], n - LATE)
            if n >= 2 and n - 2 < len(steps):
                self.given.multiply(steps[n - 2], n - 2)

    def finish(self, step: SweepStep, n: int) -> None:
        """A du + B x + C, to dx."""
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            dx = self.dxs[n % 3][tile][0:channels, 0 : step.width]
            nisa.scalar_tensor_tensor(
                dst=dx,
                data=self.given.du(step, n, tile),
                op0=nl.multiply,
                operand0=self.given.number(tile, 2),
                op1=nl.add,
                operand1=self.lines[n % 3][tile][0:channels, 0 : step.width],
            )
            nisa.dma_copy(dst=self.given.positions(self.dx, step, tile), src=dx)
