"""Rules about single instructions: PSUM accumulation groups, DMA patterns, engines of trn1."""

from __future__ import annotations

from typing import Final

from nkisim.device_rules.rule import DeviceRule, Strength
from nkisim.machine import V2, V3, V4

_TRN1: Final = (V2,)

PSUM_GROUPS: Final = DeviceRule(
    name="psum-groups",
    strength=Strength.S,
    forbids="several accumulation groups in column ranges of one PSUM tensor",
    reported="the first partial sums are lost: only the last range is right, for widths of 1 to 16"
    " and of 128, interleaved or one after another. One tensor a group is exact, and so are ranges"
    " written once",
    source="KILN tools/probe_psum_interleave.py, probe_nki_scores, moe_ep",
    seen_on="trn1, nki 0.6.0",
    remedy="allocate one PSUM tensor for each group",
    generations=_TRN1,
)
PSUM_GROUPS_UNTESTED: Final = DeviceRule(
    name="psum-groups-untested",
    strength=Strength.W,
    forbids="several accumulation groups in one PSUM tensor: in column ranges from trn2 on, in"
    " ranges of partitions (column tiles) anywhere",
    reported="nothing: wrong on trn1 for column ranges, tested by nobody found for these",
    source="KILN tools/probe_psum_interleave.py, by analogy",
    seen_on="not seen on a device",
    remedy="allocate one PSUM tensor for each group",
)
ACCUMULATE_NONE: Final = DeviceRule(
    name="accumulate-none-reuse",
    strength=Strength.S,
    forbids="accumulate=None into PSUM elements whose group was read before",
    reported="adds to what the group before left. accumulate=None with a fresh tile for each group"
    " is right (TB)",
    source="KILN; AGD asks for accumulate=(k > 0)",
    seen_on="trn1 and trn2, nki 0.6.0",
    remedy="pass accumulate=False on the first matmul of a group and True on the others, or"
    " allocate a fresh tile",
)
STATIONARY_DIMS: Final = DeviceRule(
    name="stationary-two-free-dims",
    strength=Strength.M,
    forbids="a stationary operand with two free dimensions",
    reported="a stationary operand is read with one free dimension only",
    source="JIN moe_fused_fp8.py",
    seen_on="trn2 LNC2, autumn 2026",
    remedy="copy the operand to a tile where its columns have one step",
)
BF16_TRANSPOSE: Final = DeviceRule(
    name="bf16-transpose-psum",
    strength=Strength.M,
    forbids="nc_transpose on the Tensor engine from 16-bit floats into PSUM of the same type",
    reported="trn1 writes fp32 there, so the kernel seen there allocates fp32; that the 16-bit type"
    " is refused is not shown. From trn2 on dst must have the type of the input",
    source="KILN moe_prefill.py, which chooses by nisa.get_nc_version()",
    seen_on="trn1, nki 0.6.0",
    remedy="allocate dst in float32 on trn1",
    generations=_TRN1,
)
OFFSET_IN_DIM: Final = DeviceRule(
    name="offset-in-dimension",
    strength=Strength.S,
    forbids="a dynamic offset of .ap that is not below shape[indirect_dim]",
    reported="an index of shape[indirect_dim] or more counts as out of bounds. Every kernel found"
    " keeps the index inside the named dimension; nobody goes beyond it",
    source="KILN; TB, LDC, JIN and SDK#1374 for the safe form",
    seen_on="trn1 and trn2, nki 0.6.0",
    remedy="reshape the tensor to one dimension and use indirect_dim=0: that costs nothing",
)
DMA_PARTITION_STEP: Final = DeviceRule(
    name="dma-negative-partition-step",
    strength=Strength.M,
    forbids="a DMA that walks partitions by a negative step",
    reported="DMA takes positive partition steps only; the kernel stores row by row instead",
    source="TB reverse_array",
    seen_on="trn2",
    remedy="issue one DMA a row, or reverse along a free dimension on a compute engine",
)
DMA_FREE_STEP: Final = DeviceRule(
    name="dma-negative-free-step",
    strength=Strength.W,
    forbids="a negative step in a free dimension of a DMA",
    reported="nothing: no device evidence. A compute operand with a step of -1 runs on trn2 (TB)",
    source="TB reverse_array, for compute operands",
    seen_on="not seen on a device",
    remedy="reverse with a tensor_copy on a compute engine",
)
DMA_SPLIT_PARTITIONS: Final = DeviceRule(
    name="dma-split-partitions",
    strength=Strength.W,
    forbids="a DMA whose SBUF side splits the partition axis into two pattern dimensions",
    reported="nothing: no report either way. AGD forbids steps and flattening of partitions",
    source="AGD nki-language-constraint.md",
    seen_on="not seen on a device",
    remedy="issue one DMA for each value of the outer dimension",
)
WIDE_STEP: Final = DeviceRule(
    name="step-above-16-bit",
    strength=Strength.S,
    forbids="an on-chip step, of DMA too, above machine.access_stride_max",
    reported="does not compile: NCC_IXCG967 at a step of 37,152 elements",
    source="KILN; AGD gives 32,767 for SBUF",
    seen_on="trn1, nki 0.6.0",
    remedy="issue one instruction for each slice of that dimension",
)
COPY_WITH_BIAS: Final = DeviceRule(
    name="activation-copy-bias",
    strength=Strength.S,
    forbids="an activation with nl.copy and a bias tile",
    reported="does not compile: NCC_IBVF043; nki 0.2 dropped the bias silently. trn2 runs it",
    source="KILN; Q36; SDK#1296; NKL interleave_copy.py for trn2",
    seen_on="trn1, nki 0.6.0",
    remedy="add the bias by nisa.tensor_scalar on the Vector engine",
    generations=_TRN1,
)
GPSIMD_ELEMENTWISE: Final = DeviceRule(
    name="gpsimd-elementwise",
    strength=Strength.S,
    forbids="tensor_tensor, tensor_scalar or scalar_tensor_tensor on the GpSimd engine",
    reported="does not compile, whatever the type: NCC_IXCG965. trn2 runs it (JIN)",
    source="KILN",
    seen_on="trn1, nki 0.6.0",
    remedy="pass engine=nisa.engine.vector",
    generations=_TRN1,
)
SHARED_SCRATCH: Final = DeviceRule(
    name="shared-hbm-scratch",
    strength=Strength.S,
    forbids="a shared_hbm tensor that is not returned",
    reported="does not compile: scratch in shared_hbm is for trn2 only; as an output it is fine",
    source="Q36; KILN",
    seen_on="trn1, nki 0.6.0",
    remedy="allocate scratch with buffer=nl.private_hbm",
    generations=_TRN1,
)
DYNAMIC_COMPUTE: Final = DeviceRule(
    name="dynamic-compute-operand",
    strength=Strength.S,
    forbids="a compute operand at an offset from a register or from SBUF",
    reported="does not compile: NCC_IBIR829, NCC_IBIR040; only DMA addresses are dynamic. trn2 runs"
    " tensor_copy at a register offset (JIN expert_decode.py)",
    source="KILN",
    seen_on="trn1, nki 0.6.0",
    remedy="move the data to a fixed place by DMA, with the dynamic offset in HBM",
    generations=_TRN1,
)
REGISTER_STORE: Final = DeviceRule(
    name="register-store-to-sbuf",
    strength=Strength.M,
    forbids="register_store to SBUF",
    reported="does not compile: NCC_IXCG832. trn2 runs it (LDC)",
    source="KILN",
    seen_on="trn1, nki 0.6.0",
    remedy="keep the number in a register, or store it to HBM",
    generations=_TRN1,
)
SKIP_IN_LOOP: Final = DeviceRule(
    name="skip-in-loop",
    strength=Strength.M,
    forbids="a DMA with oob_mode.skip inside a device loop",
    reported="does not compile: NCC_IGCA103",
    source="KILN",
    seen_on="trn1, nki 0.6.0",
    remedy="bound the offset, or unroll the loop",
)
TRANSPOSE_SKIP: Final = DeviceRule(
    name="transpose-gather-skip",
    strength=Strength.S,
    forbids="dma_transpose of gathered rows with oob_mode.skip",
    reported="aborts the DMA when rows inside and outside mix, and leaves the device unusable until"
    " it is reset; reproduced by AWS",
    source="SDK#1390 (open)",
    seen_on="trn2, SDK 2.32",
    remedy="gather with dma_copy, which may skip, then transpose",
    generations=(V3, V4),
)

INSTRUCTION_RULES: Final = (
    PSUM_GROUPS,
    PSUM_GROUPS_UNTESTED,
    ACCUMULATE_NONE,
    STATIONARY_DIMS,
    BF16_TRANSPOSE,
    OFFSET_IN_DIM,
    DMA_PARTITION_STEP,
    DMA_FREE_STEP,
    DMA_SPLIT_PARTITIONS,
    WIDE_STEP,
    COPY_WITH_BIAS,
    GPSIMD_ELEMENTWISE,
    SHARED_SCRATCH,
    DYNAMIC_COMPUTE,
    REGISTER_STORE,
    SKIP_IN_LOOP,
    TRANSPOSE_SKIP,
)
