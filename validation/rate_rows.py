"""Published rates of instructions: what one more of them takes, operands resident, on trn1."""

from __future__ import annotations

from nkisim import Spec
from validation.kernels import tensor_rates, vector_rates
from validation.row import Row

RATES = (
    "foxl-ai/kiln at f5a7faf, tools/probe_engine_rates.py and docs/neuron-notes.md, “Engine rates"
    " on trn1”"
)
FURTHER = 256  # instructions: the source counts from 16 to 272, here it is from 256 to 512


def _matmul(
    number: str,
    title: str,
    published_ns: float,
    operands: tuple[Spec, Spec],
    stream: str,
) -> Row:
    """A row of tensor_rates.matmuls: stationary [tiles, K, M] and moving [K, N]."""
    return Row(
        number=number,
        group="instruction rates",
        title=title,
        machine="trn1",
        dtype=operands[0].dtype,
        published_us=published_ns / 1e3,
        source=RATES,
        includes_launch=False,
        stream=stream,
        kernel=tensor_rates.matmuls,
        arguments=operands,
        repeats=FURTHER,
    )


def _pair(
    columns: int, dtype: str = "bfloat16", *, rows: int = 128, width: int = 128
) -> tuple[Spec, Spec]:
    """One stationary tile [rows, width] and a moving one [rows, columns], of one type."""
    return Spec((1, rows, width), dtype), Spec((rows, columns), dtype)


def _turning(tiles: int, dtype: str) -> tuple[Spec, Spec]:
    """Stationary tiles that take turns, and a moving identity."""
    return Spec((tiles, 128, 128), dtype), Spec((128, 128), dtype)


SUMS = "Matmuls in four accumulations that take turns, one stationary tile."
MATMULS = (
    _matmul("V1", "matmul 128 x 128, 512 columns", 219, _pair(512), SUMS),
    _matmul("V2", "matmul 128 x 128, 256 columns", 175, _pair(256), SUMS),
    _matmul("V3", "matmul 128 x 128, 128 columns", 48, _pair(128), SUMS),
    _matmul("V4", "matmul 128 x 128, 512 columns", 1_150, _pair(512, "float32"), SUMS),
    _matmul("V5", "matmul 128 x 128, 128 columns", 192, _pair(128, "float32"), SUMS),
    _matmul(
        "V6",
        "matmul, moving fp8, 512 columns",
        263,
        (Spec((1, 128, 128), "bfloat16"), Spec((128, 512), "float8_e4m3")),
        SUMS,
    ),
    _matmul("V7", "matmul 128 x 8, 512 columns", 421, _pair(512, width=8), SUMS),
    _matmul("V8", "matmul 128 x 8, 128 columns", 68, _pair(128, width=8), SUMS),
    _matmul("V9", "matmul 64 x 128, 512 columns", 271, _pair(512, rows=64), SUMS),
    _matmul("V10", "matmul 1 x 128, 512 columns", 373, _pair(512, rows=1), SUMS),
    _matmul(
        "V11",
        "transpose 128 x 128 by identity",
        40,
        _turning(8, "bfloat16"),
        "As row V3 with eight stationary tiles that take turns and an identity that moves.",
    ),
    Row(
        number="V12",
        group="instruction rates",
        title="nc_transpose 128 x 128",
        machine="trn1",
        dtype="float32",
        published_us=0.208,
        source=RATES,
        includes_launch=False,
        stream="nc_transpose on the Tensor engine of four tiles that take turns.",
        kernel=tensor_rates.transposes,
        arguments=(Spec((4, 128, 128), "float32"),),
        repeats=FURTHER,
    ),
    _matmul(
        "V13",
        "transpose 128 x 128 by identity",
        232,
        _turning(4, "float32"),
        "As row V11 in fp32 with four stationary tiles.",
    ),
)


def _step(number: str, title: str, published_ns: float, step: tuple[str, int], stream: str) -> Row:
    """A row of vector_rates.elementwise: a step's name and the width of what it writes."""
    return Row(
        number=number,
        group="instruction rates",
        title=title,
        machine="trn1",
        dtype="float32",
        published_us=published_ns / 1e3,
        source=RATES,
        includes_launch=False,
        stream=stream,
        kernel=vector_rates.elementwise,
        arguments=(Spec((128, 2048), "float32"),),
        options={"step": step[0], "width": step[1]},
        repeats=FURTHER,
    )


STEPS = (
    _step(
        "V14",
        "eviction 128 x 512, Vector",
        447,
        ("evict vector", 512),
        "tensor_copy from one PSUM tile to bf16 tiles that take turns.",
    ),
    _step(
        "V15",
        "eviction 128 x 512, Scalar",
        383,
        ("evict scalar", 512),
        "An activation with nl.copy from one PSUM tile to bf16 tiles that take turns.",
    ),
    _step(
        "V16",
        "tensor_tensor 128 x 512, both in SBUF",
        1_039,
        ("multiply sbuf", 512),
        "Products of two SBUF tiles.",
    ),
    _step(
        "V17",
        "tensor_tensor 128 x 512, one in PSUM",
        494,
        ("multiply psum", 512),
        "Products of a PSUM and an SBUF tile.",
    ),
    _step(
        "V18",
        "tensor_scalar 128 x 2048",
        1_894,
        ("scale", 2048),
        "Products of an SBUF tile and a number.",
    ),
    _step("V19", "max 128 x 2048", 1_908, ("maximum", 1), "tensor_reduce of an SBUF tile."),
    _step(
        "V20",
        "add-reduce 128 x 128",
        147,
        ("row sum", 1),
        "tensor_reduce of the next of eight SBUF slices.",
    ),
    _step(
        "V21",
        "exp with row sum 128 x 512, from PSUM",
        466,
        ("exp psum", 512),
        "activation_reduce with a bias tile, from PSUM to bf16 tiles that take turns.",
    ),
    _step(
        "V22",
        "exp with row sum 128 x 2048",
        1_574,
        ("exp sbuf", 2048),
        "As row V21 from SBUF.",
    ),
    _step(
        "V23",
        "copy 128 x 128, Scalar",
        106,
        ("copy scalar", 128),
        "An activation with nl.copy from SBUF to SBUF.",
    ),
    _step(
        "V24",
        "copy 128 x 128 to bf16, Vector",
        165,
        ("cast vector", 128),
        "tensor_copy of the next of eight SBUF slices to bf16.",
    ),
)

RATE_ROWS = (*MATMULS, *STEPS)
