"""Published matrix multiplications."""

from __future__ import annotations

from nkisim import TRN2, Spec
from validation.kernels import gemm_bf16, gemm_fp32, gemm_ladder
from validation.row import Row, us_from_mfu

TUTORIAL = "Neuron SDK 2.26 documentation, NKI tutorial “Matrix multiplication”, table of latencies"
OPTIMIZATION = (
    "Neuron SDK 2.32 documentation, “Introduction to NKI Kernel Optimization”, profile summaries"
)
LIBRARY = "awslabs/nki-autotune at d57bcc3, kernel_library/README.md"
PIPELINE = "awslabs/nki-autotune at d57bcc3, software-pipeline design of 2026-06-06, section 1"
NOTES = "awslabs/nki-autotune at d57bcc3, learnings, “Matmul MFU ladder”"
NKIBENCH = (
    "zhang677/AccelOpt at 47e29a7, NKIBench kernels and full_complete_local/profile_results.csv"
)

BANDWIDTH_OF_TUTORIAL = (
    "Rows 1 to 4 all come to 103 to 106 GB/s of HBM traffic whatever the size of the DMA rows, well"
    " below the documented 272 GB/s; the toolchain of the time seems to have used a part of the DMA"
    " engines. The same source is published at 20.99 ms with a later compiler (ucb-bar/autocomp)."
)
ONE_CLOCK = (
    "Compute-bound kernels on trn1 are published at 83 to 86 % of what 2.8 GHz allow; a device"
    " user's profile shows a throttle at 87.5 %, which constants 3 have."
)


def _ladder(dtype: str) -> tuple[Spec, Spec]:
    """lhs_t and rhs of 4096 x 8192 x 8192."""
    return Spec((8192, 4096), dtype), Spec((8192, 8192), dtype)


def _cube_us(percent: float) -> float:
    return us_from_mfu(percent, "trn2", 2 * 2048**3)


TRN1_LADDER = (
    Row(
        number="1",
        title="GEMM 4096 x 8192 x 8192, tiled",
        machine="trn1",
        dtype="bfloat16",
        published_us=51_800,
        source=TUTORIAL,
        stream="32,768 matmuls of 128 x 128 x 512, each after loads of its two tiles (256 B and"
        " 1 KiB rows).",
        kernel=gemm_ladder.tiled,
        arguments=_ladder("bfloat16"),
        note=BANDWIDTH_OF_TUTORIAL,
    ),
    Row(
        number="2",
        title="GEMM 4096 x 8192 x 8192, loads hoisted",
        machine="trn1",
        dtype="bfloat16",
        published_us=42_960,
        source=TUTORIAL,
        stream="lhs tiles are loaded once per 128 rows, rhs tiles once per output tile.",
        kernel=gemm_ladder.hoisted,
        arguments=_ladder("bfloat16"),
        note="As row 1: published traffic is 103 GB/s; the interval's upper end takes the"
        " documented curve of DMA efficiency by size.",
    ),
    Row(
        number="3",
        title="GEMM 4096 x 8192 x 8192, blocks of 2 x 2",
        machine="trn1",
        dtype="bfloat16",
        published_us=22_070,
        source=TUTORIAL,
        stream="Blocks of 2 x 2 output tiles share their loads: rhs is read 16 times.",
        kernel=gemm_ladder.blocked,
        arguments=_ladder("bfloat16"),
        note="As rows 1 and 2: published traffic is 103 GB/s.",
    ),
    Row(
        number="4",
        title="GEMM 4096 x 8192 x 8192, all blocked",
        machine="trn1",
        dtype="bfloat16",
        published_us=6_970,
        source=TUTORIAL,
        stream="Blocks of 16 x 2 x 8 tiles; partial sums over K are added in SBUF by the Vector"
        " engine.",
        kernel=gemm_ladder.blocked_all,
        arguments=_ladder("bfloat16"),
        options={"blocks": (16, 2, 8)},
        note=ONE_CLOCK,
    ),
)

TRN2_LADDER = (
    Row(
        number="5",
        title="GEMM 4096 x 8192 x 8192, tiled",
        machine="trn2",
        dtype="float32",
        published_us=39_890,
        source=OPTIMIZATION,
        stream="As row 1 in fp32: 512 B and 2 KiB rows, two passes per matmul.",
        kernel=gemm_ladder.tiled,
        arguments=_ladder("float32"),
    ),
    Row(
        number="6",
        title="GEMM 4096 x 8192 x 8192, loads hoisted",
        machine="trn2",
        dtype="float32",
        published_us=28_200,
        source=OPTIMIZATION,
        stream="As row 2 in fp32.",
        kernel=gemm_ladder.hoisted,
        arguments=_ladder("float32"),
    ),
    Row(
        number="7",
        title="GEMM 4096 x 8192 x 8192, blocks of 2 x 2",
        machine="trn2",
        dtype="float32",
        published_us=28_410,
        source=OPTIMIZATION,
        stream="As row 3 in fp32, but rhs is loaded for each row of a block anew: two columns of"
        " rhs tiles (256 KiB) do not fit SBUF, and the published traffic says the same.",
        kernel=gemm_ladder.blocked,
        arguments=_ladder("float32"),
        options={"keep_rhs": False},
        chosen_after="The published blocks do not fit SBUF without spilling; these blocks do.",
    ),
    Row(
        number="8",
        title="GEMM 4096 x 8192 x 8192, all blocked",
        machine="trn2",
        dtype="float32",
        published_us=28_300,
        source=OPTIMIZATION,
        stream="As row 4 in fp32 with blocks of 8 x 1 x 8: the published 16 x 2 x 8 need 224 KiB of"
        " SBUF, and the compiler spills.",
        kernel=gemm_ladder.blocked_all,
        arguments=_ladder("float32"),
        options={"blocks": (8, 1, 8)},
        chosen_after="The published blocks do not fit SBUF without spilling; these blocks do.",
    ),
)

_CUBE = (Spec((2048, 2048), "bfloat16"), Spec((2048, 2048), "bfloat16"))
_PROLOGUE = (
    "The model loads both operands (46 us at 368 GB/s) before the Tensor engine is fed; published"
    " activity leaves 32 us for it."
)

CUBES = (
    Row(
        number="9",
        title="GEMM 2048³, two levels of K",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(90.92),
        published_as="90.92 % MFU",
        source=LIBRARY,
        stream="1,024 matmuls; eight K tiles are summed in PSUM, blocks of K in SBUF; loads of 512"
        " columns run ahead.",
        kernel=gemm_bf16.two_level,
        arguments=_CUBE,
        chosen_after="PSUM is cleared ahead of its use (in the source's order about 3 times the"
        " published time), and the Scalar engine copies out.",
    ),
    Row(
        number="10a",
        title="GEMM 2048³, one PSUM accumulator",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(59.5),
        published_as="59.5 % MFU",
        source=PIPELINE,
        stream="Operands resident; 64 matmuls fill 2,048 columns of PSUM, which are drained and"
        " cleared before the next 64.",
        kernel=gemm_bf16.one_accumulator,
        arguments=_CUBE,
    ),
    Row(
        number="10b",
        title="GEMM 2048³, two PSUM accumulators",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(82.9),
        published_as="82.9 % MFU",
        source=PIPELINE,
        stream="As row 10a with two accumulators that take turns; clearing runs ahead, as it does"
        " on an engine of its own in the published profile.",
        kernel=gemm_bf16.two_accumulators,
        arguments=_CUBE,
        chosen_after="PSUM is cleared ahead of its use (1.45 in the source's order).",
        note=_PROLOGUE,
    ),
    Row(
        number="10c",
        title="GEMM 2048³, skewed accumulators",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(83.7),
        published_as="83.7 % MFU",
        source=PIPELINE,
        stream="As row 10b; a drain is issued after the matmuls of the next row.",
        kernel=gemm_bf16.skewed_accumulators,
        arguments=_CUBE,
        note="As row 10b.",
    ),
    Row(
        number="11a",
        title="GEMM 2048³, loads in the inner loop",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(16),
        published_as="about 16 % MFU",
        source=NOTES,
        stream="Every matmul loads its two tiles first; the compiler rotates the addresses of the"
        " one tile that the source names.",
        kernel=gemm_bf16.loads_in_inner_loop,
        arguments=_CUBE,
        chosen_after="The one buffer of the source is rotated, as a compiler would (about 2.6"
        " without).",
        note=f"2,112 DMAs at the published time are 647 ns each; the default reading issues one in"
        f" {TRN2.timing.dma_issue_hwdge_ns:.0f} ns, the documentation says about 600.",
    ),
    Row(
        number="11b",
        title="GEMM 2048³, streaming loads",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(89.5),
        published_as="89.5 % MFU",
        source=NOTES,
        stream="Loads run one block ahead; all of K is summed in PSUM.",
        kernel=gemm_bf16.streaming,
        arguments=_CUBE,
        chosen_after="The blocks follow from one sentence of the source.",
    ),
    Row(
        number="12",
        title="GEMM 2048³, lhs transposed by DMA",
        machine="trn2",
        dtype="bfloat16",
        published_us=_cube_us(89.26),
        published_as="89.26 % MFU",
        source=LIBRARY,
        stream="As row 9 with lhs loaded through dma_transpose in blocks of 1,024 rows.",
        kernel=gemm_bf16.transposing_loads,
        arguments=_CUBE,
        chosen_after="PSUM is cleared ahead of its use, and the Scalar engine copies out.",
    ),
)

NKIBENCH_ROWS = (
    Row(
        number="39",
        title="GEMM 4096 x 5120 x 12288",
        machine="trn1",
        dtype="float32",
        published_us=35_200,
        source=NKIBENCH,
        stream="15,360 transposes by identity and 30,720 matmuls; rhs is read for every 128 rows"
        " anew, 9 GB in all.",
        kernel=gemm_fp32.matmul,
        arguments=(Spec((4096, 5120), "float32"), Spec((5120, 12288), "float32")),
        chosen_after="Which operand is read again is taken from the published traffic.",
    ),
    Row(
        number="40",
        title="GEMM 4096 x 2048 x 10944, lhs transposed",
        machine="trn1",
        dtype="float32",
        published_us=9_610,
        source=NKIBENCH,
        stream="Blocks of 1,024 x 1,024 outputs; 16 K tiles are summed in PSUM, the Scalar engine"
        " copies out.",
        kernel=gemm_fp32.transposed_matmul,
        arguments=(Spec((2048, 4096), "float32"), Spec((2048, 10944), "float32")),
        note=ONE_CLOCK,
    ),
    Row(
        number="45",
        title="batched GEMM 16 x 4096 x 64 x 4096",
        machine="trn1",
        dtype="float32",
        published_us=4_611,
        source=NKIBENCH,
        stream="One matmul of K = 64 per 128 x 512 outputs; 1 GB of stores in rows of 4 KiB.",
        kernel=gemm_fp32.batched_matmul,
        arguments=(Spec((16, 4096, 64), "float32"), Spec((16, 64, 4096), "float32")),
        chosen_after="Which operand is read again is taken from the published traffic (1.15 as"
        " written).",
    ),
)

GEMM_ROWS = (*TRN1_LADDER, *TRN2_LADDER, *CUBES, *NKIBENCH_ROWS)
