"""What the host prepares for a plan by differences: weights of all terms, constants and places.

Weights are summed up in float64 and rounded once, to fp16. Each output channel is scaled by a power
of two first; the constants undo it on the way out of PSUM, exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnconv.algorithms.half_precision import scaling_exponents
from trnconv.algorithms.winograd_upsample.blocks import tap_sets
from trnconv.algorithms.winograd_upsample.lower import UpsampleLowered, y_tiles
from trnconv.algorithms.winograd_upsample.plan import UpsamplePlan
from trnconv.algorithms.winograd_upsample.sbuf import channel_tiles, constant_columns
from trnconv.algorithms.winograd_upsample.terms import FILTERS, PRODUCTS

Array = np.ndarray[Any, Any]


def term_weights(w: Array, plan: UpsamplePlan) -> Array:
    """In float64: [C_out, C_in, sets of taps, products]."""
    wide = w.astype(np.float64)
    merged = np.stack([wide[:, :, list(taps)].sum(axis=2) for taps in tap_sets(plan.shape)], axis=2)
    terms = np.array(FILTERS, np.float64)
    every = np.einsum("oisrc,ar,bc->oisab", merged, terms, terms)
    return np.asarray(every.reshape(*every.shape[:3], len(PRODUCTS)))


def pack(lowered: UpsampleLowered, w: Array, bias: Array | None) -> tuple[Array, Array, Array]:
    """Weights, constants and places. `w` may be float32 master weights."""
    u = term_weights(w, lowered.plan)
    exponents = scaling_exponents(np.abs(u).max(axis=(1, 2, 3)))
    weights = _weights(np.ldexp(u, exponents[:, None, None, None]), lowered.plan)
    added = np.zeros(len(exponents)) if bias is None else bias.astype(np.float64)
    constants = _constants((added, np.ldexp(1.0, -exponents)), lowered.plan)
    return weights, constants, np.array(lowered.places, np.int32)


def bias_channels(lowered: UpsampleLowered) -> tuple[None, Array, None]:
    """Where each array has biases: the constants, in the first column of every tile."""
    numbers = np.arange(1, lowered.plan.shape.c_out + 1)
    image = _constants((numbers, 0 * numbers), lowered.plan)
    return None, image.astype(np.int64) - 1, None


def _weights(u: Array, plan: UpsamplePlan) -> Array:
    """fp16 [partitions, columns]: for each tile of outputs, set of taps, product and input tile."""
    lines = plan.machine.partitions
    ins = channel_tiles(plan.shape.c_in, lines)
    matrices = u.shape[2] * len(PRODUCTS) * len(ins)
    image = np.zeros((lines, matrices * plan.shape.c_out), np.float16)
    for tile in y_tiles(plan):
        own = u[tile.first : tile.first + tile.channels]
        parts = np.zeros((lines, *u.shape[2:], len(ins), tile.channels), np.float16)
        for number, (first, channels) in enumerate(ins):
            values = own[:, first : first + channels]
            parts[:channels, :, :, number] = values.transpose(1, 2, 3, 0)
        end = tile.weight + matrices * tile.channels
        image[:, tile.weight : end] = parts.reshape(lines, -1)
    return image


def _constants(columns: tuple[Array, ...], plan: UpsamplePlan) -> Array:
    """One value for each output channel in every column, where its tile has it."""
    image = np.zeros((plan.machine.partitions, constant_columns(plan)), np.float32)
    for tile in y_tiles(plan):
        for column, numbers in enumerate(columns, tile.constant):
            own = numbers[tile.first : tile.first + tile.channels]
            image[: tile.channels, column] = own
    return image
