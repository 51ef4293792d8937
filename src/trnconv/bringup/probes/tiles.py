"""Tiles that several probes load and store: [128, n] of float32 unless they say otherwise."""

from __future__ import annotations

from trnconv._nki import nisa, nl


def loaded(tensor: nl.NkiTensor) -> nl.NkiTensor:
    """A tensor of HBM in a tile of SBUF."""
    tile = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor)
    return tile


def stored(tile: nl.NkiTensor) -> nl.NkiTensor:
    """A tile of SBUF as a result."""
    y = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tile)
    return y


def evicted(bank: nl.NkiTensor) -> nl.NkiTensor:
    """A PSUM tensor in a tile of SBUF."""
    tile = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=bank)
    return tile


def empty_like(tensor: nl.NkiTensor) -> nl.NkiTensor:
    """A result of the same shape and type."""
    return nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.shared_hbm)
