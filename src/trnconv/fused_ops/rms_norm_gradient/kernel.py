"""Gradient of a norm over channels and of the activation behind it, position by position.

    r[p] = (sum over c of x[c, p]^2 + e)^-1/2            n = x r              u = scale n + b
    du = dy act'(u)
    dx = r (scale du - n S)                              S[p] = sum over c of scale du n
    sums[c] = sum over p of du n,   and of du            what gradients of gamma and beta are of

Channels stand on partitions; nothing but x and dy is read. The Scalar engine squares, takes act'
and sums over positions; the Tensor engine sums over channels, of squares with ones and of du n with
the scales, which leaves every sum on every partition; the Vector engine multiplies with what stands
in PSUM; the products with dy are the GpSimd or the Vector engine's. Each engine works on another
step, so that none waits for the next.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import SLOPES, Banks, wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.fused_ops.rms_norm.square_sums import SquareSums, times_inverse
from trnconv.fused_ops.rms_norm_gradient.recipe import RmsNormGradientRecipe
from trnconv.fused_ops.step_sums import StepSums
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing, load_positions, sweep

LATE = 5  # steps from a load to its store
DY_SLOTS = 5  # tiles of dy: one is loaded while the steps of four are at work
NORMED = 3  # tiles of n, and of act' and du


def rms_norm_gradient(
    x: nl.NkiTensor,
    dy: nl.NkiTensor,
    constants: nl.NkiTensor,
    scales: nl.NkiTensor,
    recipe: RmsNormGradientRecipe,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """x [N, C, Q], dy [N, C, P] -> dx [N, C, P] and sums [parts, C, 1 or 2].

    `constants` [partitions, scale and b of every tile], `scales` [partitions, those of every tile
    as often as there are partitions].
    """
    dx = nl.ndarray(recipe.norm.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="dx")
    shape = (recipe.parts, recipe.norm.shape[1], kinds_of(recipe))
    sums = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm, name="sums")
    core = RmsNormGradientCore(x, dy, dx, (constants, scales), recipe)
    sweep(core, recipe.norm.rows, recipe.norm.width)
    core.sums.store(sums, recipe.part)
    return dx, sums


def rms_norm_gradient_on_two_cores(
    x: nl.NkiTensor,
    dy: nl.NkiTensor,
    constants: nl.NkiTensor,
    scales: nl.NkiTensor,
    recipes: RecipePair,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The same, with each of two cores computing its steps."""
    dx, sums = rms_norm_gradient(x, dy, constants, scales, recipes.cores[nl.program_id(0)])
    wait_for_both(dx)
    wait_for_both(sums)
    return dx, sums


def kinds_of(recipe: RmsNormGradientRecipe) -> int:
    """Sums of du n alone, or of du as well."""
    return 2 if recipe.norm.has_beta else 1


class RmsNormGradientCore(nl.NKIObject):
    """What a core holds: constants, and tiles that steps use in turn."""

    def __init__(
        self,
        x: nl.NkiTensor,
        dy: nl.NkiTensor,
        dx: nl.NkiTensor,
        packed: tuple[nl.NkiTensor, nl.NkiTensor],
        recipe: RmsNormGradientRecipe,
    ) -> None:
        self.dy = dy
        self.dx = dx
        self.recipe = recipe
        norm = recipe.norm
        self.tiles = norm.tiles
        self.pitches = (norm.shape[1] * norm.shape[2], norm.shape[2])
        self.constants = nl.ndarray(packed[0].shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.constants, src=packed[0])
        self.scales = nl.ndarray(packed[1].shape, dtype=norm.squares, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.scales, src=packed[1])
        self.squares = SquareSums(x, norm, LATE)
        self.spreads = Banks(2, (norm.lines, norm.bank), nl.float32)
        tiles, size = norm.tiles, (norm.lines, norm.width)
        self.sums = StepSums(tiles, size, recipe.between, kinds_of(recipe))
        self.dys = TileRing(DY_SLOTS, tiles, size, dy.dtype)
        self.normed = TileRing(NORMED, tiles, size, recipe.between)
        self.slopes = TileRing(NORMED, tiles, size, recipe.between)
        self.products = TileRing(2, tiles, size, norm.squares)
        self.parts = TileRing(2, tiles, size, recipe.between)
        self.dxs = TileRing(2, tiles, size, dx.dtype)
        self.roots: list[list[nl.NkiTensor]] = []
        self.spreads_of: list[nl.NkiTensor] = []

    def open_region(self) -> None:
        """PSUM tensors are of the region that they are allocated in."""
        self.squares.open_region()
        self.spreads.open_region()

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps, each engine at another."""
        self.roots = []
        self.spreads_of = []
        for n in range(len(steps) + LATE):
            if n < len(steps):
                self.squares.load(steps[n], n)
                load_positions(self.dys, n, steps[n], self.dy, self.pitches)
            if n >= 1 and n - 1 < len(steps):
                self.squares.square(steps[n - 1], n - 1)
                self.roots.append(self.squares.sum_up(steps[n - 1], n - 1))
            if n >= 2 and n - 2 < len(steps):
                self.squares.normed(steps[n - 2], n - 2, self.roots[n - 2], self.normed)
                slope(self, steps[n - 2], n - 2)
            if n >= 4 and n - 4 < len(steps):
                spread(self, steps[n - 4], n - 4)
            if n >= LATE:
                finish(self, steps[n - LATE], n - LATE)
            if n >= 4 and n - 4 < len(steps):
                subtract(self, steps[n - 4], n - 4)
            if n >= 3 and n - 3 < len(steps):
                multiply(self, steps[n - 3], n - 3)
                self.spreads_of.append(sum_over_channels(self, steps[n - 3], n - 3))
        self.sums.fold()


def slope(core: RmsNormGradientCore, step: SweepStep, n: int) -> None:
    """act'(scale n + b)."""
    norm = core.recipe.norm
    if norm.activation == "identity":
        return
    for tile in range(len(core.tiles)):
        channels = core.tiles[tile][1]
        bias = core.constants[0:channels, 2 * tile + 1 : 2 * tile + 2]
        nisa.activation(
            dst=core.slopes.at(n, tile, step.width),
            op=SLOPES[norm.activation],
            data=core.normed.at(n, tile, step.width),
            scale=core.constants[0:channels, 2 * tile : 2 * tile + 1],
            bias=bias if norm.has_beta else None,
        )


def du_of(core: RmsNormGradientCore, step: SweepStep, n: int, tile: int) -> nl.NkiTensor:
    """Where du of a step stands: in place of act', or it is dy itself."""
    ring = core.dys if core.recipe.norm.activation == "identity" else core.slopes
    return ring.at(n, tile, step.width)


def multiply(core: RmsNormGradientCore, step: SweepStep, n: int) -> None:
    """du = dy act' and du n, and their sums over positions."""
    passes = core.recipe.gpsimd_passes
    first = nisa.engine.gpsimd if passes > 1 else nisa.engine.vector
    last = nisa.engine.gpsimd if passes > 0 else nisa.engine.vector
    for tile in range(len(core.tiles)):
        du = du_of(core, step, n, tile)
        if core.recipe.norm.activation != "identity":
            dy = core.dys.at(n, tile, step.width)
            nisa.tensor_tensor(dst=du, data1=du, data2=dy, op=nl.multiply, engine=first)
        normed = core.normed.at(n, tile, step.width)
        product = core.products.at(n, tile, step.width)
        nisa.tensor_tensor(dst=product, data1=du, data2=normed, op=nl.multiply, engine=last)
        core.sums.add_by_scalar(tile, 0, product)
        if core.recipe.norm.has_beta:
            core.sums.add_by_scalar(tile, 1, du)
    core.sums.next_step()


def sum_over_channels(core: RmsNormGradientCore, step: SweepStep, n: int) -> nl.NkiTensor:
    """The sum of scale du n over all channels, on every partition."""
    lines = core.recipe.norm.lines
    bank = core.spreads.take()[:, 0 : step.width]
    for tile in range(len(core.tiles)):
        channels = core.tiles[tile][1]
        nisa.nc_matmul(
            dst=bank,
            stationary=core.scales[0:channels, tile * lines : (tile + 1) * lines],
            moving=core.products.at(n, tile, step.width),
            accumulate=tile > 0,
        )
    return bank


def spread(core: RmsNormGradientCore, step: SweepStep, n: int) -> None:
    """n S: what statistics pass on."""
    for tile in range(len(core.tiles)):
        nisa.tensor_tensor(
            dst=core.parts.at(n, tile, step.width),
            data1=core.spreads_of[n][0 : core.tiles[tile][1], :],
            data2=core.normed.at(n, tile, step.width),
            op=nl.multiply,
            engine=nisa.engine.vector,
        )


def subtract(core: RmsNormGradientCore, step: SweepStep, n: int) -> None:
    """scale du - n S."""
    for tile in range(len(core.tiles)):
        channels = core.tiles[tile][1]
        part = core.parts.at(n, tile, step.width)
        nisa.scalar_tensor_tensor(
            dst=part,
            data=du_of(core, step, n, tile),
            op0=nl.multiply,
            operand0=core.constants[0:channels, 2 * tile : 2 * tile + 1],
            op1=nl.subtract,
            operand1=part,
        )


def finish(core: RmsNormGradientCore, step: SweepStep, n: int) -> None:
    """dx = r (scale du - n S), rounded to its type, and stored."""
    for tile in range(len(core.tiles)):
        dx = core.dxs.at(n, tile, step.width)
        times_inverse(core.parts.at(n, tile, step.width), core.roots[n], dx)
        nisa.dma_copy(dst=step.positions(core.dx, core.tiles[tile], core.pitches), src=dx)
