"""Where outputs of a kernel by differences go, and where what is added to them comes from."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.winograd_upsample.core import UpsampleBlock, UpsampleCore
from trnconv.algorithms.winograd_upsample.recipe import FrameUnit, YTile
from trnconv.algorithms.winograd_upsample.terms import TIMES


def store(
    core: UpsampleCore, block: UpsampleBlock, unit: FrameUnit, tile: YTile, out: nl.NkiTensor
) -> None:
    """An output buffer to y."""
    nisa.dma_copy(dst=in_output(core, core.y, block, unit, tile), src=stored(block, tile, out))


def residual_of(
    core: UpsampleCore, block: UpsampleBlock, unit: FrameUnit, tile: YTile
) -> nl.NkiTensor | None:
    """What is added to a tile of outputs, loaded; None if nothing is."""
    if core.residual == None:
        return None
    buffer = core.next_residual()
    if core.recipe.coarse == None:
        source = in_output(core, core.residual, block, unit, tile)
        nisa.dma_copy(dst=stored(block, tile, buffer), src=source)
        return buffer
    kind, coarse, r = block.kind, core.recipe.coarse, core.residual
    elems = kind.rows * kind.columns
    every = r.shape[2] * r.shape[3] * r.shape[4]
    step = coarse.channel_step()
    pattern = (
        (step * every, tile.channels),
        (r.shape[4], kind.rows),
        (1, kind.columns),
    )
    for row in range(TIMES):
        at = tile.first * step * every + core.recipe.frames[unit.frame].added[row] + kind.inner
        flat = buffer[0 : tile.channels, row * elems : (row + 1) * elems]
        dst = flat.reshape((tile.channels, kind.rows, kind.columns))
        nisa.dma_copy(dst=dst, src=block.anchor.in_x(r, 0, pattern, at))
    return buffer


def stored(block: UpsampleBlock, tile: YTile, buffer: nl.NkiTensor) -> nl.NkiTensor:
    """The rows of a buffer that exist in y: [channels, elements]."""
    columns = TIMES * block.kind.columns
    first = block.kind.cut * columns
    return buffer[0 : tile.channels, first : first + block.kind.stored * columns]


def in_output(
    core: UpsampleCore, y: nl.NkiTensor, block: UpsampleBlock, unit: FrameUnit, tile: YTile
) -> nl.NkiTensor:
    """The same rows of y, or of a tensor of its shape."""
    _, _, frames, rows, width = core.recipe.y_shape
    channel_step = frames * rows * width
    at = tile.first * channel_step + unit.frame * rows * width
    lines = (channel_step, tile.channels)
    columns, count = TIMES * block.kind.columns, block.kind.stored
    if columns == width:
        return block.anchor.in_y(y, (lines, (1, count * width)), at)
    return block.anchor.in_y(y, (lines, (width, count), (1, columns)), at)
