"""`python -m benchmarks mx`: errors of convolutions with eight-bit MX operands, and of bf16 sums.

Modelled in NumPy, over the error of a direct bf16 convolution, beside the least time of the Tensor
engine. MXFP8 is as `quantize_mx` makes it: 32 channels (8 partitions of 4 packed values) of one
position, or of one tap and output channel, share a power of two, and each value is rounded to
e4m3fn. Sums are exact, but for those in bf16: float32 loses far less than what is looked for.
nkisim's own instructions quantise one small case, for comparison.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

import nkisim.isa as nisa
import nkisim.language as nl
from benchmarks.fast_errors import BFLOAT, DECODER, WHITE, arrays
from benchmarks.table import Column, aligned
from nkisim.machine import PARTITIONS, TRN3
from nkisim.running.kernel import run
from trnconv.algorithms.winograd.transforms import TAPS, TRANSFORMS, Transform
from trnconv.geometry import ConvShape, conv_shape
from trnconv.problem import policy
from trnconv.reference import forward

HELP = "errors of eight-bit MX operands and of bf16 sums (trn3)"
Array = np.ndarray[Any, Any]
Terms = tuple[Array, ...]  # of a sum that stands for an array: hi, or hi and lo
PACKED = 4  # values of a packed element: rows of a contraction that take the time of one
BLOCK = PACKED * TRN3.mx_group_partitions  # channels that share a scale
_E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
_TOP = 7  # the largest of a block is scaled to [2 ** 7, 2 ** 8); e4m3fn ends below 2 ** 9
_HALF_TOP = 14  # weights in fp16 are scaled to below 2 ** 14, as those of the kernel
_SIZES = {96: (6, 12, 16), 256: (6, 8, 10), 512: (6, 8, 10), 1024: (6, 8, 10)}
DIRECT = "direct"


class Coding(Enum):
    """What the Tensor engine multiplies, and where that is summed."""

    halves = "16 bits"
    narrow_sums = "16 bits, sums in bf16"
    inputs = "MX inputs, 16-bit weights"
    weights = "16-bit inputs, MX weights"
    both = "MX"
    split = "MX hi and lo, 3 products"


@dataclass(frozen=True)
class MxError:
    """RMS error of one layer over that of its exact output rounded to bf16."""

    algorithm: str
    coding: Coding
    channels: int
    data: str
    rms: float


def least_time(algorithm: str, coding: Coding) -> float:
    """Time of the Tensor engine over that of a direct bf16 convolution, if no row of it idles.

    No matmul takes MX on one side only: such codings tell which side an error comes from.
    """
    transform = TRANSFORMS.get(algorithm)
    share = transform.products / transform.outputs / TAPS if transform else 1.0
    return share * {Coding.both: 1 / PACKED, Coding.split: 3 / PACKED}.get(coding, 1.0)


def codings(algorithm: str) -> list[Coding]:
    """Those that are looked at; sums of a transform are as those of a direct convolution."""
    return [coding for coding in Coding if coding is not Coding.narrow_sums or algorithm == DIRECT]


def shape_of(channels: int) -> ConvShape:
    """A small layer of so many input channels, with four output frames."""
    outputs = min(channels, PARTITIONS)
    return conv_shape(
        (1, channels, *_SIZES[channels]), (outputs, channels, 3, 3, 3), padding=(0, 1, 1)
    )


def quantized(values: Array) -> Array:
    """What MXFP8 keeps of an array whose second axis is channels, in float64."""
    blocks = values.astype(np.float64).reshape(len(values), -1, BLOCK, *values.shape[2:])
    _, exponents = np.frexp(np.abs(blocks).max(axis=2, keepdims=True))
    scales = np.ldexp(1.0, exponents - 1 - _TOP)
    rounded: Array = (blocks / scales).astype(_E4M3).astype(np.float64) * scales
    return rounded.reshape(values.shape)


def split(values: Array) -> Terms:
    """Hi and what it leaves, both as MXFP8. The difference is exact in 16 bits."""
    high = quantized(values)
    return high, quantized(values.astype(np.float64) - high)


def coded(x: Array, w: Array, coding: Coding) -> tuple[Terms, Terms]:
    """Inputs and weights as the terms that are multiplied."""
    if coding is Coding.split:
        return split(x), split(w)
    in_x, in_w = coding in (Coding.inputs, Coding.both), coding in (Coding.weights, Coding.both)
    return (quantized(x) if in_x else x,), (quantized(w) if in_w else w,)


def multiplied(x: Array, w: Array, coding: Coding, shape: ConvShape) -> Array:
    """The convolution of the coded operands; lo times lo is left out."""
    if coding is Coding.narrow_sums:
        return summed_in_bf16(x, w, shape)
    left, right = coded(x, w, coding)
    total = forward(left[0], np.sum(right, axis=0), None, shape)
    return total if len(left) == 1 else total + forward(left[1], right[0], None, shape)


def summed_in_bf16(x: Array, w: Array, shape: ConvShape) -> Array:
    """A direct convolution whose sum is rounded after every matmul, of one tap and 128 channels."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)))
    frames, rows, columns = shape.out_sizes()
    total = np.zeros((1, shape.c_out, frames, rows, columns))
    for t, r, c in np.ndindex(*shape.kernel):
        window = padded[:, :, t : t + frames, r : r + rows, c : c + columns]
        for first in range(0, shape.c_in, PARTITIONS):
            channels = slice(first, first + PARTITIONS)
            taps = w[:, channels, t, r, c].astype(np.float64)
            total += np.einsum("ncdhw,oc->nodhw", window[:, channels], taps, optimize=True)
            total = _in_bf16(total)
    return total


def fast(x: Array, w: Array, coding: Coding, shape: ConvShape, transform: Transform) -> Array:
    """F(m,3) along frames: V and U are fp16, as those of the kernel, and coded after that."""
    m, n = transform.outputs, transform.products
    tiles, (rows, columns) = shape.out_sizes()[0] // m, shape.size[1:]
    v = dict(enumerate(x[:, :, i : i + m * tiles - m + 1 : m].astype(np.float64) for i in range(n)))
    for step in transform.steps:
        value = step.scale * v[step.a] + v[step.b]
        v[step.dst] = value.astype(np.float16).astype(np.float64)
    u = _in_fp16(np.einsum("pt,oithw->poihw", _matrix(transform.g), w.astype(np.float64)))
    flat = conv_shape(
        (1, shape.c_in, tiles, rows, columns), (*w.shape[:2], 1, 3, 3), padding=(0, 1, 1)
    )
    products = [multiplied(v[n + p], u[p, :, :, None], coding, flat) for p in range(n)]
    y: Array = np.einsum("mp,pnothw->notmhw", _matrix(transform.a_t), np.stack(products))
    return y.reshape(1, shape.c_out, *shape.out_sizes())


def _matrix(rows: Sequence[Sequence[Any]]) -> Array:
    return np.array([[float(value) for value in row] for row in rows])


def _in_bf16(values: Array) -> Array:
    return values.astype(BFLOAT).astype(np.float64)


def _in_fp16(u: Array) -> Array:
    """[products, C_out, ...] rounded to fp16; every output channel scaled by a power of two."""
    largest = np.abs(u).max(axis=(0, 2, 3, 4), keepdims=True)
    scale = np.ldexp(1.0, _HALF_TOP - np.frexp(largest)[1])
    rounded: Array = (u * scale).astype(np.float16).astype(np.float64) / scale
    return rounded


def errors_of(channels: int, data: str) -> list[MxError]:
    """One layer by every algorithm and coding."""
    shape = shape_of(channels)
    x, w = arrays(shape, data)
    exact = forward(x, w, None, shape)
    floor = np.square(_in_bf16(exact) - exact).mean()
    errors = []
    for algorithm in (DIRECT, *TRANSFORMS):
        for coding in codings(algorithm):
            if algorithm == DIRECT:
                y = multiplied(x, w, coding, shape)
            else:
                y = fast(x, w, coding, shape, TRANSFORMS[algorithm])
            rms = float(np.sqrt(np.square(_in_bf16(y) - exact).mean() / floor))
            errors.append(MxError(algorithm, coding, channels, data, rms))
    return errors


def simulated(x: Array, w: Array) -> Array:
    """w[K, M].T @ x[K, N] of bf16 matrices by nkisim's quantize_mx and nc_matmul_mx, float32."""
    return np.asarray(run(_mx_matmul, _packed(x), _packed(w), machine=TRN3).outputs)


def _packed(values: Array) -> Array:
    """[K, N] as [K / 4, 4 N]: four channels of a column side by side."""
    rows = values.reshape(-1, PACKED, values.shape[1])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(len(rows), -1)


def _mx_matmul(x: Any, w: Any) -> Any:
    """Quantise both, multiply, and return the sums."""
    moving, moving_scale = _quantised_tile(x)
    stationary, stationary_scale = _quantised_tile(w)
    size = (w.shape[1] // PACKED, x.shape[1] // PACKED)
    sums, evicted = nl.ndarray(size, nl.float32, nl.psum), nl.ndarray(size, nl.float32, nl.sbuf)
    nisa.nc_matmul_mx(sums, stationary, moving, stationary_scale, moving_scale, accumulate=False)
    nisa.tensor_copy(evicted, sums)
    y = nl.ndarray(size, nl.float32, nl.shared_hbm)
    nisa.dma_copy(y, evicted)
    return y


def _quantised_tile(source: Any) -> tuple[Any, Any]:
    """A kernel's argument in SBUF as packed values, and their scales."""
    tile = nl.ndarray(source.shape, source.dtype, nl.sbuf)
    nisa.dma_copy(tile, source)
    size = (source.shape[0], source.shape[1] // PACKED)
    words, scales = (
        nl.ndarray(size, nl.float8_e4m3fn_x4, nl.sbuf),
        nl.ndarray(size, nl.uint8, nl.sbuf),
    )
    nisa.quantize_mx(words, tile, scales)
    return words, scales


def differing(channels: int = 4 * BLOCK) -> tuple[int, int]:
    """How many values nkisim quantises otherwise than `quantized`, and of how many.

    Each is multiplied by one, which MX holds exactly, and added to zeros.
    """
    x, _ = arrays(shape_of(256), DECODER)
    columns = x[0, :channels].reshape(channels, -1)[:, : TRN3.psum_bank_fp32_elems]
    theirs = simulated(columns, np.eye(channels).astype(BFLOAT))
    ours = quantized(columns[np.newaxis])[0]
    return int(np.count_nonzero(theirs != ours)), ours.size


def table(errors: Sequence[MxError]) -> str:
    """A line for each algorithm and coding, a column for each layer."""
    layers = list(dict.fromkeys((error.channels, error.data) for error in errors))
    columns = [Column("algorithm", "<"), Column("multiplied", "<"), Column("least\ntime")]
    columns += [Column(f"{data.split()[0]}\n{channels}") for channels, data in layers]
    columns += [Column("within", "<")]
    by_line: dict[tuple[str, Coding], list[float]] = {}
    for error in errors:
        by_line.setdefault((error.algorithm, error.coding), []).append(error.rms)
    rows = [
        [
            algorithm,
            coding.value,
            f"{least_time(algorithm, coding):.3f}",
            *(f"{rms:.3f}" for rms in rms_values),
            within(max(rms_values)),
        ]
        for (algorithm, coding), rms_values in by_line.items()
    ]
    return aligned(columns, rows)


def within(rms: float) -> str:
    """The accuracy that allows such an error, if one does."""
    names = [name for name in (policy.BF16, policy.FAST) if rms <= policy.LIMITS[name]]
    return names[0] if names else "-"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--channels", type=int, action="append", choices=list(_SIZES))


def main(options: argparse.Namespace) -> int:
    """Print the table, and whether nkisim quantises alike; the exit code."""
    wanted = options.channels or list(_SIZES)
    layers = [(channels, data) for data in (DECODER, WHITE) for channels in wanted]
    errors = [error for layer in layers for error in errors_of(*layer)]
    print("RMS errors over that of a direct bf16 convolution, modelled in NumPy; input channels.")
    print(f"Data: {DECODER}, or {WHITE}. Least time: Tensor engine of trn3, over direct bf16.\n")
    print(table(errors))
    others, count = differing()
    print(
        f"\nvalues that nkisim's quantize_mx and nc_matmul_mx make otherwise: {others} of {count}"
    )
    return int(others > 0)
