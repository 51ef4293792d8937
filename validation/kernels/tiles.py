"""Tiles that kernels take turns with: a list of buffers, used round robin."""

from __future__ import annotations

import nki.language as nl


def rotating(
    count: int, shape: tuple[int, ...], dtype: str, buffer: nl.MemoryRegion = nl.sbuf
) -> list[nl.NkiTensor]:
    """`count` tiles of one shape.

    The sources allocate a tile per iteration and leave its address to the compiler, which hands
    out the addresses that are free; taking turns says the same with a definite depth.
    """
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return tiles
