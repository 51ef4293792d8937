"""One more instruction of the Vector or the Scalar engine, with resident operands.

After foxl-ai/kiln, tools/probe_engine_rates.py: an instruction writes the next of four tiles, and
all four are read at the end, so that none is dead.
"""

from __future__ import annotations

from collections.abc import Callable

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

RING = 4
BANK = 512  # columns of the operand in PSUM
SLICE = 128  # columns of the small instructions, which walk along the operand in SBUF


class Operands:
    """What instructions read: x [128, columns] fp32 in SBUF, and its first 512 columns in PSUM.

    `iteration` counts the instructions: some read another slice, or write another sum, in each.
    """

    def __init__(self, x: nl.NkiTensor) -> None:
        rows = x.shape[0]
        self.sbuf = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.sbuf, src=x)
        self.psum = nl.ndarray((rows, BANK), dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=self.psum, src=self.sbuf[:, :BANK], engine=nisa.vector_engine)
        self.bias = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(self.bias, 0.5)
        self.sums = rotating(RING, (rows, 1), nl.float32)
        self.iteration = 0

    def slice(self) -> nl.NkiTensor:
        """128 of the first 1,024 columns in SBUF, others in the next iteration."""
        first = self.iteration % 8 * SLICE
        return self.sbuf[:, first : first + SLICE]


def _evict_vector(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.tensor_copy(dst=ring, src=tiles.psum, engine=nisa.vector_engine)


def _evict_scalar(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.activation(dst=ring, op=nl.copy, data=tiles.psum)


def _multiply_sbuf(ring: nl.NkiTensor, tiles: Operands) -> None:
    left, right = tiles.sbuf[:, :BANK], tiles.sbuf[:, BANK : 2 * BANK]
    nisa.tensor_tensor(dst=ring, data1=left, data2=right, op=nl.multiply, engine=nisa.vector_engine)


def _multiply_psum(ring: nl.NkiTensor, tiles: Operands) -> None:
    right = tiles.sbuf[:, BANK : 2 * BANK]
    nisa.tensor_tensor(
        dst=ring, data1=tiles.psum, data2=right, op=nl.multiply, engine=nisa.vector_engine
    )


def _scale(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.tensor_scalar(
        dst=ring, data=tiles.sbuf, op0=nl.multiply, operand0=0.5, engine=nisa.vector_engine
    )


def _maximum(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.tensor_reduce(ring, nl.maximum, tiles.sbuf, axis=1)


def _row_sum(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.tensor_reduce(ring, nl.add, tiles.slice(), axis=1)


def _exp_psum(ring: nl.NkiTensor, tiles: Operands) -> None:
    total = tiles.sums[tiles.iteration % RING]
    nisa.activation_reduce(ring, nl.exp, tiles.psum, nl.add, total, bias=tiles.bias, scale=1.0)


def _exp_sbuf(ring: nl.NkiTensor, tiles: Operands) -> None:
    total = tiles.sums[tiles.iteration % RING]
    nisa.activation_reduce(ring, nl.exp, tiles.sbuf, nl.add, total, bias=tiles.bias, scale=1.0)


def _copy_scalar(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.activation(dst=ring, op=nl.copy, data=tiles.sbuf[:, :SLICE])


def _cast_vector(ring: nl.NkiTensor, tiles: Operands) -> None:
    nisa.tensor_copy(dst=ring, src=tiles.slice(), engine=nisa.vector_engine)


Step = Callable[[nl.NkiTensor, Operands], None]

# name: what is repeated, and the type of the tile it writes
STEPS: dict[str, tuple[Step, str]] = {
    "evict vector": (_evict_vector, nl.bfloat16),
    "evict scalar": (_evict_scalar, nl.bfloat16),
    "multiply sbuf": (_multiply_sbuf, nl.float32),
    "multiply psum": (_multiply_psum, nl.float32),
    "scale": (_scale, nl.float32),
    "maximum": (_maximum, nl.float32),
    "row sum": (_row_sum, nl.float32),
    "exp psum": (_exp_psum, nl.bfloat16),
    "exp sbuf": (_exp_sbuf, nl.bfloat16),
    "copy scalar": (_copy_scalar, nl.float32),
    "cast vector": (_cast_vector, nl.bfloat16),
}


def elementwise(x: nl.NkiTensor, repeats: int, step: str, width: int) -> nl.NkiTensor:
    """`repeats` times the step of this name on x [128, columns], into tiles [128, width].

    The result [128, 1] is the sum over the columns of the four tiles written last; of an
    exponential, of its row sums.
    """
    apply, dtype = STEPS[step]
    rows = x.shape[0]
    tiles = Operands(x)
    ring = rotating(RING, (rows, width), dtype)
    for iteration in range(repeats):
        tiles.iteration = iteration
        apply(ring[iteration % RING], tiles)
    read = tiles.sums if step.startswith("exp") else ring
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, 0.0)
    for tile in read:
        part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(part, nl.add, tile, axis=1)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out
