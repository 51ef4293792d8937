"""Published kernels of NKIBench, fp32, on trn1.

The sources leave engines and, where SBUF is too small, the traffic to the compiler; the profiles
that come with them count operations and bytes, and the streams here agree with those counts.
"""

from __future__ import annotations

from nkisim import Spec
from validation.gemm_rows import NKIBENCH
from validation.kernels import (
    attention,
    lora,
    mamba_spill,
    norm_matmul,
    rope,
    softmax_matmul,
    swiglu,
)
from validation.row import Row


def _spec(*shape: int) -> Spec:
    return Spec(shape, "float32")


NORMS = (
    Row(
        number="41a",
        title="x w + z, normalised, 4096 x 2048 x 2048",
        machine="trn1",
        dtype="float32",
        published_us=2_667,
        source=NKIBENCH,
        stream="32 times, for 512 columns after the other: 16 transposes by identity in groups of"
        " eight, then their matmuls; w stays in SBUF but for two of 64 tiles, as published traffic"
        " says.",
        kernel=norm_matmul.matmul_add_rmsnorm,
        arguments=(_spec(4096, 2048), _spec(2048, 2048), _spec(4096, 2048), _spec(2048)),
        options={"epsilon": 1e-5},
    ),
    Row(
        number="41b",
        title="normalised x, times w, 4096 x 1024 x 2048",
        machine="trn1",
        dtype="float32",
        published_us=1_056,
        source=NKIBENCH,
        stream="Blocks of 1,024 rows: loaded twice, normalised and transposed once; 1,024 matmuls"
        " in all; w is loaded for every block.",
        kernel=norm_matmul.rmsnorm_matmul,
        arguments=(_spec(4096, 1024), _spec(1024, 2048)),
    ),
    Row(
        number="41c",
        title="normalised x + z, times w, 4096 x 1024 x 2048",
        machine="trn1",
        dtype="float32",
        published_us=1_222,
        source=NKIBENCH,
        stream="32 times a sum, a norm, and for 512 columns after the other eight transposes by"
        " identity and their matmuls; w stays in SBUF, as published traffic says.",
        kernel=norm_matmul.add_rmsnorm_matmul,
        arguments=(_spec(4096, 1024), _spec(1024, 2048), _spec(4096, 1024), _spec(1024)),
        options={"epsilon": 1e-5},
    ),
)

PRODUCTS = (
    Row(
        number="42a",
        title="SwiGLU 4096 x 1024, 3072 wide",
        machine="trn1",
        dtype="float32",
        published_us=4_222,
        source=NKIBENCH,
        stream="256 transposes, 3,072 matmuls for gate and up, saved to HBM, 1,536 for down; x"
        " transposed is saved and read back twice, as published traffic says.",
        kernel=swiglu.swiglu,
        arguments=(_spec(4096, 1024), _spec(1024, 3072), _spec(1024, 3072), _spec(3072, 1024)),
    ),
    Row(
        number="42b",
        title="x w + x a b, 4096 x 5120 x 12288, rank 128",
        machine="trn1",
        dtype="float32",
        published_us=30_170,
        source=NKIBENCH,
        stream="31,808 matmuls and 5,632 transposes; x a b, x transposed and the sums of each"
        " quarter of K pass through HBM, as published traffic says.",
        kernel=lora.lora,
        arguments=(_spec(4096, 5120), _spec(5120, 12288), _spec(5120, 128), _spec(128, 12288)),
    ),
    Row(
        number="42c",
        title="attention of 16 heads on 8, 4096 x 128",
        machine="trn1",
        dtype="float32",
        published_us=19_110,
        source=NKIBENCH,
        stream="All scores to HBM (4,096 matmuls of 512 columns), then exp, sum, product, 16,384"
        " transposes and as many matmuls of 128 columns.",
        kernel=attention.attention,
        arguments=(_spec(4096, 16, 128), _spec(4096, 8, 128), _spec(4096, 8, 128)),
    ),
)

OTHERS = (
    Row(
        number="45b",
        title="RoPE 128 x 262,144",
        machine="trn1",
        dtype="float32",
        published_us=4_333,
        source=NKIBENCH,
        stream="512 times three loads in rows of 2 KiB, a copy on the Scalar engine, six"
        " tensor_tensor of 64 x 512, a store.",
        kernel=rope.rope,
        arguments=(_spec(128, 262_144), _spec(64, 262_144), _spec(64, 262_144)),
    ),
    Row(
        number="45c",
        title="softmax of 16 products 4096 x 64 x 4096",
        machine="trn1",
        dtype="float32",
        published_us=12_000,
        source=NKIBENCH,
        stream="Per batch all scores (256 matmuls of K = 64), of which a quarter stays in SBUF and"
        " the rest goes through HBM, then exp, sum, product and a store.",
        kernel=softmax_matmul.softmax_matmul,
        arguments=(_spec(16, 4096, 64), _spec(16, 64, 4096)),
    ),
    Row(
        number="45d",
        title="mamba, 256 channels, 7,168 steps",
        machine="trn1",
        dtype="float32",
        published_us=2_889,
        source=NKIBENCH,
        stream="32 bodies of an exponential, two rows spread and copied, two products, the scan and"
        " a sum; delta is loaded for each, u once, and one of the two sums goes through HBM: the"
        " published bytes, exactly.",
        kernel=mamba_spill.two_tiles,
        arguments=(_spec(256, 7168), _spec(256, 7168), _spec(256, 16), *(_spec(16, 7168),) * 2),
    ),
)

NKIBENCH_ROWS = (*NORMS, *PRODUCTS, *OTHERS)
