"""Published kernels of Tilebench on trn2: both cores of a pair run, times are the device's."""

from __future__ import annotations

from nkisim import Spec
from validation.kernels import conv3d_looped, flat_copy, gemm_two_cores, transpose_blocks
from validation.row import Row

_PAIR = ", column nki_ms: from the start of the first core to the end of the last"


def _source(operator: str, kernel: str, results: str) -> str:
    return (
        "Deep-Learning-Profiling-Tools/Tilebench,"
        f" tilebench/benchmarks/operators/{operator}/impl_nki.py at {kernel} and"
        f" results/B200/csv/{operator}_default.csv at {results}{_PAIR}"
    )


def _copy(number: str, side: int, dtype: str, published_us: float) -> Row:
    return Row(
        number=number,
        group="data movement",
        title=f"copy of {side} x {side}",
        machine="trn2",
        dtype=dtype,
        published_us=published_us,
        source=_source("matrix_copy", "5b92ec7", "0ee59fe"),
        stream="Each core has half of the elements: tiles of 128 x 1024 of them (256² leaves 128 x"
        " 256), a load and a store each.",
        kernel=flat_copy.copy,
        arguments=(Spec((side, side), dtype),),
        cores=2,
    )


COPIES = (
    _copy("V30", 256, "float16", 14.9),
    _copy("V31", 2048, "int8", 33.6),
    _copy("V32", 2048, "float16", 38.4),
    _copy("V33", 2048, "float32", 61.8),
    _copy("V34", 4096, "int8", 96.8),
    _copy("V35", 4096, "float16", 121.4),
    _copy("V36", 4096, "float32", 218.8),
    _copy("V37", 5120, "int8", 143.6),
    _copy("V38", 5120, "float32", 330.9),
)


def _relu(number: str, count: int, dtype: str, published_us: float) -> Row:
    return Row(
        number=number,
        group="data movement",
        title=f"ReLU of {count:,} elements",
        machine="trn2",
        dtype=dtype,
        published_us=published_us,
        source=_source("relu", "2f76b7d", "55f8725"),
        stream="As the copies, with a tensor_scalar in place on every tile.",
        kernel=flat_copy.relu,
        arguments=(Spec((count,), dtype),),
        cores=2,
    )


RELUS = (
    _relu("V39", 1_048_576, "float16", 20.1),
    _relu("V40", 10_485_760, "float16", 79.3),
    _relu("V41", 20_971_520, "float16", 147.3),
    _relu("V42", 20_971_520, "float32", 265.1),
)


def _gemm(number: str, depth: int, dtype: str, milliseconds: float, note: str = "") -> Row:
    narrow = dtype == "float16"
    return Row(
        number=number,
        title=f"GEMM 4096 x {depth} x 4096",
        machine="trn2",
        dtype=dtype,
        published_us=round(milliseconds * 1e3, 1),
        source=_source("matmul_fp32_fp16_fp8", "08b31ce", "0d365ba"),
        stream=f"Each core has half of the rows, by blocks of {256 if narrow else 128} x 1024 x"
        " 1024; lhs is transposed on the Tensor engine, blocks of K are summed in SBUF in fp32,"
        " rhs is loaded for every block of rows.",
        kernel=gemm_two_cores.matmul,
        arguments=(Spec((4096, depth), dtype), Spec((depth, 4096), dtype)),
        options={"rows": 2 if narrow else 1},
        cores=2,
        note=note,
    )


_ONE_RESULT = (
    "The source narrows 128 rows of results through one SBUF tile: copies and stores take turns,"
    " about 30 us for a block of rows in the model, for which the published time has no room."
)
GEMMS = (
    _gemm("V43", 1024, "float16", 0.3574, _ONE_RESULT),
    _gemm("V44", 4096, "float16", 1.1997),
    _gemm("V45", 1024, "float32", 1.1760),
    _gemm("V46", 4096, "float32", 4.5821),
    _gemm("V73", 8192, "float16", 2.1985),
    _gemm("V74", 16384, "float16", 4.3094),
    _gemm("V75", 20480, "float16", 5.3648),
    _gemm("V76", 8192, "float32", 9.0815),
    _gemm("V77", 16384, "float32", 18.3168),
    _gemm("V78", 20480, "float32", 22.7963),
)

TRANSPOSE = _source("matrix_transpose", "1160626", "127dfe7") + (
    "; 4,096 rows by benchmarks/operators/matrix_transpose/config.yaml at b3cd803"
)
_BY_DMA = (
    "Each core has half of the columns: a transposing load of 2,048 rows x 128 columns and a store"
    " of 128 rows at a time."
)


def _transpose(number: str, dtype: str, published_us: float) -> Row:
    return Row(
        number=number,
        group="data movement",
        title="transpose 4096 x 8192 by DMA",
        machine="trn2",
        dtype=dtype,
        published_us=published_us,
        source=TRANSPOSE,
        stream=_BY_DMA,
        kernel=transpose_blocks.by_dma,
        arguments=(Spec((4096, 8192), dtype),),
        cores=2,
    )


TRANSPOSES = (
    _transpose("V47", "float16", 270.0),
    _transpose("V48", "float32", 756.4),
    Row(
        number="V79",
        group="data movement",
        title="transpose 4096 x 10240 on the Tensor engine",
        machine="trn2",
        dtype="int8",
        published_us=1_106.9,
        source=TRANSPOSE,
        stream="Each core has half of the columns: 1,280 times a load of 128 x 128 in rows of"
        " 128 B, a copy to bf16, nc_transpose and a copy to int8; stores of 128 rows of 2 KiB.",
        kernel=transpose_blocks.by_tensor_engine,
        arguments=(Spec((4096, 10240), "int8"),),
        cores=2,
    ),
)


def _conv3d(number: str, side: int, dtype: str, milliseconds: float, note: str = "") -> Row:
    return Row(
        number=number,
        title=f"conv3d 3³, 64 to 64 channels, 32 x {side} x {side}, looped",
        machine="trn2",
        dtype=dtype,
        published_us=round(milliseconds * 1e3, 1),
        source=_source("3d_conv", "3d5191c", "0cb3588"),
        stream="Both cores do all of it. By output depth a first row, a loop of"
        f" {(side - 2) // 8} iterations of eight rows, one of {(side - 2) % 8} single rows and a"
        " last row (a loop of one iteration is unrolled); per iteration three loads, 27 matmuls and"
        " a copy a row, a store and two additions to offsets in SBUF.",
        kernel=conv3d_looped.conv3d,
        arguments=(Spec((1, 64, 32 * side * side), dtype), Spec((64, 64, 27), dtype)),
        options={"shape": (32, side, side)},
        cores=2,
        note=note,
    )


CONV3D = (
    _conv3d("V49", 16, "float16", 3.5752),
    _conv3d("V50", 32, "float16", 5.6210),
    _conv3d("V51", 64, "float16", 9.1938),
    _conv3d("V52", 128, "float16", 22.6861),
    _conv3d("V53", 192, "float16", 41.8286),
    _conv3d("V54", 64, "float32", 17.1727),
    _conv3d("V55", 128, "float32", 58.4693),
    _conv3d("V60", 48, "float16", 7.3467),
    _conv3d("V61", 80, "float16", 11.7787),
    _conv3d("V62", 96, "float16", 14.8393),
    _conv3d("V63", 112, "float16", 18.2941),
    _conv3d("V64", 160, "float16", 31.1205),
    _conv3d("V65", 224, "float16", 54.1111),
    _conv3d("V66", 256, "float16", 80.4951, "Published out of line: H = 272 takes 75.5 ms."),
    _conv3d("V67", 288, "float16", 83.4988),
    _conv3d("V68", 16, "float32", 5.1793),
    _conv3d("V69", 32, "float32", 9.3969),
    _conv3d("V70", 192, "float32", 122.3188),
    _conv3d("V71", 256, "float32", 220.6685),
    _conv3d("V72", 320, "float32", 326.1473),
    _conv3d("V80", 320, "float16", 100.8741),
)

TILEBENCH_ROWS = (*COPIES, *RELUS, *GEMMS, *TRANSPOSES, *CONV3D)
