"""What the host prepares once: the weight image, the bias image and the table of places."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.algorithms.algorithm import FilterSources, with_bias
from trnconv.algorithms.direct.accumulations import Shift
from trnconv.algorithms.direct.array.m_layout import OutLines, out_tiles
from trnconv.algorithms.direct.lower import DirectLowered
from trnconv.algorithms.direct.reduced_problem import ReducedProblem
from trnconv.algorithms.direct.stationaries import ChunkWeights

Array = np.ndarray[Any, Any]


def pack(lowered: DirectLowered, w: Array, bias: Array | None) -> tuple[Array, Array, Array]:
    """The weight image, the bias image and the places; weights in the type of x."""
    own = w.astype(np.dtype(lowered.plan.dtype))
    return pack_weights(own, lowered), pack_bias(bias, lowered), np.array(lowered.places, np.int32)


def pack_weights(w: Array, lowered: DirectLowered) -> Array:
    """w [C_out, C_in / groups, KD, KH, KW] as [partitions, columns]: matrices in order of use."""
    return _image(merged_filters(w, lowered.plan.reduced), lowered)


def sources(lowered: DirectLowered) -> tuple[FilterSources, None, None]:
    """Whose filter every element of the weight image is; the other arrays have none."""
    shape, reduced = lowered.plan.shape, lowered.plan.reduced
    merged = tuple(tuple(tuple(group) for group in groups or ()) for groups in reduced.merged)
    taps = [len(groups) or own for groups, own in zip(merged, shape.kernel, strict=True)]
    sizes = (shape.c_out, shape.c_in // shape.groups, *taps)
    numbers = np.arange(1, np.prod(sizes) + 1, dtype=np.int64).reshape(sizes)
    return FilterSources(_image(numbers, lowered), merged, sizes), None, None


def _image(w: Array, lowered: DirectLowered) -> Array:
    """Filters of effective taps as matrices in order of use."""
    reduced = lowered.plan.reduced
    w = _side_by_side(w, reduced)
    image = np.zeros(lowered.arrays[0].shape, w.dtype)
    for chunk, first in lowered.weights:
        for number, view in enumerate(chunk.views):
            column = first + number * chunk.matrix_width
            _fill(image[:, column : column + chunk.matrix_width], chunk, view, (w, reduced))
    return image


def merged_filters(w: Array, reduced: ReducedProblem) -> Array:
    """The filters of effective taps, [C_out, C_in / groups, ...]: sums of taps that are merged.

    They are summed in float64 and rounded to the type of w. So an output of merged taps differs
    from one of taps of their own by at most u * sum |merged w| * |x|, with u the unit roundoff of
    the type: 2**-8 for bfloat16, 2**-11 for float16, 2**-24 for float32. Where the sums are exact
    in the type, there is no difference; nor is there where no taps are merged.
    """
    if not any(reduced.merged):
        return w
    sums = w.astype(np.float64)
    for axis, groups in enumerate(reduced.merged, start=2):
        if groups:
            sums = np.stack([sums.take(taps, axis).sum(axis) for taps in groups], axis)
    return _rounded(sums, w.dtype)


def _rounded(sums: Array, dtype: np.dtype[Any]) -> Array:
    """Float64 to a type, rounded once; ml_dtypes would go by float32 and round twice.

    A float32 that is odd unless it is exact rounds to narrower types as the sum itself would.
    """
    if dtype in (np.float16, np.float32):
        return sums.astype(dtype)
    near = sums.astype(np.float32)
    is_even = near.view(np.uint32) % 2 == 0
    towards = np.where(sums > near, np.float32(np.inf), np.float32(-np.inf))
    odd = np.where(is_even & (near != sums), np.nextafter(near, towards), near)
    return odd.astype(dtype)


def _side_by_side(w: Array, reduced: ReducedProblem) -> Array:
    """Filters over all channels of a block: those of other groups in the block are zero."""
    per_group = w.shape[1]
    if per_group == reduced.c_in:
        return w
    in_block = reduced.c_in // per_group
    outs = reduced.block_out // in_block
    wide = np.zeros((w.shape[0], reduced.c_in, *w.shape[2:]), w.dtype)
    for group in range(w.shape[0] // outs):
        first = group % in_block * per_group
        own = slice(group * outs, (group + 1) * outs)
        wide[own, first : first + per_group] = w[own]
    return wide


def _fill(
    block: Array, chunk: ChunkWeights, view: Shift, filters: tuple[Array, ReducedProblem]
) -> None:
    """block[input line, output line] = the filter value between them, or 0."""
    w, reduced = filters
    for line, key, channel, channels in chunk.lines:
        shift = (*key, *(view.row, view.column)[len(key) - 1 :])
        first = channel - reduced.first_channel_read(chunk.packing.first_channel)
        read = w[:, first : first + channels]
        for out in _lines_of(chunk):
            tap = _tap(shift, (out.frame, out.row, out.column), reduced)
            if tap is not None:
                column = out.line - chunk.part.line
                columns = slice(column, column + out.step * (out.channels - 1) + 1, out.step)
                values = read[out.channel : out.channel + out.channels, :, tap[0], tap[1], tap[2]]
                block[line : line + channels, columns] = values.T


def _lines_of(chunk: ChunkWeights) -> list[OutLines]:
    """The output lines of the chunk's part of its tile."""
    first, end = chunk.part.line, chunk.part.line + chunk.part.width
    lines = out_tiles(chunk.packing)[chunk.out_number].lines
    return [line for line in lines if first <= line.line < end]


def _tap(
    shift: tuple[int, ...], out: tuple[int, int, int], reduced: ReducedProblem
) -> tuple[int, ...] | None:
    """The tap with which an output of the stack reads a line; None if it does not."""
    taps = [reduced.tap(axis, out[axis], shift[axis]) for axis in range(3)]
    return None if None in taps else tuple(tap for tap in taps if tap is not None)


def pack_bias(bias: Array | None, lowered: DirectLowered) -> Array:
    """bias [C_out] as float32 [partitions, columns]: each partition's channel of each sum."""
    return with_bias(np.zeros(lowered.arrays[1].shape, np.float32), _channels(lowered), bias)


def bias_channels(lowered: DirectLowered) -> tuple[None, Array, None]:
    """Where each array has biases: the second, in each partition that of its channel."""
    return None, _channels(lowered), None


def _channels(lowered: DirectLowered) -> Array:
    numbers = np.full(lowered.arrays[1].shape, -1)
    for column, channels in enumerate(lowered.bias_channels):
        numbers[: len(channels), column] = channels
    return numbers
