"""Numbers of channels, as kernels load them."""

from __future__ import annotations

import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array


def on_partitions(numbers: Array, tiles: tuple[tuple[int, int], ...], machine: Machine) -> Array:
    """Some numbers of every channel [C, n], on the partitions of its tile [partitions, tiles n]."""
    each = numbers.shape[1]
    packed = np.zeros((machine.partitions, each * len(tiles)), np.float32)
    for tile, (first, count) in enumerate(tiles):
        packed[:count, each * tile : each * (tile + 1)] = numbers[first : first + count]
    return packed
