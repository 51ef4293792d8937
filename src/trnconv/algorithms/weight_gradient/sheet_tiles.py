"""Sheets of x, and copies of dy that are moved, with positions on partitions: transposed by DMA."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.weight_gradient.core import BlockStep, GradientCore
from trnconv.algorithms.weight_gradient.recipe import (
    GradientBlock,
    GradientPass,
    SheetLoad,
    SheetPart,
    SheetSteps,
    StripWork,
)


def load_moved_dy(
    core: GradientCore,
    gradient_pass: GradientPass,
    step: BlockStep,
    tiles: nl.NkiTensor,
    number: int,
) -> None:
    """A copy of dy, tiles [positions, tiles, channels]."""
    recipe = core.recipe
    sheets = step.block.sheets
    shape = (recipe.lines, sheets.pieces, sheets.dy_tiles, gradient_pass.outs)
    dst = tiles[:, 0 : sheets.pieces * sheets.dy_tiles].reshape(shape)
    for part in sheets.dy[number].clears:
        clear_part(dst, part)
    for load in sheets.dy[number].loads:
        pattern = sheet_pattern(load, recipe.dy_stride, gradient_pass.outs)
        offset = gradient_pass.out * recipe.dy_stride + load.offset
        src = step.iteration.in_dy(core.dy, pattern, offset)
        nisa.dma_transpose(dst=loaded_part(dst, load), src=src)


def held_sheet(core: GradientCore, step: BlockStep, strip: StripWork) -> nl.NkiTensor:
    """The sheet of a strip, [positions, pieces, tiles, channels x columns of an element].

    It is loaded if it is not in SBUF.
    """
    recipe = core.recipe
    sheets = step.block.sheets
    unit = recipe.sheets.unit
    frame = step.block.frames[strip.frame_tap]
    key = (step.first_frame + frame.number) * recipe.channels + strip.channel
    elems = sheets.pieces * sheets.x_tiles * strip.channels * unit
    shape = (recipe.lines, sheets.pieces, sheets.x_tiles, strip.channels * unit)
    slot = core.slots.find(key)
    if slot >= 0:
        return core.slots.tiles[slot][:, 0:elems].reshape(shape)
    sheet = core.slots.tiles[core.slots.take(key)][:, 0:elems].reshape(shape)
    x = core.x
    dst = sheet
    if unit > 1:
        x = x.view(nl.int32)
        dst = sheet.view(nl.int32)
    for part in frame.sheet.clears:
        clear_part(dst, part)
    for load in frame.sheet.loads:
        pattern = sheet_pattern(load, recipe.x_stride, strip.channels)
        src = step.iteration.in_x(x, pattern, strip.channel * recipe.x_stride + load.offset)
        nisa.dma_transpose(dst=loaded_part(dst, load), src=src)
    return sheet


def of_sheet(
    steps: SheetSteps, block: GradientBlock, strip: StripWork, sheet: nl.NkiTensor, tile: int
) -> nl.NkiTensor:
    """What streams past a tile of dy: [positions, phases, row taps, channels] of a sheet."""
    sheets = block.sheets
    taps = len(strip.taps) // strip.phases
    piece = tile // sheets.dy_tiles
    first = tile % sheets.dy_tiles * steps.by_row + strip.row_tap * steps.by_tap
    end = first + (taps - 1) * steps.by_tap + 1
    shape = (sheet.shape[0], sheets.pieces, sheets.x_tiles, strip.channels, steps.unit)
    rows = sheet.reshape(shape)[0 : block.tiles[tile], piece, first : end : steps.by_tap]
    return rows[:, :, :, strip.phase : strip.phase + strip.phases].permute((0, 3, 1, 2))


def sheet_pattern(load: SheetLoad, stride: int, channels: int) -> tuple[tuple[int, int], ...]:
    """Where the positions of a load are in HBM, of channels that lie `stride` apart."""
    return (
        (stride, channels),
        (load.piece_step, load.part.pieces),
        (load.tile_step, load.part.tiles),
        (1, load.lines),
    )


def loaded_part(dst: nl.NkiTensor, load: SheetLoad) -> nl.NkiTensor:
    """The part of [positions, pieces, tiles, channels] that a load fills."""
    part = load.part
    lines = dst[load.line : load.line + load.lines]
    return lines[:, part.piece : part.piece + part.pieces, part.tile : part.tile + part.tiles, :]


def clear_part(dst: nl.NkiTensor, part: SheetPart) -> None:
    """Zeros in some tiles."""
    pieces = dst[:, part.piece : part.piece + part.pieces]
    cleared = pieces[:, :, part.tile : part.tile + part.tiles, :]
    nisa.memset(dst=cleared, value=0, engine=nisa.engine.gpsimd)
