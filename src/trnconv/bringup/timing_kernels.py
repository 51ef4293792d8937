"""Kernels for the clock: each repeats one thing, so that two lengths tell what one more costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes

from nkisim.machine import PARTITIONS
from trnconv._nki import nisa, nl
from trnconv.bringup.probes.loops import static_loop
from trnconv.bringup.probes.probe import Arrays, integers
from trnconv.bringup.probes.tiles import evicted, loaded, stored

_BANKS = 4  # PSUM tensors in turn


@dataclass(frozen=True)
class Clocked:
    """A constant of a machine, and two calls whose difference in time it decides.

    Without `few` the time of the one call counts as it is.
    """

    field: str  # of nkisim.machine.Timing
    unit: str
    kernel: Callable[..., Any]
    arrays: Arrays
    many: tuple[Any, ...]
    few: tuple[Any, ...] | None = None


def columns(
    stationary: nl.NkiTensor, moving: nl.NkiTensor, width: int, repeats: int
) -> nl.NkiTensor:
    """So many matmuls of so many columns, operands resident."""
    a, b = loaded(stationary), loaded(moving)
    banks = []
    for _ in range(_BANKS):
        banks.append(
            nl.ndarray((stationary.shape[1], moving.shape[1]), dtype=nl.float32, buffer=nl.psum)
        )
    for number in range(repeats):
        bank = banks[number % _BANKS]
        nisa.nc_matmul(dst=bank[:, 0:width], stationary=a, moving=b[:, 0:width], accumulate=False)
    last = banks[(repeats - 1) % _BANKS]
    return stored(evicted(last[:, 0:width]))


def long_runs(x: nl.NkiTensor, width: int, repeats: int, cores: int) -> nl.NkiTensor:
    """So many loads of so many columns of every line.

    A second core loads a quarter of that: the memory that both share would bound them else.
    """
    core = nl.program_id(0) if cores > 1 else 0
    y = nl.ndarray((cores, x.shape[0], 16), dtype=x.dtype, buffer=nl.shared_hbm)
    if core > 0:
        width = width // 4
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((x.shape[0], x.shape[1]), dtype=x.dtype, buffer=nl.sbuf))
    for number in range(repeats):
        nisa.dma_copy(dst=tiles[number % 2][:, 0:width], src=x[:, 0:width])
    nisa.dma_copy(dst=y[core], src=tiles[(repeats - 1) % 2][:, 0:16])
    return y


def short_runs(x: nl.NkiTensor, runs: int, repeats: int) -> nl.NkiTensor:
    """So many loads of so many runs of 16 elements a line, each with a gap behind it."""
    lines, total = x.shape[0], x.shape[1]
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((lines, total // 32, 16), dtype=x.dtype, buffer=nl.sbuf))
    for number in range(repeats):
        part = tiles[number % 2][:, 0:runs, :]
        nisa.dma_copy(dst=part, src=x.ap([[total, lines], [32, runs], [1, 16]], offset=0))
    return stored(tiles[(repeats - 1) % 2][:, 0, :])


def small_loads(x: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """So many loads of one line, to as many places."""
    tile = nl.ndarray((1, 16 * repeats), dtype=x.dtype, buffer=nl.sbuf)
    for number in range(repeats):
        nisa.dma_copy(dst=tile[:, 16 * number : 16 * number + 16], src=x[0:1, 0:16])
    return stored(tile[:, 0:16])


def tiles_in_iteration(x: nl.NkiTensor) -> list[nl.NkiTensor]:
    """Tiles of x's shape, so that neighbouring instructions write to different ones."""
    outs = []
    for _ in range(_BANKS):
        outs.append(nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf))
    return outs


def on_vector(x: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """So many short instructions of the Vector engine that do not wait for each other."""
    tile = loaded(x)
    outs = tiles_in_iteration(x)
    for number in range(repeats):
        nisa.tensor_scalar(dst=outs[number % _BANKS], data=tile, op0=nl.multiply, operand0=2.0)
    return stored(outs[(repeats - 1) % _BANKS])


def on_scalar(x: nl.NkiTensor, repeats: int) -> nl.NkiTensor:
    """The same on the Scalar engine."""
    tile = loaded(x)
    outs = tiles_in_iteration(x)
    for number in range(repeats):
        nisa.activation(dst=outs[number % _BANKS], op=nl.copy, data=tile)
    return stored(outs[(repeats - 1) % _BANKS])


def one_copy(x: nl.NkiTensor) -> nl.NkiTensor:
    """As little as a kernel can do."""
    return stored(loaded(x))


_BF16 = ml_dtypes.bfloat16
_MATRICES = (
    integers(1, PARTITIONS, PARTITIONS, dtype=_BF16),
    integers(2, PARTITIONS, 4 * PARTITIONS, dtype=_BF16),
)
_LINES = (integers(3, PARTITIONS, 8192),)
_SMALL = (integers(4, 32, PARTITIONS),)


def clocked_of(cores: int) -> tuple[Clocked, ...]:
    """What is measured on a launch of so many cores."""
    engine = "B/ns of one engine"
    call = "ns, of a call with arrays, the host's part included"
    return (
        Clocked("pe_ghz", "GHz", columns, _MATRICES, (4 * PARTITIONS, 384), (2 * PARTITIONS, 384)),
        Clocked(
            "dma_bytes_per_ns", engine, long_runs, _LINES, (8192, 24, cores), (4096, 24, cores)
        ),
        Clocked(
            "dma_descriptor_floor_ns",
            "ns",
            short_runs,
            _LINES,
            (2 * PARTITIONS, 8),
            (PARTITIONS, 8),
        ),
        Clocked("dma_issue_hwdge_ns", "ns", small_loads, _SMALL, (96,), (32,)),
        Clocked("vector_startup_cycles", "cycles", on_vector, _SMALL, (320,), (64,)),
        Clocked("scalar_startup_cycles", "cycles", on_scalar, _SMALL, (320,), (64,)),
        Clocked("loop_iteration_ns", "ns", static_loop, _SMALL, (96,), (32,)),
        Clocked("launch_ns", call, one_copy, _SMALL, ()),
    )
