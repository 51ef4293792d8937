"""What the host prepares for a Winograd plan: transformed weights, constants and places.

Weights are transformed in float64 and rounded once, to fp16. Each output channel is scaled by a
power of two first, so that its largest transformed weight uses the top of fp16's range and small
ones stay clear of subnormals; the constants undo it on the way out of PSUM, exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.algorithms.half_precision import scaling_exponents
from trnconv.algorithms.winograd.channels import (
    InChannels,
    OutChannels,
    Taps,
    in_channels,
    out_channels,
    taps_of,
)
from trnconv.algorithms.winograd.lower import WinogradLowered, out_groups
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.algorithms.winograd.sbuf import CONSTANTS, constant_columns
from trnconv.algorithms.winograd.stages import weight_rows

Array = np.ndarray[Any, Any]


def transformed_weights(w: Array, plan: WinogradPlan) -> Array:
    """G w along the plan's axis, in float64: [products, C_out, C_in, taps across, KW].

    Taps across are rows if tiles are frames, and frames if tiles are rows. Powers of two that the
    sums are to hold are included. Where frames are paired, products are those of every stage, and
    there is one tap across.
    """
    algorithm = plan.transforms
    g = np.array([[float(value) for value in row] for row in algorithm.g])
    g *= np.array(algorithm.held, np.float64)[:, None]
    moved = np.moveaxis(w.astype(np.float64), 2 + plan.axis, 2)
    if plan.frame_pairs:
        u = np.einsum("sa,pt,oitab->spoib", np.array(weight_rows()), g, moved)
        return np.asarray(u.reshape(-1, *u.shape[2:4], 1, u.shape[4]))
    return np.asarray(np.einsum("pt,oitab->poiab", g, moved))


def exponents(transformed: Array) -> Array:
    """The power of two each output channel is scaled by."""
    return scaling_exponents(np.abs(transformed).max(axis=(0, 2, 3, 4)))


def pack(lowered: WinogradLowered, w: Array, bias: Array | None) -> tuple[Array, Array, Array]:
    """Transformed weights, constants and places.

    `w` may be float32 master weights: they are rounded once, after their transform.
    """
    u = transformed_weights(w, lowered.plan)
    places = np.array(lowered.places, np.int32)
    return pack_weights(u, lowered.plan), pack_constants(u, bias, lowered.plan), places


def pack_weights(u: Array, plan: WinogradPlan) -> Array:
    """Transformed weights as fp16 [partitions, columns]: matrices in order of use."""
    scaled = np.ldexp(u, exponents(u)[None, :, None, None, None]).astype(np.float16)
    groups = out_groups(plan)
    image = np.zeros((plan.machine.partitions, groups[-1].weight_end), np.float16)
    ins, outs = in_channels(plan), out_channels(plan)
    for tile, out in zip((tile for group in groups for tile in group.tiles), outs, strict=True):
        for product in range(plan.stages * plan.transforms.products):
            first = tile.weight + product * tile.position_weights
            for number, taps in enumerate(taps_of(plan, out.shared)):
                column = first + number * out.width
                block = image[:, column : column + out.width]
                _fill(block, scaled[product], (ins[taps.tile], out), taps)
    return image


def _fill(block: Array, u: Array, tiles: tuple[InChannels, OutChannels], taps: Taps) -> None:
    """block[input line, output line] = the transformed weight between them, or 0."""
    tile, out = tiles
    across = u.shape[2] > 1
    for copy in taps.used:
        down, right = tile.shifts[copy]
        row = taps.read + taps.row + down if across else 0
        lines = slice(copy * tile.channels, (copy + 1) * tile.channels)
        for phase in range(out.shared):
            tap = taps.column + right - phase
            if 0 <= tap < u.shape[3] and row < u.shape[2]:
                columns = slice(phase * out.pitch, phase * out.pitch + out.channels)
                values = u[out.first : out.first + out.channels]
                block[lines, columns] = values[
                    :, tile.first : tile.first + tile.channels, row, tap
                ].T


def pack_constants(u: Array, bias: Array | None, plan: WinogradPlan) -> Array:
    """Bias and scales as float32 [partitions, columns], in the order of `chains.py`."""
    scale = np.ldexp(1.0, -exponents(u))
    fours, ones = np.full(plan.shape.c_out, 4.0), np.ones(plan.shape.c_out)
    added = 0 * scale if bias is None else bias.astype(np.float64)
    return _constants((added, scale, -scale, 2 * scale, scale / 2, fours, ones), plan)


def bias_channels(lowered: WinogradLowered) -> tuple[None, Array, None]:
    """Where each array has biases: the constants, in the first column of every tile."""
    numbers = np.arange(1, lowered.plan.shape.c_out + 1)
    image = _constants((numbers, *[0 * numbers] * (CONSTANTS - 1)), lowered.plan)
    return None, image.astype(np.int64) - 1, None


def _constants(columns: tuple[Array, ...], plan: WinogradPlan) -> Array:
    """One value for each output channel in every column, where its tile has it."""
    tiles = out_channels(plan)
    image = np.zeros((plan.machine.partitions, constant_columns(plan)), np.float32)
    for number, tile in enumerate(tiles):
        own = slice(tile.first, tile.first + tile.channels)
        for phase in range(tile.stack):
            lines = slice(phase * tile.pitch, phase * tile.pitch + tile.channels)
            for column, numbers in enumerate(columns, CONSTANTS * number):
                image[lines, column] = numbers[own]
    return image
