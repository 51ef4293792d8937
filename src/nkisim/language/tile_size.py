"""`nl.tile_size`: the sizes kernels tile by, of the machine in use."""

from __future__ import annotations

import os

from nkisim.machine import V3
from nkisim.running.environment import TRANSPOSE_VARIABLE, machine_in_use
from nkisim.tensors.registers import NKIObject


class TileSize(NKIObject):
    """Readable outside of kernels too; then it speaks of the default machine."""

    @property
    def pmax(self) -> int:
        """Partitions of a tile."""
        return machine_in_use().partitions

    @property
    def psum_fmax(self) -> int:
        """fp32 elements per partition of a PSUM bank (deprecated name of psum_bank_fmax)."""
        return self.psum_bank_fmax

    @property
    def psum_bank_fmax(self) -> int:
        """fp32 elements per partition of a PSUM bank."""
        return machine_in_use().psum_bank_fp32_elems

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes per partition of a PSUM bank."""
        return machine_in_use().psum_bank_bytes_per_partition

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free elements of the stationary matmul operand."""
        return machine_in_use().stationary_max_elems

    @property
    def gemm_moving_fmax(self) -> int:
        """Free elements of the moving operand that every generation takes."""
        return machine_in_use().psum_bank_fp32_elems

    @property
    def bn_stats_fmax(self) -> int:
        """Free elements of nisa.bn_stats."""
        return machine_in_use().bn_stats_max_elems

    @property
    def psum_min_align(self) -> int:
        """Byte alignment of PSUM addresses."""
        return machine_in_use().psum_align_bytes

    @property
    def sbuf_min_align(self) -> int:
        """Byte alignment of SBUF addresses."""
        return machine_in_use().sbuf_align_bytes

    @property
    def psum_num_banks(self) -> int:
        """Banks a kernel may use; one less when dma_transpose is lowered to the Tensor engine."""
        machine = machine_in_use()
        lowered = os.environ.get(TRANSPOSE_VARIABLE, "").lower() == "true"
        reserved = 1 if lowered and machine.generation >= V3 else 0
        return machine.psum_banks - reserved

    @property
    def sbuf_size_bytes(self) -> int:
        """Physical SBUF, all partitions together."""
        machine = machine_in_use()
        return machine.sbuf_physical_bytes_per_partition * machine.partitions

    @property
    def sbuf_fmax(self) -> int:
        """fp32 elements per partition of the largest SBUF tile."""
        return self.sbuf_fmax_bytes // 4

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes per partition of SBUF."""
        return machine_in_use().sbuf_usable_bytes_per_partition

    @property
    def total_available_sbuf_size(self) -> int:
        """Deprecated name of sbuf_fmax_bytes."""
        return self.sbuf_fmax_bytes


tile_size = TileSize()
