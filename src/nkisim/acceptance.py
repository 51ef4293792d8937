"""Acceptance: what of NKI a device takes, where documents and reports leave it open.

Nearly everything is taken until a probe on a device says otherwise. What nobody was seen to do, and
costs next to nothing to do without, is left out until a probe says that it works. Planners and
kernels that ask this can do without each of these, one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Whether a device compiles each of these, and computes it right."""

    loops: bool = True  # hardware loops, with offsets that are read in every iteration
    unfenced_loops: bool = True  # what a loop stored is there without a fence behind the loop
    growing_banks: bool = True  # a PSUM bank is read between two matmuls that add to it
    psum_in_place: bool = True  # an engine writes the PSUM elements that it reads
    strided_evictions: bool = True  # sums go from PSUM to every so many-th column of a tile
    fixed_addresses: bool = True  # SBUF tensors at addresses that the kernel chose
    split_partitions: bool = False  # a DMA whose partitions are two dimensions of a pattern
    loads_ahead: bool = True  # a load is issued before stores that come before its use
    fp16_subnormals: bool = True  # matmuls do not flush them
    scalar_bias: bool = True  # the Scalar engine adds a bias tile to what it copies
    dma_transposes: bool = True  # DMA that transposes on the way from HBM
    gpsimd_sums: bool = True  # elementwise instructions of the GpSimd engine


ASSUMED = Acceptance()
