"""Element-wise kernels of NKIBench on trn1: SiLU and AdamW, fp32, by tiles of 128 x 512."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from validation.kernels.tiles import rotating

BLOCK = 1024  # columns of one load and one store
TILE = 512  # columns of one instruction
IN_FLIGHT = 3


class Tiles:
    """Scratch tiles [128, 512] in turn, and where the rows of the operands go."""

    def __init__(self, dtype: str) -> None:
        self.part = nl.tile_size.pmax
        self.dtype = dtype
        self.zero = nl.ndarray((self.part, 1), dtype=dtype, buffer=nl.sbuf)
        nisa.memset(self.zero, 0.0)

    def scratch(self) -> list[nl.NkiTensor]:
        """Tiles for one intermediate value."""
        return rotating(IN_FLIGHT, (self.part, TILE), self.dtype)

    def blocks(self) -> list[nl.NkiTensor]:
        """Tiles for one operand."""
        return rotating(IN_FLIGHT, (self.part, BLOCK), self.dtype)


def silu(x: nl.NkiTensor) -> nl.NkiTensor:
    """x / (1 + exp(-x)) for x [128, R, C]: two Scalar and two Vector instructions per tile."""
    tiles = Tiles(x.dtype)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    one = nl.ndarray((tiles.part, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(one, 1.0)
    inputs, outputs = tiles.blocks(), tiles.blocks()
    exps, sums, inverses = tiles.scratch(), tiles.scratch(), tiles.scratch()
    per_row = x.shape[2] // BLOCK
    count = 0
    for i in range(x.shape[1] * per_row):
        source, target = inputs[i % IN_FLIGHT], outputs[i % IN_FLIGHT]
        row, first = i // per_row, i % per_row * BLOCK
        nisa.dma_copy(dst=source, src=x[:, row, first : first + BLOCK])
        for half in range(0, BLOCK, TILE):
            iteration = count % IN_FLIGHT
            count += 1
            data = source[:, half : half + TILE]
            nisa.activation(exps[iteration], nl.exp, data, bias=tiles.zero, scale=-1.0)
            nisa.activation(
                sums[iteration], nl.relu, exps[iteration], bias=one
            )  # positive; trn1 adds no bias in a copy
            nisa.reciprocal(inverses[iteration], sums[iteration])
            result = target[:, half : half + TILE]
            nisa.tensor_tensor(dst=result, data1=data, data2=inverses[iteration], op=nl.multiply)
        nisa.dma_copy(dst=out[:, row, first : first + BLOCK], src=target)
    return out


class AdamW(Tiles):
    """One step of AdamW on a tile: nine Scalar and six Vector instructions.

    Which engine takes what follows the published profile: the Scalar engine is active for nine
    instructions a tile, and of the six Vector ones one and a half read an operand in PSUM. A tile
    goes through two stages; `finish` of a tile comes after `begin` of the next, so that neither
    engine waits for the other.
    """

    RATE, DECAY, BETA1, BETA2, SCALE, EPSILON = 0.01, 1e-5, 0.9, 0.999, 1000.0, 1e-8

    def __init__(self, dtype: str) -> None:
        super().__init__(dtype)
        self.epsilon = nl.ndarray((self.part, 1), dtype=dtype, buffer=nl.sbuf)
        nisa.memset(self.epsilon, self.EPSILON)
        self.shrink = rotating(2, (self.part, TILE), nl.float32, nl.psum)
        self.inverse = rotating(2, (self.part, TILE), nl.float32, nl.psum)
        names = "kept old new mean step old2 new2 squared variance root bounded inverse moved"
        self.values = {name: self.scratch() for name in names.split()}
        self.count = 0

    def scale(self, dst: nl.NkiTensor, data: nl.NkiTensor, factor: float) -> None:
        """dst = data * factor on the Scalar engine."""
        nisa.activation(dst=dst, op=nl.copy, data=data, scale=factor)

    def combine(
        self, dst: nl.NkiTensor, left: nl.NkiTensor, right: nl.NkiTensor, op: object
    ) -> None:
        """dst = left op right on the Vector engine."""
        nisa.tensor_tensor(dst=dst, data1=left, data2=right, op=op)

    def begin(
        self, theta: nl.NkiTensor, m: nl.NkiTensor, v: nl.NkiTensor, grad: nl.NkiTensor
    ) -> dict[str, nl.NkiTensor]:
        """The moments and the decayed weights of a tile."""
        iteration, height = self.count % IN_FLIGHT, theta.shape[0]
        take = {name: tiles[iteration][:height, :] for name, tiles in self.values.items()}
        take["shrink"] = self.shrink[self.count % 2][:height, :]
        if self.count % 2:
            take["inverse"] = self.inverse[self.count // 2 % 2][:height, :]
        self.scale(take["new2"], grad, 1 - self.BETA2)
        self.scale(take["old2"], v, self.BETA2)
        self.scale(take["old"], m, self.BETA1)
        self.scale(take["new"], grad, 1 - self.BETA1)
        self.scale(take["shrink"], theta, self.DECAY)
        self.combine(take["squared"], take["new2"], grad, nl.multiply)
        self.combine(take["variance"], take["old2"], take["squared"], nl.add)
        self.combine(take["mean"], take["old"], take["new"], nl.add)
        self.combine(take["kept"], theta, take["shrink"], nl.subtract)
        self.count += 1
        return take

    def finish(self, dst: nl.NkiTensor, take: dict[str, nl.NkiTensor]) -> None:
        """dst = the weights after the step."""
        height = dst.shape[0]
        zero, epsilon = self.zero[:height, :], self.epsilon[:height, :]
        nisa.activation(take["root"], nl.sqrt, take["variance"], bias=zero, scale=self.SCALE)
        self.scale(take["step"], take["mean"], self.RATE)
        nisa.activation(take["bounded"], nl.relu, take["root"], bias=epsilon)  # as in silu
        nisa.activation(take["inverse"], nl.reciprocal, take["bounded"])
        self.combine(take["moved"], take["step"], take["inverse"], nl.multiply)
        self.combine(dst, take["kept"], take["moved"], nl.subtract)


def adamw(
    theta: nl.NkiTensor, grad: nl.NkiTensor, m: nl.NkiTensor, v: nl.NkiTensor
) -> nl.NkiTensor:
    """theta [R, C] after one step of AdamW with gradient `grad` and moments m, v."""
    work = AdamW(theta.dtype)
    out = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    buffers = (work.blocks(), work.blocks(), work.blocks(), work.blocks())
    results = work.blocks()
    across = theta.shape[1] // BLOCK
    begun: list[tuple[nl.NkiTensor, dict[str, nl.NkiTensor]]] = []
    for i in range(-(-theta.shape[0] // work.part) * across):
        place = _place(theta.shape[0], work.part, divmod(i, across))
        height = place[0].stop - place[0].start
        tiles = []
        for k, operand in enumerate((theta, m, v, grad)):
            tiles.append(buffers[k][i % IN_FLIGHT][:height, :])
            nisa.dma_copy(dst=tiles[k], src=operand[place])
        result = results[i % IN_FLIGHT][:height, :]
        for half in range(0, BLOCK, TILE):
            span = slice(half, half + TILE)
            take = work.begin(*(tile[:, span] for tile in tiles))
            if begun:
                work.finish(*begun.pop())
            begun.append((result[:, span], take))
        work.finish(*begun.pop())
        nisa.dma_copy(dst=out[place], src=result)
    return out


def _place(rows: int, part: int, number: tuple[int, int]) -> tuple[slice, slice]:
    """Rows and columns of a block; the last rows may be fewer than 128."""
    row, column = number
    return (
        slice(row * part, min((row + 1) * part, rows)),
        slice(column * BLOCK, (column + 1) * BLOCK),
    )
