"""`python -m benchmarks training`: gradients of layers on two cores, against their bars.

Useful MFU counts the multiply-adds of the convolution itself over the peak of both cores: what a
pack of groups multiplies for nothing, padding of tiles and transposes do not count. Plans of filter
gradients are within the budget of a launch; those of input gradients are unrolled, as layers are in
`benchmarks forward` and `fast`, since some would be several launches. The baseline is
`benchmarks/backward_baseline.py`. `benchmarks/training.json` keeps what each part found last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.backward_baseline import backward_floor
from benchmarks.family import Finding, as_json, last_line, table
from benchmarks.training_memory import memory
from benchmarks.training_step import recomputed, step
from nkisim.machine import CONSTANTS_VERSION, TRN2, Reading
from trnconv.cases import find
from trnconv.geometry import ConvShape, conv_shape, input_gradient_shape
from trnconv.problem.conv_problem import ConvProblem, with_plain_shape
from trnconv.problem.policy import ALWAYS_DIRECT, BF16, Policy
from trnconv.runtime.launch import time_plans
from trnconv.runtime.plans import plans_for
from trnconv.runtime.weight_gradient import gradient_problem

HELP = "gradients of layers on two cores against their bars"
STORED = Path(__file__).with_suffix(".json")
CORES = 2
DTYPE = "bfloat16"
UNROLLED = 10**9  # static instructions; no layer needs as many, so nothing is looped

# Levels of Wan 2.1's encoder at 480p, and smaller ones, as if they were halved in all directions.
STRIDED = {
    (384, (5, 120, 208)): 70.0,
    (384, (9, 60, 104)): 70.0,
    (96, (5, 480, 832)): 45.0,
    (96, (9, 120, 208)): 45.0,
}
GROUPED = {(32, (6, 30, 52)), (64, (6, 30, 52)), (32, (6, 60, 104))}
GROUPED_SHARE = 80.0  # % of group width / 128
DENSE_MFU, FAST_GAIN = 90.0, 1.35
AGAINST = ("a", "b", "c1", "h2")
AGAINST_BAR = 0.7


def _strided(channels: int, size: tuple[int, int, int]) -> ConvShape:
    return conv_shape((1, channels, *size), (channels, channels, 3, 3, 3), stride=2, padding=1)


def _filter_ns(shape: ConvShape, reading: Reading) -> float:
    plans = plans_for(gradient_problem(shape, TRN2, DTYPE), CORES)
    return time_plans(plans, reading).makespan_ns


def _input_ns(shape: ConvShape, reading: Reading, policy: Policy) -> float:
    problem = ConvProblem(input_gradient_shape(shape), TRN2, DTYPE, policy=policy, budget=UNROLLED)
    return time_plans(plans_for(with_plain_shape(problem), CORES), reading).makespan_ns


def _useful_mfu(shape: ConvShape, ns: float) -> float:
    peak = CORES * TRN2.partitions**2 * TRN2.timing.pe_ghz  # multiply-adds per ns
    return 100 * shape.macs() / (peak * ns)


def _filter_finding(name: str, shape: ConvShape, limit: float, reading: Reading) -> Finding:
    ns = _filter_ns(shape, reading)
    return Finding(
        name=f"weight gradient, {name}, 3x3x3, x {_sizes(shape)}",
        machine=TRN2.name,
        figure=_useful_mfu(shape, ns),
        unit="% MFU",
        limit=limit,
        at_least=True,
        remark=f"{ns / 1e3:,.0f} us",
    )


def _sizes(shape: ConvShape) -> str:
    return "x".join(map(str, shape.size))


def strided(reading: Reading) -> Iterator[Finding]:
    """Stride 2 along all axes."""
    for (channels, size), limit in STRIDED.items():
        shape = _strided(channels, size)
        yield _filter_finding(f"{channels} -> {channels}, stride 2", shape, limit, reading)


def grouped(reading: Reading) -> Iterator[Finding]:
    """512 channels in groups; a pack of groups multiplies all its channels with each other."""
    for width, size in sorted(GROUPED):
        w = (512, width, 3, 3, 3)
        shape = conv_shape((1, 512, *size), w, padding=1, groups=512 // width)
        limit = GROUPED_SHARE * width / TRN2.partitions
        yield _filter_finding(f"512 in groups of {width}", shape, limit, reading)


def dense(reading: Reading) -> Iterator[Finding]:
    """Layer c1: its weight gradient, and its input gradient by F(2,3)."""
    shape = find("c1").shape
    yield _filter_finding("c1, 384 -> 384", shape, DENSE_MFU, reading)
    direct = _input_ns(shape, reading, ALWAYS_DIRECT)
    fast = _input_ns(shape, reading, Policy(BF16))
    yield Finding(
        name=f"input gradient, c1, F(2,3) over direct, x {_sizes(shape)}",
        machine=TRN2.name,
        figure=direct / fast,
        unit="x faster",
        limit=FAST_GAIN,
        at_least=True,
        remark=f"{fast / 1e3:,.0f} us, direct {direct / 1e3:,.0f}",
    )


def against(reading: Reading) -> Iterator[Finding]:
    """Both gradients of true 3-D layers over the floor of conv3d_bwd's strategies."""
    for key in AGAINST:
        shape = find(key).shape
        dx, dw = _input_ns(shape, reading, Policy(BF16)), _filter_ns(shape, reading)
        floor = backward_floor(shape, replace(TRN2, timing=TRN2.timing.read(reading)))
        both = floor.on_cores(CORES)
        yield Finding(
            name=f"both gradients, {key}, {shape.c_in} -> {shape.c_out}, x {_sizes(shape)}",
            machine=TRN2.name,
            figure=(dx + dw) / both,
            unit="x conv3d_bwd",
            limit=AGAINST_BAR,
            remark=(
                f"dx {dx / 1e3:,.0f} + dw {dw / 1e3:,.0f} us; its floor"
                f" {floor.dx_ns / CORES / 1e3:,.0f} + {floor.dw_ns / CORES / 1e3:,.0f}, and"
                f" {(dx + dw) / both / CORES:.2f} x if a batch of one leaves a core idle"
            ),
        )


PARTS: dict[str, Callable[[Reading], Iterator[Finding]]] = {
    "strided": strided,
    "grouped": grouped,
    "dense": dense,
    "against": against,
    "memory": memory,
    "step": step,
    "recomputed": recomputed,
}
BARRED = ["strided", "grouped", "dense", "against"]  # the others need more packages


def heading(reading: Reading) -> str:
    """What the numbers below are."""
    return (
        "Gradients of trnconv: every figure is modelled (trn2, two cores, bf16, constants"
        f" {CONSTANTS_VERSION}, {reading.value} reading), launch not counted.\n"
        "MFU: the convolution's own multiply-adds over the peak of both cores. conv3d_bwd: the"
        " floor of benchmarks/backward_baseline.py, both cores busy."
    )


def store(part: str, findings: list[Finding]) -> None:
    """Write what a part found, beside the others."""
    text = STORED.read_text(encoding="utf-8") if STORED.exists() else "{}"
    parts = {**json.loads(text), part: as_json(findings, Reading.default)}
    STORED.write_text(json.dumps(parts, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=BARRED, help="default: all bars"
    )
    parser.add_argument(
        "--reading",
        default=Reading.default.value,
        choices=[reading.value for reading in Reading],
        help="how to take what is not published",
    )


def main(options: argparse.Namespace) -> int:
    """Model the parts asked for, print them; the exit code."""
    reading = Reading(options.reading)
    findings: list[Finding] = []
    for name in options.parts:
        start = time.perf_counter()
        of_part = list(PARTS[name](reading))
        findings += of_part
        seconds = time.perf_counter() - start
        print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)  # noqa: T201 (a command)
        if reading is Reading.default:
            store(name, of_part)
    text = [heading(reading), "", table(findings), "", last_line(findings)]
    print(*text, sep="\n")  # noqa: T201 (a command)
    return 0
