"""The three NeuronCores in numbers: the only file that holds hardware constants.

Sources, by key:
  A1, A2, A3  architecture guides of trn1, trn2, trn3 in the Neuron SDK documentation (2.32)
  ISA         signature stubs and docstrings of nki.isa (NKI 0.6)
  TS          nki.language.tile_size reference page
  KLR         constants of the open NKI front end, leanprover/KLR
  MIG         NKI migration guide
"""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.errors import NkiValidationError

V2, V3, V4 = 2, 3, 4  # NeuronCore versions of trn1, trn2, trn3


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One NeuronCore generation: what it holds and what one instruction may ask of it."""

    name: str
    generation: int
    sbuf_physical_bytes_per_partition: int  # A1, A2, A3
    sbuf_usable_bytes_per_partition: int  # KLR; physical less 16 KiB DMA scratch (and 8 B on v3+)
    matmul_moving_max_elems_fp32: int  # ISA nc_matmul, fp32 destination
    matmul_moving_max_elems_bf16: int  # ISA nc_matmul, bf16 destination
    matmul_tile_min_rows: int  # ISA nc_matmul tile_size: 64 on v2, 32 from v3

    partitions: int = 128  # A1: SBUF and PSUM partitions, PE rows and columns
    quadrant_partitions: int = 32  # A1: engines start on partition 0, 32, 64 or 96
    sbuf_align_bytes: int = 4  # TS sbuf_min_align, value of the 0.6 wheel
    psum_align_bytes: int = 4  # TS psum_min_align, KLR
    psum_banks: int = 8  # A1
    psum_bank_bytes_per_partition: int = 2048  # A1
    stationary_max_elems: int = 128  # ISA nc_matmul
    bn_stats_max_elems: int = 512  # TS bn_stats_fmax
    sbuf_operand_max_elems: int = 65536  # A1: free elements of one SBUF operand
    psum_operand_max_elems: int = 4096  # A1: free elements of one PSUM operand
    access_free_dims_max: int = 4  # NKI access-pattern guide: partition + 4 free dimensions
    access_size_max: int = 65535  # A1: uint16 size field of a pattern dimension
    access_stride_max: int = 32767  # A1: int16 stride field, in elements
    search_min_elems: int = 8  # ISA max8, nc_find_index8, nc_match_replace8
    search_max_elems: int = 16384  # ISA max8, nc_find_index8, nc_match_replace8
    gather_max_indices: int = 4096  # ISA local_gather, indices per GpSimd core
    gather_group_partitions: int = 16  # A1: one GpSimd core serves 16 partitions
    vector_transpose_max: int = 32  # ISA nc_transpose on the Vector engine
    dma_compute_max_sources: int = 16  # ISA dma_compute
    hbm_bytes: int = 1 << 40  # no per-kernel limit is documented; a guard against typing errors

    @property
    def psum_bytes_per_partition(self) -> int:
        """All banks of one partition."""
        return self.psum_banks * self.psum_bank_bytes_per_partition

    @property
    def psum_bank_fp32_elems(self) -> int:
        """fp32 values one partition of one bank holds."""
        return self.psum_bank_bytes_per_partition // 4


TRN1 = Machine(
    name="trn1",
    generation=V2,
    sbuf_physical_bytes_per_partition=192 * 1024,
    sbuf_usable_bytes_per_partition=180_224,
    matmul_moving_max_elems_fp32=512,
    matmul_moving_max_elems_bf16=512,
    matmul_tile_min_rows=64,
)
TRN2 = Machine(
    name="trn2",
    generation=V3,
    sbuf_physical_bytes_per_partition=224 * 1024,
    sbuf_usable_bytes_per_partition=212_984,
    matmul_moving_max_elems_fp32=512,
    matmul_moving_max_elems_bf16=512,
    matmul_tile_min_rows=32,
)
TRN3 = Machine(
    name="trn3",
    generation=V4,
    sbuf_physical_bytes_per_partition=256 * 1024,
    sbuf_usable_bytes_per_partition=245_752,
    matmul_moving_max_elems_fp32=4096,
    matmul_moving_max_elems_bf16=8192,
    matmul_tile_min_rows=32,
)

MACHINES = {machine.name: machine for machine in (TRN1, TRN2, TRN3)}
_ALIASES = {"inf2": TRN1, "gen2": TRN1, "gen3": TRN2, "gen4": TRN3, **MACHINES}


def find_machine(target: str | Machine) -> Machine:
    """The machine named trn1/inf2/gen2, trn2/gen3 or trn3/gen4."""
    if isinstance(target, Machine):
        return target
    if target not in _ALIASES:
        raise NkiValidationError(
            f"unknown target {target!r}",
            limit=f"known targets: {', '.join(sorted(_ALIASES))}",
            remedy="name one of them",
        )
    return _ALIASES[target]
