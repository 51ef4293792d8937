"""Probes of the engines: matmuls and what happens to a PSUM bank, biases, sums on GpSimd."""

from __future__ import annotations

from typing import Final

import numpy as np

from nkisim.machine import PARTITIONS
from trnconv._nki import nisa, nl
from trnconv.bringup.probes.probe import Array, Arrays, Probe, integers
from trnconv.bringup.probes.tiles import evicted, loaded, stored

_K, _M, _N = PARTITIONS, 64, PARTITIONS
_SUBNORMAL = 2.0**-20  # of fp16, whose normal values begin at 2**-14
_WHOLE = 2.0**20  # brings the products back to integers


def _matrices(seed: int) -> Arrays:
    return integers(seed, _K, _M), integers(seed + 1000, _K, _N)


def _product(stationary: Array, moving: Array) -> Array:
    return stationary.T.astype(np.float32) @ moving.astype(np.float32)


def _bank(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    shape = (stationary.shape[1], moving.shape[1])
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def matmul(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """transpose(stationary) @ moving."""
    bank = _bank(stationary, moving)
    a, b = loaded(stationary), loaded(moving)
    nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=False)
    return stored(evicted(bank))


def column_tile(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """Two products of 64 stationary columns in two halves of the array."""
    lines = stationary.shape[1]
    bank = nl.ndarray((2 * lines, moving.shape[1]), dtype=nl.float32, buffer=nl.psum)
    a, b = loaded(stationary), loaded(moving)
    for half in range(2):
        nisa.nc_matmul(
            dst=bank[half * lines : (half + 1) * lines],
            stationary=a,
            moving=b,
            accumulate=False,
            tile_position=(0, half * lines),
            tile_size=(nl.tile_size.pmax, lines),
        )
    return stored(evicted(bank))


def growing_bank(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """A product that is read, then added to, and read again."""
    bank = _bank(stationary, moving)
    a, b = loaded(stationary), loaded(moving)
    y = nl.ndarray((2, bank.shape[0], bank.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for number in range(2):
        nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=number > 0)
        copied = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=copied, op=nl.copy, data=bank)
        nisa.dma_copy(dst=y[number], src=copied)
    return y


def psum_in_place(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """relu of a product, written where it stands."""
    bank = _bank(stationary, moving)
    a, b = loaded(stationary), loaded(moving)
    nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=False)
    nisa.activation(dst=bank, op=nl.relu, data=bank)
    return stored(evicted(bank))


def strided_eviction(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """A product on every other column of a tile, and twice it on the others."""
    bank = _bank(stationary, moving)
    a, b = loaded(stationary), loaded(moving)
    nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=False)
    wide = nl.ndarray((bank.shape[0], 2 * bank.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide[:, 0 : 2 * bank.shape[1] : 2], src=bank)
    nisa.tensor_scalar(
        dst=wide[:, 1 : 2 * bank.shape[1] : 2], data=bank, op0=nl.multiply, operand0=2.0
    )
    return stored(wide)


def _interleaved(stationary: Array, moving: Array) -> Arrays:
    product = _product(stationary, moving)
    return (np.stack([product, 2 * product], axis=2).reshape(product.shape[0], -1),)


def fp16_subnormals(stationary: nl.NkiTensor, moving: nl.NkiTensor) -> nl.NkiTensor:
    """A product of fp16 values of which one side is subnormal, scaled back to integers."""
    bank = _bank(stationary, moving)
    a, b = loaded(stationary), loaded(moving)
    nisa.nc_matmul(dst=bank, stationary=a, moving=b, accumulate=False)
    whole = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=whole, data=bank, op0=nl.multiply, operand0=_WHOLE)
    return stored(whole)


def _tiny(seed: int) -> Arrays:
    whole, other = _matrices(seed)
    return whole.astype(np.float16), (other * _SUBNORMAL).astype(np.float16)


def scalar_bias(x: nl.NkiTensor, bias: nl.NkiTensor) -> nl.NkiTensor:
    """x + bias, as a copy on the Scalar engine."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.activation(dst=y, op=nl.copy, data=loaded(x), bias=loaded(bias))
    return stored(y)


def gpsimd_sum(a: nl.NkiTensor, b: nl.NkiTensor) -> nl.NkiTensor:
    """a + b on the GpSimd engine."""
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    engine = nisa.engine.gpsimd
    nisa.tensor_tensor(dst=y, data1=loaded(a), data2=loaded(b), op=nl.add, engine=engine)
    return stored(y)


def _pair(seed: int) -> Arrays:
    return integers(seed, PARTITIONS, 64), integers(seed + 1000, PARTITIONS, 64)


MATMUL: Final = Probe(
    "matmul", "one matmul", matmul, _matrices, lambda a, b: (_product(a, b),), legalised=False
)
ENGINES: Final = (
    Probe(
        "column-tile",
        "two column tiles of the array (if yes, and they run side by side: column-tiles)",
        column_tile,
        _matrices,
        lambda a, b: (np.concatenate([_product(a, b)] * 2),),
        notes=True,
    ),
    Probe(
        "growing-bank",
        "a PSUM bank that is read between two matmuls that add to it",
        growing_bank,
        _matrices,
        lambda a, b: (np.stack([_product(a, b), 2 * _product(a, b)]),),
        workaround="no-growing-banks",
    ),
    Probe(
        "psum-in-place",
        "an activation on the PSUM elements that it reads",
        psum_in_place,
        _matrices,
        lambda a, b: (np.maximum(_product(a, b), 0),),
        workaround="no-psum-in-place",
    ),
    Probe(
        "strided-eviction",
        "PSUM to every other column of a tile",
        strided_eviction,
        _matrices,
        _interleaved,
        workaround="dense-evictions",
    ),
    Probe(
        "fp16-subnormals",
        "a matmul of subnormal fp16 values",
        fp16_subnormals,
        _tiny,
        lambda a, b: (_product(a, b) * np.float32(_WHOLE),),
        workaround="no-fp16-subnormals",
    ),
    Probe(
        "scalar-bias",
        "a bias tile added to a copy on the Scalar engine",
        scalar_bias,
        lambda seed: (integers(seed, PARTITIONS, 64), integers(seed + 1000, PARTITIONS, 1)),
        lambda x, bias: (x + bias,),
        workaround="no-scalar-bias",
    ),
    Probe(
        "gpsimd-sum",
        "a sum of two tiles on the GpSimd engine",
        gpsimd_sum,
        _pair,
        lambda a, b: (a + b,),
        workaround="no-gpsimd-sums",
    ),
)
