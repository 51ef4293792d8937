"""Where outputs of a Winograd kernel go, and where what is added to them comes from."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.winograd.core import WinogradBlock, WinogradCore
from trnconv.algorithms.winograd.recipe import ChannelTile, Unit


def residual_of(
    core: WinogradCore, block: WinogradBlock, unit: Unit, tile: ChannelTile
) -> nl.NkiTensor | None:
    """What is added to an output buffer, loaded; None if nothing is."""
    if core.residual == None:
        return None
    buffer = core.next_residual()
    rows = stored(core, block, unit, tile, buffer)
    nisa.dma_copy(dst=rows, src=in_output(core, core.residual, block, unit, tile))
    return buffer


def stored(
    core: WinogradCore, block: WinogradBlock, unit: Unit, tile: ChannelTile, buffer: nl.NkiTensor
) -> nl.NkiTensor:
    """The part of a buffer that exists in y: [channels, frames, elements of whole rows]."""
    recipe, kind = core.recipe, block.kind
    wanted = kind.units[unit.number]
    if recipe.unit_frames > 1:
        of_frame = kind.frame_rows * recipe.outputs * kind.columns
        every = buffer[0 : tile.channels, 0 : wanted.frames * of_frame]
        frames = every.reshape((tile.channels, wanted.frames, of_frame))
        first = wanted.first * kind.columns
        return frames[:, :, first : first + wanted.rows * kind.columns]
    first, count = positions_of(core, block, unit)
    flat = buffer[0 : tile.channels, first : first + count]
    return flat.reshape((tile.channels, wanted.frames, wanted.rows * kind.columns))


def positions_of(core: WinogradCore, block: WinogradBlock, unit: Unit) -> tuple[int, int]:
    """Outputs of a unit that exist in y, in each of its buffers: the first, and how many.

    Of several frames of row tiles, if none of their rows is cut.
    """
    wanted = block.kind.units[unit.number]
    columns = block.kind.columns
    of_frame = wanted.rows * columns
    if core.recipe.by_rows:
        return wanted.first * columns, wanted.frames * of_frame
    return wanted.outputs[0] * of_frame, wanted.frames * of_frame


def in_output(
    core: WinogradCore, y: nl.NkiTensor, block: WinogradBlock, unit: Unit, tile: ChannelTile
) -> nl.NkiTensor:
    """The same part of y, or of a tensor of its shape."""
    frames = block.kind.units[unit.number].frames
    return in_frames(core, y, (block, unit, tile), 0, frames)


def in_frames(
    core: WinogradCore,
    y: nl.NkiTensor,
    part: tuple[WinogradBlock, Unit, ChannelTile],
    first: int,
    frames: int,
) -> nl.NkiTensor:
    """Some frames of that part, in a tensor that begins with frame `first` of y."""
    block, unit, tile = part
    wanted = block.kind.units[unit.number]
    columns = block.kind.columns
    width = core.recipe.y_shape[4]
    frame_elems = core.recipe.y_shape[3] * width
    channel_step = y.shape[2] * frame_elems
    at = tile.channel * channel_step + wanted.y_offset - first * frame_elems
    lines = (channel_step, tile.channels)
    pairs = (frame_elems, frames)
    if columns == width:
        return block.anchor.in_y(y, (lines, pairs, (1, wanted.rows * columns)), at)
    return block.anchor.in_y(y, (lines, pairs, (width, wanted.rows), (1, columns)), at)
