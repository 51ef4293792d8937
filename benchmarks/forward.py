"""`python -m benchmarks forward`: each benchmark layer, unrolled, against its bar and a baseline.

A layer is planned and simulated once and scheduled in the readings asked for; the scatter baseline
follows in the same readings. Times are of one core and leave out the launch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import pairs
from benchmarks.scatter import scatter_ns
from benchmarks.table import Column, aligned, microseconds, percent, yes_or_no
from nkisim.machine import CONSTANTS_VERSION, MACHINES, TRN2, Machine, Reading
from nkisim.timing import schedule
from trnconv.algorithms.search import of_algorithm
from trnconv.cases import BENCHMARK, Case
from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape
from trnconv.planner.best import only, searched_plan
from trnconv.planner.table import algorithm_named
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.runtime import trace_plan

HELP = "benchmark layers against bars and a baseline"
UNROLLED = 10**9  # static instructions; no layer needs as many, so nothing is looped

# The times to beat in us, on trn2 in the default reading. They come from a prototype of this design
# that was itself only modelled, by an earlier timing model with other constants: DMA issue and
# start-up of the array differ, so a bar may be missed or met by the model alone.
BARS_US = {
    "a": 2140.0,
    "b": 4560.0,
    "c2": 1505.0,
    "d": 490.0,
    "e": 90.0,
    "f": 352.0,
    "g": 1130.0,
    "h1": 4000.0,
    "i1": 1785.0,
    "j": 254.0,
}
# Layers of whole tiles had no prototype of their own. They are held to a dense Tensor engine.
DENSE_BARS = frozenset("c1 c3 h2 h3 i2 i3 k1 k2".split())
DENSE_MARGIN = 1.035
DENSE_ENDS_US = 15.0

READING_LIMIT = 0.02
READING_LIMIT_OF = {"e": 0.06, "f": 0.06}  # short layers: their ends weigh more
PLAIN_TRAFFIC = 1.35  # times the least
PACKED_TRAFFIC = 2.3
CLOSED_FORM_LIMIT = 0.15

_ALL = "all"
_LIBRARY_KERNEL = Path("src", "nkilib_src", "nkilib", "experimental", "conv", "conv3d.py")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What is modelled of one layer. Times are in ns, by reading."""

    case: Case
    machine: Machine
    ours_ns: dict[Reading, float]  # the default reading is always there
    baseline_ns: dict[Reading, float]
    bar_us: float | None
    estimate_ns: float
    hbm_bytes: int
    sbuf_bytes: int  # of a partition
    instructions: int
    plain: bool  # no outputs share a matmul column, no taps share partitions

    @property
    def default_ns(self) -> float:
        """Ours in the default reading."""
        return self.ours_ns[Reading.default]

    @property
    def met(self) -> bool:
        """Whether there is a bar and it is met."""
        return self.bar_us is not None and self.default_ns <= 1000 * self.bar_us

    @property
    def mfu(self) -> float:
        """The convolution's own multiply-adds over what the array could have done."""
        machine = self.machine
        peak = machine.partitions**2 * machine.timing.pe_ghz  # multiply-adds per ns
        return self.case.shape.macs() / (peak * self.default_ns)

    @property
    def traffic(self) -> float:
        """HBM bytes over the least possible."""
        return self.hbm_bytes / least_bytes(self.case.shape, ITEM_BYTES[self.case.dtype])

    @property
    def traffic_limit(self) -> float:
        """What `traffic` is held to."""
        return PLAIN_TRAFFIC if self.plain else PACKED_TRAFFIC

    @property
    def estimate_error(self) -> float:
        """The cost model against the timeline."""
        return self.estimate_ns / self.default_ns - 1

    def ratio(self, reading: Reading) -> float:
        """The baseline's time over ours."""
        return self.baseline_ns[reading] / self.ours_ns[reading]

    def shift(self, reading: Reading) -> float:
        """Ours in a reading against the default one."""
        return self.ours_ns[reading] / self.default_ns - 1

    @property
    def reading_limit(self) -> float:
        """What every `shift` is held to."""
        return READING_LIMIT_OF.get(self.case.key, READING_LIMIT)

    @property
    def readings_hold(self) -> bool:
        """Whether all readings modelled are close to the default one."""
        return all(abs(self.shift(reading)) <= self.reading_limit for reading in self.ours_ns)


def least_bytes(shape: ConvShape, item_bytes: int) -> int:
    """Input, weights and output once, and the bias in fp32."""
    x = shape.batch * shape.c_in * shape.size[0] * shape.size[1] * shape.size[2]
    weights = shape.c_out * shape.c_in * shape.taps()
    y = shape.batch * shape.c_out * shape.positions()
    return item_bytes * (x + weights + y) + ITEM_BYTES["float32"] * shape.c_out


def bar_us(case: Case, machine: Machine) -> float | None:
    """The time to beat, if the layer has one on this machine."""
    if case.key in DENSE_BARS:
        shape, side = case.shape, machine.partitions
        matmuls = -(-shape.c_in // side) * shape.taps() * -(-shape.c_out // side)
        ns = matmuls * shape.batch * shape.positions() / machine.timing.pe_ghz
        return DENSE_MARGIN * ns / 1000 + DENSE_ENDS_US
    return BARS_US.get(case.key) if machine == TRN2 else None


def model_layer(case: Case, machine: Machine, readings: Sequence[Reading]) -> Layer:
    """Plan and simulate once, schedule in every reading, and time the baseline in the same."""
    problem = ConvProblem(case.shape, machine, case.dtype, budget=UNROLLED)
    searched = searched_plan(only(problem, "direct"))
    run = trace_plan(searched.plan)
    timelines = {
        reading: schedule(run.trace, run.machine, reading, memory=run.memory)
        for reading in dict.fromkeys([Reading.default, *readings])
    }
    default = timelines[Reading.default]
    return Layer(
        case=case,
        machine=machine,
        ours_ns={reading: line.makespan_ns for reading, line in timelines.items()},
        baseline_ns={reading: scatter_ns(case.shape, machine, reading) for reading in readings},
        bar_us=bar_us(case, machine),
        estimate_ns=searched.cost.total_ns,
        hbm_bytes=default.hbm_bytes,
        sbuf_bytes=run.memory.sbuf_peak_bytes_per_partition,
        instructions=default.static_instructions,
        plain=of_algorithm(algorithm_named("direct"), searched).is_plain,
    )


def heading(machine: Machine, compared: Reading) -> str:
    """What the numbers below are."""
    return (
        f"Forward convolutions of trnconv: every time is modelled, {machine.name}, constants"
        f" {CONSTANTS_VERSION}, default reading unless a column names another.\n"
        "One core, unrolled plans, bf16, launch not counted. The baseline copies every tap into"
        f" a dense tile (benchmarks/scatter.py); {compared.value} reading.\n"
        "ratio: baseline / ours. MFU: the convolution's own multiply-adds (padding counted) over"
        " peak, not those the array executes.\n"
        "x least: HBM bytes over input + weights + bias + output once. SBUF: bytes of a partition."
        " error: cost model against the timeline."
    )


def table(layers: Sequence[Layer], compared: Reading) -> str:
    """One line for each layer; `compared` is the reading of the baseline."""
    others = [reading for reading in Reading if reading is not Reading.default]
    shown = [reading for reading in others if reading in layers[0].ours_ns]
    columns = [
        Column("layer", "<"),
        Column("name", "<"),
        Column("ours\nus"),
        Column("bar\nus"),
        Column("met", "<"),
        *(
            column
            for reading in shown
            for column in (Column(f"{reading.value}\nus"), Column("against\ndefault"))
        ),
        *(Column(text) for text in ("baseline\nus", "ratio", "MFU\n%", "HBM\nMB", "x\nleast")),
        *(Column(text) for text in ("SBUF\nbytes", "instruc-\ntions", "estimate\nus", "error")),
    ]
    return aligned(columns, [_row(layer, shown, compared) for layer in layers])


def _row(layer: Layer, shown: Sequence[Reading], compared: Reading) -> list[str]:
    met = "met" if layer.met else "missed"
    cells = [layer.case.key, layer.case.name, microseconds(layer.default_ns)]
    cells += ["-", "-"] if layer.bar_us is None else [f"{layer.bar_us:.1f}", met]
    for reading in shown:
        cells += [microseconds(layer.ours_ns[reading]), percent(layer.shift(reading))]
    return [
        *cells,
        microseconds(layer.baseline_ns[compared]),
        f"{layer.ratio(compared):.2f}",
        f"{100 * layer.mfu:.1f}",
        f"{layer.hbm_bytes / 1e6:.1f}",
        f"{layer.traffic:.2f}",
        f"{layer.sbuf_bytes}",
        f"{layer.instructions}",
        microseconds(layer.estimate_ns),
        percent(layer.estimate_error),
    ]


def checks(layers: Sequence[Layer], compared: Reading) -> str:
    """What every layer is held to besides its bar, and how many hold."""
    beside = [reading for reading in layers[0].baseline_ns if reading is not compared]
    columns = [
        Column("layer", "<"),
        Column("limit"),
        Column("readings", "<"),
        Column("plan", "<"),
        Column("limit"),
        Column("HBM", "<"),
        Column("cost\nmodel", "<"),
        *(Column(f"ratio,\n{reading.value}") for reading in beside),
    ]
    rows = [_check_row(layer, beside) for layer in layers]
    names = {2: "readings", 5: "HBM", 6: "cost model"}
    held = ", ".join(
        f"{name} {sum(row[place] == 'yes' for row in rows)}/{len(rows)}"
        for place, name in names.items()
        if rows[0][place] != "-"
    )
    return f"{aligned(columns, rows)}\nwithin their limits: {held}"


def _check_row(layer: Layer, beside: Sequence[Reading]) -> list[str]:
    several = len(layer.ours_ns) > 1
    return [
        layer.case.key,
        f"{100 * layer.reading_limit:.0f} %" if several else "-",
        yes_or_no(holds=layer.readings_hold) if several else "-",
        "plain" if layer.plain else "packed",
        f"{layer.traffic_limit:.2f}x",
        yes_or_no(holds=layer.traffic <= layer.traffic_limit),
        yes_or_no(holds=abs(layer.estimate_error) <= CLOSED_FORM_LIMIT),
        *(f"{layer.ratio(reading):.2f}" for reading in beside),
    ]


def last_line(layers: Sequence[Layer], compared: Reading) -> str:
    """Layers with a bar that meet it, and the mean ratio of all."""
    bars = [layer for layer in layers if layer.bar_us is not None]
    met = sum(layer.met for layer in bars)
    mean = geometric_mean(layer.ratio(compared) for layer in layers)
    return f"bars met {met}/{len(bars)}, geomean vs baseline {mean:.2f}"


def as_json(layers: Sequence[Layer], machine: Machine, compared: Reading) -> dict[str, Any]:
    """The same for programs."""
    return {
        "kind": "modelled",
        "machine": machine.name,
        "constants": CONSTANTS_VERSION,
        "ratio_reading": compared.value,
        "layers": [_layer_json(layer) for layer in layers],
        "summary": last_line(layers, compared),
    }


def _layer_json(layer: Layer) -> dict[str, Any]:
    return {
        "key": layer.case.key,
        "name": layer.case.name,
        "ours_ns": {reading.value: ns for reading, ns in layer.ours_ns.items()},
        "baseline_ns": {reading.value: ns for reading, ns in layer.baseline_ns.items()},
        "bar_us": layer.bar_us,
        "met": layer.met if layer.bar_us is not None else None,
        "mfu_of_useful_macs": layer.mfu,
        "hbm_bytes": layer.hbm_bytes,
        "hbm_times_least": layer.traffic,
        "sbuf_bytes_per_partition": layer.sbuf_bytes,
        "instructions": layer.instructions,
        "estimate_ns": layer.estimate_ns,
        "plain": layer.plain,
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument(
        "--layers", type=layers_named, default=BENCHMARK, metavar="A,B", help="keys or names"
    )
    parser.add_argument(
        "--reading",
        default=_ALL,
        choices=[*(reading.value for reading in Reading), _ALL],
        help="how to take what is not published; bars are always of the default reading",
    )
    parser.add_argument("--machine", default=TRN2.name, choices=sorted(MACHINES))
    parser.add_argument("--cores", type=int, default=1, choices=[1, 2], help="2: against one core")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")


def layers_named(text: str) -> tuple[Case, ...]:
    """The benchmark layers of a comma-separated list."""
    known = {case.key: case for case in BENCHMARK} | {case.name: case for case in BENCHMARK}
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        keys = ", ".join(case.key for case in BENCHMARK)
        raise argparse.ArgumentTypeError(f"no layer {', '.join(unknown)}; there are {keys}")
    return tuple(known[name] for name in names)


def main(options: argparse.Namespace) -> int:
    """Model the layers asked for, print them; the exit code."""
    if options.cores == pairs.CORES:
        return _pairs(options)
    machine = MACHINES[options.machine]
    readings = list(Reading) if options.reading == _ALL else [Reading(options.reading)]
    compared = Reading.default if options.reading == _ALL else readings[0]
    _say_what_is_not_timed()
    layers: list[Layer] = []
    for case in options.layers:
        start = time.perf_counter()
        layers.append(model_layer(case, machine, readings))
        seconds = time.perf_counter() - start
        print(f"{case.key:>3}  {case.name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    if options.json is not None:
        report = as_json(layers, machine, compared)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(heading(machine, compared), "", table(layers, compared), "", sep="\n")
    print(checks(layers, compared), "", last_line(layers, compared), sep="\n")
    return 0


def _pairs(options: argparse.Namespace) -> int:
    """Layers on two cores against one."""
    if options.json is not None or options.machine != TRN2.name:
        raise TrnconvError("--json and --machine with --cores 2: pairs are of trn2, and printed.")
    every = options.layers == BENCHMARK
    return pairs.compare(
        pairs.direct_problems(), None if every else [case.key for case in options.layers]
    )


def _say_what_is_not_timed() -> None:
    checkout = os.environ.get("NKILIB_SRC")
    if checkout and (Path(checkout) / _LIBRARY_KERNEL).is_file():
        print("nki-library's conv3d is not timed yet, only the baseline is", file=sys.stderr)
