"""Probes of the way into a kernel: its arguments, its cores, how it is built and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trnconv._nki import NKIObject, nisa, nl
from trnconv.bringup.probes.probe import Array, Arrays, Probe, integers
from trnconv.bringup.probes.tiles import empty_like, loaded, stored

_LINES, _COLUMNS = 64, 32


@dataclass(frozen=True)
class Numbers(NKIObject):
    """What a kernel is given besides tensors: a tree of numbers, as a recipe is."""

    factor: int
    added: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Numbers({self.factor}, {self.added})"


def recipe_argument(x: nl.NkiTensor, numbers: Numbers) -> nl.NkiTensor:
    """x times a number, plus others."""
    tile = loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(numbers.factor))
    for added in numbers.added:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(added))
    return stored(tile)


def two_cores(x: nl.NkiTensor, iterations: int) -> nl.NkiTensor:
    """Each of two cores copies half of the lines, and adds 1 in each iteration of any loop."""
    y = empty_like(x)
    half, columns = x.shape[0] // 2, x.shape[1]
    first = nl.program_id(0) * half
    tile = nl.ndarray((half, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[first : first + half, :])

    def one_iteration(_number: nisa.VirtualRegister) -> None:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    if iterations > 0:
        nl.fori_loop(0, iterations, one_iteration)
    nisa.dma_copy(dst=y[first : first + half, :], src=tile)
    nisa.core_barrier(data=y, cores=(0, 1))
    return y


def written_again(x: nl.NkiTensor) -> nl.NkiTensor:
    """x, doubled and incremented where it stands: a tile that is written three times."""
    tile = loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    return stored(tile)


def rotated_tiles(x: nl.NkiTensor) -> nl.NkiTensor:
    """Two tiles at addresses of ours that are filled in turn, four times."""
    y = empty_like(x)
    lines, part = x.shape[0], x.shape[1] // 4
    tiles = []
    for slot in range(2):
        tiles.append(
            nl.ndarray((lines, part), dtype=x.dtype, buffer=nl.sbuf, address=(0, 4096 * (slot + 1)))
        )
    for number in range(4):
        columns = slice(number * part, (number + 1) * part)
        nisa.dma_copy(dst=tiles[number % 2], src=x[:, columns])
        nisa.dma_copy(dst=y[:, columns], src=tiles[number % 2])
    return y


def _tile(seed: int) -> Arrays:
    return (integers(seed, _LINES, _COLUMNS),)


def _doubled(x: Array) -> Arrays:
    return (2 * x + 1,)


LAUNCHES: Final = (
    Probe(
        "written-again",
        "a tile that is written three times, with the pass for that",
        written_again,
        _tile,
        _doubled,
        workaround="no-legalisation",
    ),
    Probe(
        "written-again-plainly",
        "the same without the pass",
        written_again,
        _tile,
        _doubled,
        notes=True,
        legalised=False,
    ),
    Probe(
        "recipe-argument",
        "an object of numbers as the last argument",
        recipe_argument,
        _tile,
        lambda x: (3 * x + np.float32(3),),
        workaround="recipe-in-closure",
        constants=(Numbers(3, (1, 2)),),
    ),
    Probe(
        "another-recipe",
        "the same kernel with other numbers is another kernel",
        recipe_argument,
        _tile,
        lambda x: (2 * x + np.float32(5),),
        workaround="no-compile-cache",
        constants=(Numbers(2, (5,)),),
    ),
)
ROTATED: Final = Probe(
    "rotated-tiles",
    "tiles at addresses of ours that are filled in turn",
    rotated_tiles,
    _tile,
    lambda x: (x,),
    workaround="no-address-rotation",
    void_with=("placed-by-compiler",),
)
TWO_CORES: Final = (
    Probe(
        "two-cores",
        "two programs, each with its half of a result",
        two_cores,
        _tile,
        lambda x: (x,),
        workaround="one-core",
        constants=(0,),
        on_two_cores=True,
    ),
    Probe(
        "two-cores-in-loops",
        "two programs with the same loop",
        two_cores,
        _tile,
        lambda x: (x + 3,),
        workaround="one-core",
        constants=(3,),
        on_two_cores=True,
        void_with=("no-loops",),
    ),
)
