"""Norm over channels, position by position, with an activation behind it.

    y[c, p] = act(scale[c] * x[c, p] * (sum over c of x[c, p]^2 + e)^-1/2 + b[c])

Channels stand on partitions. For a step of positions: the Scalar and the Vector engine square; the
Tensor engine sums squares over channels with a matrix of ones, which leaves every sum on every
partition, and adds e by one more matmul; the Vector engine takes the power and multiplies x by it
in one pass; the Scalar engine does the rest. Nothing is rounded between the sums and y.

Squares of 16-bit types are bf16: fp16 would overflow above 255, and fp32 would be four times slower
on the Tensor engine. Each engine works on another step, so that none waits for the next.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.forms.kernel_parts import OPERATORS, Banks, wait_for_both
from trnconv.forms.recipe_parts import RecipePair
from trnconv.neighbours.channel_norm.recipe import ChannelNormRecipe
from trnconv.neighbours.sweep_kernel import SweepStep, filled, sweep, tile_rings

LATE = 3  # steps from a load to its store
SLOTS = 4  # tiles of x: one is loaded while the steps of three are at work


def channel_norm(
    x: nl.NkiTensor, constants: nl.NkiTensor, recipe: ChannelNormRecipe
) -> nl.NkiTensor:
    """x [N, C, Q], constants [partitions, scale and b of every tile] -> y [N, C, P], P of the Q."""
    y = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    sweep(ChannelNormCore(x, y, constants, recipe), recipe.rows, recipe.width)
    return y


def channel_norm_on_two_cores(
    x: nl.NkiTensor,
    constants: nl.NkiTensor,
    recipes: RecipePair,
) -> nl.NkiTensor:
    """The same, with each of two cores computing its steps."""
    number = nl.program_id(0)
    recipe = recipes.cores[number]
    y = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    sweep(ChannelNormCore(x, y, constants, recipe), recipe.rows, recipe.width)
    wait_for_both(y)
    return y


class ChannelNormCore(nl.NKIObject):
    """What a core holds: constants, and tiles that steps use in turn."""

    def __init__(
        self,
        x: nl.NkiTensor,
        y: nl.NkiTensor,
        constants: nl.NkiTensor,
        recipe: ChannelNormRecipe,
    ) -> None:
        self.x = x
        self.y = y
        self.recipe = recipe
        self.image = recipe.shape[1] * recipe.shape[2]
        lines, width = recipe.lines, recipe.width
        self.constants = nl.ndarray(constants.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=constants)
        self.ones = filled((lines, max(lines, recipe.bank)), recipe.squares, 1.0)
        self.under_root = filled((lines, lines), recipe.squares, 0.0)
        for n in range(len(recipe.under_root)):
            first = n * recipe.quadrant
            row = self.under_root[first : first + 1, :]
            nisa.memset(dst=row, value=recipe.under_root[n])
        count = len(recipe.tiles)
        self.xs = tile_rings(SLOTS, count, (lines, width), x.dtype)
        self.squares = tile_rings(2, count, (lines, width), recipe.squares)
        self.products = tile_rings(2, count, (lines, width), nl.float32)
        self.ys = tile_rings(2, count, (lines, width), y.dtype)
        banks = 2 * (-(-width // recipe.bank))
        self.banks = Banks(banks, (lines, recipe.bank), nl.float32)
        self.sums: list[list[nl.NkiTensor]] = []

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.banks.open_region()

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        self.sums = []
        for n in range(len(steps) + LATE):
            if n < len(steps):
                load(self, steps[n], n)
            if n >= 1 and n - 1 < len(steps):
                square(self, steps[n - 1], n - 1)
                self.sums.append(sum_up(self, steps[n - 1], n - 1))
            if n >= 2 and n - 2 < len(steps):
                multiply(self, steps[n - 2], n - 2)
            if n >= LATE:
                finish(self, steps[n - LATE], n - LATE)


def load(core: ChannelNormCore, step: SweepStep, n: int) -> None:
    """x of a step, tile by tile of channels."""
    pitch = core.recipe.x_positions
    image = core.recipe.shape[1] * pitch
    for tile in range(len(core.recipe.tiles)):
        first, channels = core.recipe.tiles[tile]
        pattern = ((pitch, channels), (1, step.width))
        offset = first * pitch + core.recipe.x_first + step.first
        src = step.of(core.x, image, pattern, offset)
        nisa.dma_copy(dst=core.xs[n % SLOTS][tile][0:channels, 0 : step.width], src=src)


def square(core: ChannelNormCore, step: SweepStep, n: int) -> None:
    """The first columns by the Vector engine, the others by the Scalar engine."""
    by_vector = min(core.recipe.vector_columns, step.width)
    for tile in range(len(core.recipe.tiles)):
        channels = core.recipe.tiles[tile][1]
        x, squares = core.xs[n % SLOTS][tile], core.squares[n % 2][tile]
        if by_vector > 0:
            part = x[0:channels, 0:by_vector]
            dst = squares[0:channels, 0:by_vector]
            nisa.tensor_tensor(dst=dst, data1=part, data2=part, op=nl.multiply)
        if by_vector < step.width:
            part = x[0:channels, by_vector : step.width]
            dst = squares[0:channels, by_vector : step.width]
            nisa.activation(dst=dst, op=nl.square, data=part)


def sum_up(core: ChannelNormCore, step: SweepStep, n: int) -> list[nl.NkiTensor]:
    """Sums over all channels and e, on every partition, a bank for some positions."""
    recipe = core.recipe
    sums = []
    for first in range(0, step.width, recipe.bank):
        columns = min(recipe.bank, step.width - first)
        bank = core.banks.take()[:, 0:columns]
        nisa.nc_matmul(
            dst=bank, stationary=core.under_root, moving=core.ones[:, 0:columns], accumulate=False
        )
        for tile in range(len(recipe.tiles)):
            channels = recipe.tiles[tile][1]
            nisa.nc_matmul(
                dst=bank,
                stationary=core.ones[0:channels, 0 : recipe.lines],
                moving=core.squares[n % 2][tile][0:channels, first : first + columns],
                accumulate=True,
            )
        sums.append(bank)
    return sums


def multiply(core: ChannelNormCore, step: SweepStep, n: int) -> None:
    """x * sums^-1/2, in float32."""
    recipe = core.recipe
    sums = core.sums[n]
    for tile in range(len(recipe.tiles)):
        channels = recipe.tiles[tile][1]
        x, products = core.xs[n % SLOTS][tile], core.products[n % 2][tile]
        for number in range(len(sums)):
            first = number * recipe.bank
            end = min(first + recipe.bank, step.width)
            nisa.scalar_tensor_tensor(
                dst=products[0:channels, first:end],
                data=sums[number][0:channels, :],
                op0=nl.power,
                operand0=-0.5,
                op1=nl.multiply,
                operand1=x[0:channels, first:end],
            )


def finish(core: ChannelNormCore, step: SweepStep, n: int) -> None:
    """act(scale * product + b), rounded once, to y."""
    recipe = core.recipe
    pitch = recipe.shape[2]
    for tile in range(len(recipe.tiles)):
        first, channels = recipe.tiles[tile]
        y = core.ys[n % 2][tile][0:channels, 0 : step.width]
        scale = core.constants[0:channels, 2 * tile : 2 * tile + 1]
        bias = core.constants[0:channels, 2 * tile + 1 : 2 * tile + 2]
        nisa.activation(
            dst=y,
            op=OPERATORS[recipe.activation],
            data=core.products[n % 2][tile][0:channels, 0 : step.width],
            scale=scale,
            bias=bias if recipe.has_beta else None,
        )
        pattern = ((pitch, channels), (1, step.width))
        dst = step.of(core.y, core.image, pattern, first * pitch + step.first)
        nisa.dma_copy(dst=dst, src=y)
