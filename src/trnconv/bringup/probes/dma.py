"""Probes of DMA: where tiles lie, and which patterns a transfer takes."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from nkisim.machine import PARTITIONS
from trnconv._nki import nisa, nl
from trnconv.bringup.probes.probe import Array, Arrays, Probe, integers
from trnconv.bringup.probes.tiles import empty_like, loaded, stored

_LINES, _COLUMNS = PARTITIONS, 64
_ADDRESS = 4096  # bytes of a partition, anywhere but at its start


def _tile(seed: int) -> Arrays:
    return (integers(seed, _LINES, _COLUMNS),)


def copy(x: nl.NkiTensor) -> nl.NkiTensor:
    """HBM to SBUF and back."""
    return stored(loaded(x))


def sbuf_address(x: nl.NkiTensor) -> nl.NkiTensor:
    """The same through a tile at an address."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, _ADDRESS))
    nisa.dma_copy(dst=tile, src=x)
    return stored(tile)


def five_dimensions(x: nl.NkiTensor) -> nl.NkiTensor:
    """Every other column of every other row of every other frame: a pattern of five dimensions."""
    channels, frames, rows, columns = x.shape
    pattern = [
        [frames * rows * columns, channels],
        [2 * rows * columns, frames // 2],
        [2 * columns, rows // 2],
        [4, columns // 4],
        [1, 2],
    ]
    shape = (channels, frames // 2, rows // 2, columns // 4, 2)
    tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap(pattern, offset=0))
    return stored(tile)


def _every_other(x: Array) -> Arrays:
    kept = x[:, :4:2, :4:2, :8]
    return (kept.reshape(*kept.shape[:3], 2, 4)[..., :2],)


def partition_split(x: nl.NkiTensor) -> nl.NkiTensor:
    """Three shifts of 32 lines on 96 partitions in one DMA: partitions are two dimensions."""
    lines, columns = x.shape
    width = columns - 2
    tile = nl.ndarray((3 * lines, width), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap([[1, 3], [columns, lines], [1, width]], offset=0))
    return stored(tile)


def _shifted(x: Array) -> Arrays:
    width = x.shape[1] - 2
    return (np.concatenate([x[:, shift : shift + width] for shift in range(3)]),)


def negative_step(x: nl.NkiTensor) -> nl.NkiTensor:
    """Columns from the last to the first."""
    lines, columns = x.shape
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap([[columns, lines], [-1, columns]], offset=columns - 1))
    return stored(tile)


def dma_transpose(x: nl.NkiTensor) -> nl.NkiTensor:
    """[PARTITIONS, 32] of 16 bits as [32, PARTITIONS], transposed on the way."""
    tile = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(dst=tile, src=x)
    return stored(tile)


def load_ahead(x: nl.NkiTensor) -> nl.NkiTensor:
    """Two halves; the second is loaded before the first is stored, and used after."""
    y = empty_like(x)
    half = x.shape[1] // 2
    first = nl.ndarray((x.shape[0], half), dtype=x.dtype, buffer=nl.sbuf)
    second = nl.ndarray((x.shape[0], half), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=first, src=x[:, 0:half])
    nisa.dma_copy(dst=second, src=x[:, half:])
    nisa.dma_copy(dst=y[:, 0:half], src=first)
    doubled = nl.ndarray((x.shape[0], half), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=doubled, data=second, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=y[:, half:], src=doubled)
    return y


def _second_half_doubled(x: Array) -> Arrays:
    half = x.shape[1] // 2
    return (np.concatenate([x[:, :half], 2 * x[:, half:]], axis=1),)


COPY: Final = Probe("copy", "HBM to SBUF and back", copy, _tile, lambda x: (x,), legalised=False)
ADDRESS: Final = Probe(
    "sbuf-address",
    "a tile at an address of ours",
    sbuf_address,
    _tile,
    lambda x: (x,),
    workaround="placed-by-compiler",
)
MOVING: Final = (
    Probe(
        "five-dimensions",
        "a DMA pattern of five dimensions (split-partitions needs it)",
        five_dimensions,
        lambda seed: (integers(seed, 32, 5, 5, 9),),
        _every_other,
        notes=True,
    ),
    Probe(
        "partition-split",
        "a DMA whose partitions are two dimensions of its pattern (if yes: split-partitions)",
        partition_split,
        lambda seed: (integers(seed, 32, 34),),
        _shifted,
        notes=True,
    ),
    Probe(
        "negative-step",
        "a DMA that goes backwards",
        negative_step,
        _tile,
        lambda x: (x[:, ::-1],),
        notes=True,
    ),
    Probe(
        "dma-transpose",
        "a DMA that transposes 16-bit values",
        dma_transpose,
        lambda seed: (integers(seed, _LINES, 32, dtype=ml_dtypes.bfloat16),),
        lambda x: (x.T,),
        workaround="no-dma-transpose",
    ),
    Probe(
        "load-ahead",
        "a load before a store that comes before its use",
        load_ahead,
        _tile,
        _second_half_doubled,
        workaround="no-loads-ahead",
    ),
)
