"""Matrix products in float32: as BLAS likes it, or with every sum in one fixed order.

BLAS picks its inner loop, and with it the order in which a sum is added up, by the shape of the
product; so an element may come out with other bits if it has more neighbours. In the fixed order
all products have one shape: operands are cut into panels, filled up with zeros where they end. An
element then passes the same loop wherever it stands, and zeros add nothing. Panels are so narrow
that BLAS does not share one out to threads.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from nkisim.errors import UnsupportedError
from nkisim.machine import PARTITIONS, QUADRANT
from nkisim.running.session import FIXED, Session

if TYPE_CHECKING:
    from nkisim.isa.operands import Array

_COLUMNS = QUADRANT  # of a panel


def product(core: Session, left: Array, right: Array) -> Array:
    """left[K, M].T @ right[K, N], summed as the run was asked to.

    The result lives in a buffer that the next product of this size overwrites.
    """
    total = _buffer(left.shape[1], right.shape[1])
    with np.errstate(all="ignore"):
        if core.settings.summation == FIXED:
            return _in_fixed_order(left, right, total)
        return np.matmul(left.T, right, out=total)


@functools.lru_cache(maxsize=64)
def _buffer(rows: int, columns: int) -> Array:
    """Memory for a product: large arrays are slow to allocate, and a product is used at once."""
    return np.empty((rows, columns), np.float32)


def _in_fixed_order(left: Array, right: Array, total: Array) -> Array:
    """The panels of K one after the other, each in the order of the one shape there is."""
    _require_one_order()
    total[...] = 0
    for k in range(0, left.shape[0], PARTITIONS):
        moving = _panels(right[k : k + PARTITIONS])
        for row in range(0, total.shape[0], PARTITIONS):
            rows = total[row : row + PARTITIONS]
            stationary = _stationary(left[k : k + PARTITIONS, row : row + PARTITIONS])
            rows += _flat(_panel_products(stationary, moving))[: rows.shape[0], : rows.shape[1]]
    return total


def _stationary(part: Array) -> Array:
    """[K, M] filled up with zeros to the size of the array."""
    whole = _zeros(PARTITIONS, PARTITIONS)
    whole[: part.shape[0], : part.shape[1]] = part
    whole[part.shape[0] :] = 0
    whole[: part.shape[0], part.shape[1] :] = 0
    return whole


def _panels(part: Array) -> Array:
    """[K, N] as panels [number, K, columns], filled up with zeros."""
    depth, columns = part.shape
    count = -(-columns // _COLUMNS)
    wide = _zeros(PARTITIONS, count * _COLUMNS)
    wide[:depth, :columns] = part
    wide[depth:] = 0
    wide[:depth, columns:] = 0
    panels = _zeros(count, PARTITIONS, _COLUMNS)
    panels[...] = wide.reshape(PARTITIONS, count, _COLUMNS).swapaxes(0, 1)
    return panels


@functools.lru_cache(maxsize=64)
def _zeros(*shape: int) -> Array:
    """Memory for operands: it is filled anew for each product."""
    return np.zeros(shape, np.float32)


def _panel_products(stationary: Array, moving: Array) -> Array:
    """stationary.T @ panel, [number, M, columns]: one BLAS call of one shape for each panel."""
    products: Array = np.matmul(stationary.T, moving)
    return products


def _flat(panels: Array) -> Array:
    """Panels side by side: [M, N]."""
    count, rows, columns = panels.shape
    return panels.swapaxes(0, 1).reshape(rows, count * columns)


@functools.lru_cache(maxsize=1)
def _require_one_order() -> None:
    """Equal columns, and equal rows, come out equal at every place; else this BLAS will not do."""
    random = np.random.default_rng(0)
    stationary, moving = random.standard_normal((2, PARTITIONS, PARTITIONS)).astype(np.float32)
    columns = _panel_products(stationary, _panels(np.repeat(moving[:, :1], PARTITIONS, axis=1)))
    rows = _panel_products(np.repeat(stationary[:, :1], PARTITIONS, axis=1), _panels(moving))
    if np.any(columns != columns[:1, :, :1]) or np.any(rows != rows[:, :1]):
        raise UnsupportedError(
            "summation='fixed' with the BLAS of this NumPy",
            instruction="nkisim.run",
            limit="it sums equal columns of one product in different orders",
            remedy="let BLAS use one thread (OPENBLAS_NUM_THREADS=1), or use another NumPy",
        )
