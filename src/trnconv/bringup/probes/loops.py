"""Probes of hardware loops: PSUM, SBUF and offsets inside of them, their length, and their end."""

from __future__ import annotations

from typing import Final

import numpy as np

from nkisim.machine import TRN2
from trnconv._nki import nisa, nl
from trnconv.bringup.probes.probe import Array, Arrays, Probe, integers
from trnconv.bringup.probes.tiles import empty_like, evicted, loaded, stored

_NO_LOOPS = "no-loops"
_LINES, _COLUMNS, _ITERATIONS = 32, 16, 3
_MOST_ITERATIONS = TRN2.loop_trips_max or 0  # seen to run; twice as many were seen to stall


def _tile(seed: int) -> Arrays:
    return (integers(seed, _LINES, _COLUMNS),)


def _blocks(seed: int) -> Arrays:
    return (integers(seed, _ITERATIONS * _LINES, _COLUMNS),)


def static_loop(x: nl.NkiTensor, iterations: int) -> nl.NkiTensor:
    """x plus 1 for every iteration of a loop."""
    tile = loaded(x)

    def one_iteration(_number: nisa.VirtualRegister) -> None:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    nl.fori_loop(0, iterations, one_iteration)
    return stored(tile)


def psum_in_loop(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """The sum of three equal products, each in a PSUM tensor of its iteration."""
    a, b = loaded(stationary), loaded(moving)
    shape = (stationary.shape[1], moving.shape[1])
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)

    def one_iteration(_number: nisa.VirtualRegister) -> None:
        bank = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=False)
        nisa.tensor_tensor(dst=total, data1=total, data2=bank, op=nl.add)

    nl.fori_loop(0, _ITERATIONS, one_iteration)
    return stored(total)


def psum_outside_loop(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """One product, written three times to a PSUM tensor from before the loop."""
    a, b = loaded(stationary), loaded(moving)
    bank = nl.ndarray((stationary.shape[1], moving.shape[1]), dtype=nl.float32, buffer=nl.psum)

    def one_iteration(_number: nisa.VirtualRegister) -> None:
        nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=False)

    nl.fori_loop(0, _ITERATIONS, one_iteration)
    return stored(evicted(bank))


def flat_offsets(x: nl.NkiTensor) -> nl.NkiTensor:
    """Blocks of rows, copied one an iteration, at offsets that the counter of the loop gives."""
    y = empty_like(x)
    columns = x.shape[1]
    rows = [[columns, _LINES], [1, columns]]

    def one_iteration(number: nisa.VirtualRegister) -> None:
        tile = nl.ndarray((_LINES, columns), dtype=x.dtype, buffer=nl.sbuf)
        source = x.reshape((_ITERATIONS, _LINES * columns))
        target = y.reshape((_ITERATIONS, _LINES * columns))
        nisa.dma_copy(dst=tile, src=source.ap(rows, offset=0, scalar_offset=number, indirect_dim=0))
        nisa.dma_copy(dst=target.ap(rows, offset=0, scalar_offset=number, indirect_dim=0), src=tile)

    nl.fori_loop(0, _ITERATIONS, one_iteration)
    nisa.dma_copy(dst=y, src=y)
    return y


def cell_in_loop(x: nl.NkiTensor, places: nl.NkiTensor) -> nl.NkiTensor:
    """Blocks of rows, one an iteration, copied at offsets that it loads from a table."""
    y = empty_like(x)
    columns = x.shape[1]
    rows = [[columns, _LINES], [1, columns]]

    def one_iteration(number: nisa.VirtualRegister) -> None:
        cell = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        place = places.ap([[1, 1], [1, 1]], offset=0, scalar_offset=number, indirect_dim=0)
        nisa.dma_copy(dst=cell, src=place)
        tile = nl.ndarray((_LINES, columns), dtype=x.dtype, buffer=nl.sbuf)
        source, target = (
            x.reshape((_ITERATIONS * _LINES * columns,)),
            y.reshape((_ITERATIONS * _LINES * columns,)),
        )
        nisa.dma_copy(dst=tile, src=source.ap(rows, offset=0, scalar_offset=cell, indirect_dim=0))
        nisa.dma_copy(dst=target.ap(rows, offset=0, scalar_offset=cell, indirect_dim=0), src=tile)

    nl.fori_loop(0, _ITERATIONS, one_iteration)
    nisa.dma_copy(dst=y, src=y)
    return y


def _with_table(seed: int) -> Arrays:
    table = np.arange(_ITERATIONS, dtype=np.int32).reshape(_ITERATIONS, 1) * (_LINES * _COLUMNS)
    return (*_blocks(seed), table)


def sbuf_across_loops(x: nl.NkiTensor) -> nl.NkiTensor:
    """x plus 1 for every iteration of two loops that share a tile."""
    tile = loaded(x)

    def one_iteration(_number: nisa.VirtualRegister) -> None:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    nl.fori_loop(0, _ITERATIONS, one_iteration)
    nl.fori_loop(0, _ITERATIONS, one_iteration)
    return stored(tile)


def _stored_by_a_loop(x: nl.NkiTensor, y: nl.NkiTensor) -> None:
    """y = x, stored in every iteration."""
    tile = loaded(x)

    def one_iteration(_number: nisa.VirtualRegister) -> None:
        nisa.dma_copy(dst=y, src=tile)

    nl.fori_loop(0, _ITERATIONS, one_iteration)


def unfenced_loop(x: nl.NkiTensor) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """What a loop stored, and a copy of it that is made right after."""
    y, again = empty_like(x), empty_like(x)
    _stored_by_a_loop(x, y)
    nisa.dma_copy(dst=again, src=y)
    return y, again


def fenced_loop(x: nl.NkiTensor) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The same with a copy of the result onto itself in between."""
    y, again = empty_like(x), empty_like(x)
    _stored_by_a_loop(x, y)
    nisa.dma_copy(dst=y, src=y)
    nisa.dma_copy(dst=again, src=y)
    return y, again


def _matrices(seed: int) -> Arrays:
    return integers(seed, _LINES, _LINES), integers(seed + 1000, _LINES, _COLUMNS)


def _three_products(a: Array, b: Array) -> Arrays:
    return (_ITERATIONS * (a.T @ b),)


def _iterations(iterations: int) -> tuple[int]:
    return (iterations,)


STATIC_LOOP: Final = Probe(
    "static-loop",
    "a loop of three iterations",
    static_loop,
    _tile,
    lambda x: (x + _ITERATIONS,),
    workaround=_NO_LOOPS,
    constants=_iterations(_ITERATIONS),
)
LOOPS: Final = (
    STATIC_LOOP,
    Probe(
        "psum-in-loop",
        "a PSUM tensor inside of a loop",
        psum_in_loop,
        _matrices,
        _three_products,
        workaround=_NO_LOOPS,
    ),
    Probe(
        "psum-outside-loop",
        "a PSUM tensor from outside of a loop, which devices refuse (NCC_IBIR092)",
        psum_outside_loop,
        _matrices,
        lambda a, b: (a.T @ b,),
        notes=True,
    ),
    Probe(
        "fenced-loop",
        "what a loop stored, read after a fence",
        fenced_loop,
        _tile,
        lambda x: (x, x),
        workaround=_NO_LOOPS,
    ),
    Probe(
        "unfenced-loop",
        "the same without a fence",
        unfenced_loop,
        _tile,
        lambda x: (x, x),
        workaround="fence",
        void_with=(_NO_LOOPS,),
    ),
    Probe(
        "flat-offsets",
        "DMA at offsets that the counter of a loop gives",
        flat_offsets,
        _blocks,
        lambda x: (x,),
        workaround=_NO_LOOPS,
    ),
    Probe(
        "cell-in-loop",
        "DMA at offsets that each iteration loads",
        cell_in_loop,
        _with_table,
        lambda x, _places: (x,),
        workaround=_NO_LOOPS,
    ),
    Probe(
        "sbuf-across-loops",
        "a tile that two loops share",
        sbuf_across_loops,
        _tile,
        lambda x: (x + 2 * _ITERATIONS,),
        workaround=_NO_LOOPS,
    ),
    Probe(
        "trips-2048",
        "a loop of 2,048 iterations",
        static_loop,
        _tile,
        lambda x: (x + _MOST_ITERATIONS,),
        workaround="short-loops",
        void_with=(_NO_LOOPS,),
        constants=_iterations(_MOST_ITERATIONS),
    ),
)
STALLING: Final = Probe(
    "trips-4096",
    "a loop of 4,096 iterations, which stalls on trn2 (LDC)",
    static_loop,
    _tile,
    lambda x: (x + 2 * _MOST_ITERATIONS,),
    constants=_iterations(2 * _MOST_ITERATIONS),
    notes=True,
)
