"""What a core holds while it runs the recipe of a weight gradient: tiles, windows and sums."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Banks, Slots, at_cell, listed, sbuf
from trnconv.algorithms.weight_gradient.recipe import (
    GradientBlock,
    GradientPass,
    IterationPlace,
    StripWork,
    WeightGradientRecipe,
)


class GradientIteration(nl.NKIObject):
    """Where an iteration is: at a place, or, in a loop, where a row of the place table says."""

    def __init__(self, place: IterationPlace, address: int, looped: bool) -> None:  # noqa: FBT001
        self.place = place
        self.looped = looped
        self.cells = sbuf((1, 2), nl.int32, address)

    def load(self, places: nl.NkiTensor, first_row: int, number: nisa.VirtualRegister) -> None:
        """The row of the place table of an iteration of a hardware loop."""
        pattern = [[2, 1], [1, 2]]
        row = places.ap(pattern, offset=2 * first_row, scalar_offset=number, indirect_dim=0)
        nisa.dma_copy(dst=self.cells, src=row)

    def in_x(
        self, x: nl.NkiTensor, pattern: tuple[tuple[int, int], ...], offset: int
    ) -> nl.NkiTensor:
        """A pattern of x."""
        if self.looped:
            return at_cell(x, pattern, offset, self.cells[0:1, 0:1])
        return x.ap(listed(pattern), offset=self.place.x + offset)

    def in_dy(
        self, dy: nl.NkiTensor, pattern: tuple[tuple[int, int], ...], offset: int
    ) -> nl.NkiTensor:
        """A pattern of dy."""
        if self.looped:
            return at_cell(dy, pattern, offset, self.cells[0:1, 1:2])
        return dy.ap(listed(pattern), offset=self.place.dy + offset)


class GradientCore(nl.NKIObject):
    """One core at work on a recipe."""

    def __init__(
        self,
        x: nl.NkiTensor,
        dy: nl.NkiTensor,
        masks: nl.NkiTensor,
        recipe: WeightGradientRecipe,
    ) -> None:
        self.x = x
        self.dy = dy
        self.recipe = recipe
        at = recipe.addresses
        lines = recipe.lines
        self.sums = []
        columns = recipe.passes[0].columns
        for number in range(recipe.out_tiles):
            address = at.sums + number * at.sums_pitch
            self.sums.append(sbuf((lines, columns), nl.float32, address))
        self.bias_sums = sbuf((lines, recipe.out_tiles), nl.float32, at.bias_sums)
        copies = recipe.dy_copies * recipe.tiles * recipe.outs
        self.dys = [
            sbuf((lines, copies), x.dtype, at.dy),
            sbuf((lines, copies), x.dtype, at.dy + at.dy_pitch),
        ]
        self.blocks_begun = 0
        slots = []
        for number in range(recipe.slots):
            slots.append(sbuf((lines, recipe.slot_elems), x.dtype, at.x + number * at.x_pitch))
        self.slots = Slots(slots)
        self.masks = sbuf((lines, masks.shape[1]), nl.float32, at.masks)
        if recipe.masks > 0:
            nisa.dma_copy(dst=self.masks, src=masks)
        self.ones = sbuf((lines, 1), x.dtype, at.ones)
        nisa.memset(dst=self.ones, value=1.0, engine=nisa.engine.gpsimd)
        self.windows = Slots([])
        if not recipe.by_dma:
            self.prepare_windows(x.dtype)
        bank = (lines, recipe.bank_elems)
        self.banks = Banks(recipe.banks, bank, nl.float32)
        transposed = nl.float32 if recipe.wide_transposes else x.dtype
        self.transposed = Banks(recipe.transpose_banks, bank, transposed)

    def prepare_windows(self, dtype: str) -> None:
        """What the Tensor engine needs to transpose: windows."""
        recipe = self.recipe
        at = recipe.addresses
        windows = []
        for number in range(recipe.window_slots):
            elems = recipe.window_tiles * recipe.window_elems
            address = at.windows + number * at.window_pitch
            windows.append(sbuf((recipe.lines, elems), dtype, address))
        self.windows = Slots(windows)
        elems = recipe.out_tiles * recipe.dy_window_elems
        self.dy_window = sbuf((recipe.lines, elems), dtype, at.dy_window)

    def begin_pass(self, gradient_pass: GradientPass) -> None:
        """Nothing is summed, nothing is stored."""
        self.begun = [False] * len(gradient_pass.strips)
        self.stored = [False] * len(gradient_pass.strips)
        self.bias_begun = False

    def start_over(self) -> None:
        """What each iteration starts from, so that all iterations of a hardware loop are alike."""
        self.slots.start_over()
        self.windows.start_over()
        self.blocks_begun = 0
        self.banks.used = 0
        self.transposed.used = 0

    def open_region(self) -> None:
        """A loop begins or ends: what comes now has PSUM of its own."""
        self.banks.open_region()
        self.transposed.open_region()

    def out_tiles(self, gradient_pass: GradientPass) -> int:
        """Tiles of output channels of a pass."""
        return (gradient_pass.outs + self.recipe.lines - 1) // self.recipe.lines

    def sum_of(self, strip: StripWork, number: int, lines: int) -> nl.NkiTensor:
        """The accumulator of a strip for a tile of output channels."""
        return self.sums[number][0:lines, strip.kept : strip.kept + strip.columns]

    def dy_in_use(self) -> nl.NkiTensor:
        """The buffer that was filled last."""
        return self.dys[(self.blocks_begun - 1) % 2]

    def next_transposed(self, lines: int, shape: tuple[int, int, int]) -> nl.NkiTensor:
        """The bank for transposes whose turn it is, as [lines, *shape]."""
        bank = self.transposed.take()
        elems = shape[0] * shape[1] * shape[2]
        return bank[0:lines, 0:elems].reshape((lines, shape[0], shape[1], shape[2]))


def clear_sums(core: GradientCore, gradient_pass: GradientPass) -> None:
    """Zeros where nothing was summed yet; strip by strip, so that the first need not wait long."""
    if not core.bias_begun:
        core.bias_begun = True
        nisa.memset(dst=core.bias_sums, value=0.0, engine=nisa.engine.gpsimd)
    for n in range(len(gradient_pass.strips)):
        if not core.begun[n]:
            core.begun[n] = True
            for number in range(core.out_tiles(gradient_pass)):
                kept = core.sum_of(gradient_pass.strips[n], number, core.recipe.lines)
                nisa.memset(dst=kept, value=0.0, engine=nisa.engine.vector)


class BlockStep(nl.NKIObject):
    """A block, the iteration it belongs to, and the number of the iteration's first frame."""

    def __init__(
        self, block: GradientBlock, iteration: GradientIteration, first_frame: int
    ) -> None:
        self.block = block
        self.iteration = iteration
        self.first_frame = first_frame
