"""`python -m benchmarks family`: depthwise, grouped, transposed, fused epilogues and gradients.

Every line is held against its bar, or has none and is there to compare with. Times are of one core
and leave out the launch. Columns are those that stream through the PE array, counted from the
instructions of the unrolled plan.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import nkisim
from benchmarks.table import Column, aligned
from nkisim.machine import CONSTANTS_VERSION, TRN1, TRN2, Machine, Reading
from nkisim.timing import Timeline, schedule
from nkisim.trace import Trace
from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.depthwise.plan import valid_outputs
from trnconv.geometry import ConvShape, TransposedShape, conv_shape, input_gradient_shape
from trnconv.planner.best import only, searched_plan
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import BEFORE, ITEM_BYTES, PLAIN_EPILOGUE, Epilogue
from trnconv.runtime import time_plan, trace_plan
from trnconv.runtime.depthwise import plan_depthwise
from trnconv.runtime.weight_gradient import time_weight_gradient
from validation.convolution_rows import CONV1D
from validation.row import Row

HELP = "depthwise, grouped, transposed, fused and gradient kernels against their bars"
UNROLLED = 10**9  # static instructions; nothing here needs as many, so nothing is looped

CONV1D_BAR_US = 300.0  # the DMA bound of this problem on trn1 is 247
DEPTHWISE_MARGIN = 1.25  # times the busiest engine's least
TRANSPOSED_MARGIN = 1.15  # columns, times those of the taps that meet an input
GROUPED_MARGIN = 1.25  # columns, times those of full packs of channels
WEIGHT_GRADIENT_MFU = 0.75
INPUT_GRADIENT_MFU = 0.90

SIGNAL = conv_shape((8, 512, 2048), (512, 1, 3), padding=1, groups=512)
VIDEO = conv_shape((1, 512, 6, 30, 52), (512, 1, 3, 3, 3), padding=1, groups=512)
GROUPED = tuple(
    conv_shape((1, 512, 6, 30, 52), (512, channels, 3, 3, 3), padding=1, groups=512 // channels)
    for channels in (32, 64)
)
DENSE = conv_shape((1, 384, 6, 60, 104), (384, 384, 3, 3, 3), padding=(0, 1, 1))
_PUBLISHED = {"27": "vendor's kernel, its stream", "31": "Autocomp's last step, its stream"}
_BF16, _FP32 = "bfloat16", "float32"


def _upsampled(channels: tuple[int, int], kernel: int, pad: int, more: int) -> TransposedShape:
    """Twice the size in all directions; `more` is torch's output_padding."""
    size = (4, 16, 16)
    depth, height, width = (2 * (n - 1) + kernel - 2 * pad + more for n in size)
    return TransposedShape(
        batch=1,
        c_in=channels[0],
        c_out=channels[1],
        size=size,
        out=(depth, height, width),
        kernel=(kernel, kernel, kernel),
        stride=(2, 2, 2),
        pad_before=(pad, pad, pad),
    )


TRANSPOSED = {
    "128 -> 128, kernel 4, padding 1": _upsampled((128, 128), 4, 1, 0),
    "128 -> 128, kernel 2": _upsampled((128, 128), 2, 0, 0),
    "96 -> 48, kernel 3, padding 1, output padding 1": _upsampled((96, 48), 3, 1, 1),
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A modelled figure; `limit` is its bar, if any: at most that, or at least."""

    name: str
    machine: str
    figure: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    remark: str = ""

    @property
    def met(self) -> bool:
        """Whether there is a bar and it is met."""
        if self.limit is None:
            return False
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit


def signals(reading: Reading) -> Iterator[Finding]:
    """Depthwise conv1d of the Autocomp post, and what it was compared with."""
    name = "depthwise conv1d 8 x 512 x 2048, 3 taps"
    for machine, dtype in ((TRN1, _FP32), (TRN1, _BF16), (TRN2, _FP32), (TRN2, _BF16)):
        line, engine = _depthwise(SIGNAL, machine, dtype, reading)
        barred = (machine, dtype) == (TRN1, _FP32)
        yield Finding(
            name=f"{name}, {dtype}",
            machine=machine.name,
            figure=line.makespan_ns / 1e3,
            unit="us",
            limit=CONV1D_BAR_US if barred else None,
            remark=f"{engine}, bound by {line.bound}",
        )
    for row in CONV1D:
        if row.number in _PUBLISHED:
            yield _published(row, reading)


def _published(row: Row, reading: Reading) -> Finding:
    """A published kernel's stream, timed by the same model."""
    run = nkisim.run(row.kernel, *row.arguments, machine=row.machine, values=False, **row.options)
    line = schedule(run.trace, run.machine, reading, memory=run.memory)
    return Finding(
        name=f"  {_PUBLISHED[row.number]}, {row.dtype}",
        machine=row.machine,
        figure=line.makespan_ns / 1e3,
        unit="us",
        remark=f"published {row.published_us:,.0f} us",
    )


def _depthwise(
    shape: ConvShape, machine: Machine, dtype: str, reading: Reading
) -> tuple[Timeline, str]:
    plan = plan_depthwise(shape, machine.name, dtype)
    engine = "Tensor engine" if plan.algorithm == "direct" else "Vector, Scalar, GpSimd"
    return time_plan(plan, reading), engine


def videos(reading: Reading) -> Iterator[Finding]:
    """Depthwise 3 x 3 x 3: with 27 taps the Tensor engine is fastest, and is the bound."""
    line, engine = _depthwise(VIDEO, TRN2, _BF16, reading)
    deep, high, wide = map(range, VIDEO.kernel)
    columns = sum(valid_outputs(VIDEO, tap).elems for tap in product(deep, high, wide))
    tiles = -(-VIDEO.c_in // TRN2.partitions)
    least = tiles * columns / TRN2.timing.pe_ghz
    yield Finding(
        name="depthwise 3x3x3, 512 channels, 6x30x52, bfloat16",
        machine=TRN2.name,
        figure=line.makespan_ns / 1e3,
        unit="us",
        limit=DEPTHWISE_MARGIN * least / 1e3,
        remark=f"{engine}; diagonal matrices take at least {least / 1e3:.1f} us",
    )


def transposed(reading: Reading) -> Iterator[Finding]:
    """Columns of transposed convolutions, over those that phases without any waste would have."""
    for name, shape in TRANSPOSED.items():
        line, columns = _unrolled(shape, reading)
        yield Finding(
            name=f"transposed 3-D, stride 2: {name}",
            machine=TRN2.name,
            figure=columns / phase_columns(shape, TRN2.partitions),
            unit="x columns",
            limit=TRANSPOSED_MARGIN,
            remark=f"{line.makespan_ns / 1e3:.1f} us",
        )


def phase_columns(shape: TransposedShape, side: int) -> int:
    """Taps of a phase times its outputs, for all phases and tiles of channels."""
    columns = 0
    for phase in product(*map(range, shape.stride)):
        taps = outputs = 1
        for axis in range(3):
            step, pad = shape.stride[axis], shape.pad_before[axis]
            met = (shape.dilation[axis] * tap for tap in range(shape.kernel[axis]))
            taps *= sum((phase[axis] + pad - at) % step == 0 for at in met)
            outputs *= len(range(phase[axis], shape.out[axis], step))
        columns += taps * outputs
    return shape.batch * columns * -(-shape.c_in // side) * -(-shape.c_out // side)


def grouped(reading: Reading) -> Iterator[Finding]:
    """Columns of grouped convolutions, over those of groups packed into full tiles."""
    for shape in GROUPED:
        line, columns = _unrolled(shape, reading)
        packs = -(-shape.c_in // TRN2.partitions)
        least = shape.batch * shape.taps() * shape.positions() * packs
        yield Finding(
            name=f"512 channels in {shape.groups} groups, 3x3x3, 6x30x52",
            machine=TRN2.name,
            figure=columns / least,
            unit="x columns",
            limit=GROUPED_MARGIN,
            remark=f"{line.makespan_ns / 1e3:.1f} us",
        )


def _unrolled(shape: ConvShape | TransposedShape, reading: Reading) -> tuple[Timeline, int]:
    """The timeline of the planner's choice on trn2 in bf16, and its matmul columns."""
    run = trace_plan(_direct(shape))
    line = schedule(run.trace, run.machine, reading, memory=run.memory)
    return line, matmul_columns(run.trace)


def _direct(shape: ConvShape | TransposedShape, epilogue: Epilogue = PLAIN_EPILOGUE) -> Plan:
    """The fastest direct plan, however long."""
    problem = ConvProblem(shape, TRN2, _BF16, epilogue=epilogue, budget=UNROLLED)
    return searched_plan(only(problem, "direct")).plan


def matmul_columns(trace: Trace) -> int:
    """Columns of the moving operands of all matmuls."""
    matmuls = (instruction for instruction in trace.instructions() if instruction.op == "nc_matmul")
    return sum(matmul.reads[1].layout.elems for matmul in matmuls)


def fused(reading: Reading) -> Iterator[Finding]:
    """What an activation after a residual costs in HBM traffic: the residual, read once."""
    plan = _direct(DENSE, Epilogue("silu", BEFORE))
    with_end = time_plan(plan, reading)
    without = time_plan(replace(plan, epilogue=PLAIN_EPILOGUE), reading)
    residual = ITEM_BYTES[_BF16] * DENSE.batch * DENSE.c_out * DENSE.positions()
    yield Finding(
        name="silu(convolution + residual), 384 -> 384: added traffic",
        machine=TRN2.name,
        figure=(with_end.hbm_bytes - without.hbm_bytes) / residual,
        unit="x residual",
        limit=1.0,
        remark=f"{with_end.makespan_ns / 1e3:.1f} us with, {without.makespan_ns / 1e3:.1f} without",
    )


def gradients(reading: Reading) -> Iterator[Finding]:
    """Both gradients of a dense layer; MFU counts the multiply-adds of the convolution itself."""
    backward = input_gradient_shape(DENSE)
    lines = {
        "weight": (time_weight_gradient(DENSE, TRN2, reading, _BF16), WEIGHT_GRADIENT_MFU),
        "input": (time_plan(_direct(backward), reading), INPUT_GRADIENT_MFU),
    }
    for name, (line, limit) in lines.items():
        peak = TRN2.partitions**2 * TRN2.timing.pe_ghz  # multiply-adds per ns
        yield Finding(
            name=f"{name} gradient, 384 -> 384, 3x3x3, 6x60x104",
            machine=TRN2.name,
            figure=100 * DENSE.macs() / (peak * line.makespan_ns),
            unit="% MFU",
            limit=100 * limit,
            at_least=True,
            remark=f"{line.makespan_ns / 1e3:.1f} us",
        )


PARTS: dict[str, Callable[[Reading], Iterator[Finding]]] = {
    "signals": signals,
    "videos": videos,
    "transposed": transposed,
    "grouped": grouped,
    "fused": fused,
    "gradients": gradients,
}


def heading(reading: Reading) -> str:
    """What the numbers below are."""
    return (
        "The convolution family of trnconv: every figure is modelled, constants"
        f" {CONSTANTS_VERSION}, {reading.value} reading. One core, launch not counted, bf16 unless"
        " said otherwise.\n"
        "Columns: streamed through the PE array, over the least (see benchmarks/family.py). MFU:"
        " the convolution's own multiply-adds over peak."
    )


def table(findings: Sequence[Finding]) -> str:
    """One line for each finding."""
    columns = [
        Column("what", "<"),
        Column("machine", "<"),
        Column("modelled"),
        Column("unit", "<"),
        Column("bar"),
        Column("met", "<"),
        Column("remark", "<"),
    ]
    return aligned(columns, [_row(finding) for finding in findings])


def _row(finding: Finding) -> list[str]:
    bar, met = "-", "-"
    if finding.limit is not None:
        bar = f"{'>=' if finding.at_least else '<='} {finding.limit:.2f}"
        met = "met" if finding.met else "missed"
    return [
        finding.name,
        finding.machine,
        f"{finding.figure:.2f}",
        finding.unit,
        bar,
        met,
        finding.remark,
    ]


def last_line(findings: Sequence[Finding]) -> str:
    """How many bars are met."""
    barred = [finding for finding in findings if finding.limit is not None]
    return f"bars met {sum(finding.met for finding in barred)}/{len(barred)}"


def as_json(findings: Sequence[Finding], reading: Reading) -> dict[str, Any]:
    """The same for programs."""
    return {
        "kind": "modelled",
        "constants": CONSTANTS_VERSION,
        "reading": reading.value,
        "findings": [
            {
                "name": finding.name.strip(),
                "machine": finding.machine,
                "figure": finding.figure,
                "unit": finding.unit,
                "limit": finding.limit,
                "at_least": finding.at_least,
                "met": None if finding.limit is None else finding.met,
            }
            for finding in findings
        ],
        "summary": last_line(findings),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument(
        "--parts", type=_parts, default=tuple(PARTS), metavar="A,B", help=", ".join(PARTS)
    )
    parser.add_argument(
        "--reading",
        default=Reading.default.value,
        choices=[reading.value for reading in Reading],
        help="how to take what is not published",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}"
        )
    return names


def main(options: argparse.Namespace) -> int:
    """Model the parts asked for, print them; the exit code."""
    reading = Reading(options.reading)
    findings: list[Finding] = []
    for name in options.parts:
        start = time.perf_counter()
        findings += PARTS[name](reading)
        seconds = time.perf_counter() - start
        print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)  # noqa: T201 (a command)
    if options.json is not None:
        report = as_json(findings, reading)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    report_text = [heading(reading), "", table(findings), "", last_line(findings)]
    print(*report_text, sep="\n")  # noqa: T201 (a command)
    return 0
