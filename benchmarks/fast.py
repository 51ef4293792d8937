"""`python -m benchmarks fast`: fast convolutions beside their bars: layers, errors, models.

Layers are unrolled plans on one core, as those of `forward`; bars are of trn2. Models are patched
and run on the meta device (they need the extra `diffusers`); their plans are chosen by the cost
model within a graph's instructions, and timed. The scatter baseline is that of `models`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from benchmarks import pairs
from benchmarks.fast_errors import (
    F23,
    F43,
    all_errors,
    error_table,
    errors_met,
    has_bar,
    pairs_of,
)
from benchmarks.model import find_calls
from benchmarks.scatter_times import baseline_ns, stored
from benchmarks.table import Column, aligned, microseconds, percent
from nkisim.machine import CONSTANTS_VERSION, TRN2, TRN3, Machine, Reading
from nkisim.machine_workarounds import with_workarounds
from nkisim.timing import schedule
from trnconv.algorithms.algorithm import Priced
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.candidates import candidates
from trnconv.algorithms.winograd.plan import WinogradPlan, family_of
from trnconv.cases import find
from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape
from trnconv.models import find as find_model
from trnconv.planner.table import algorithm_named, priced
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import BF16, FAST
from trnconv.runtime import time_plan, trace_plan
from trnconv.runtime.pricing import Price

HELP = "fast convolutions beside their bars: layers, errors, models"
UNROLLED = 10**9  # static instructions; no layer needs as many, so nothing is looped
BARS_US: dict[str, dict[str, float | None]] = {
    F23: {
        "a": 2000.0,
        "b": 2950.0,
        "c1": 4200.0,
        "c2": 1080.0,
        "h1": 2830.0,
        "h2": 5650.0,
        "i1": 1280.0,
    },
    F43: {"b": 2300.0, "c1": 3200.0, "h2": 4300.0, "a": None, "h1": None},
    pairs_of(F23): {"c1": None, "h2": None},
    pairs_of(F43): {"c1": None},
}
PAIRED = {pairs_of(transform): transform for transform in (F23, F43)}
READING_LIMIT = 0.03  # of F(2,3), against the default reading
_MACHINES = {machine.name: machine for machine in (TRN2, TRN3)}  # those with fast algorithms


@dataclass(frozen=True)
class Model:
    """A decode: its name in the registry, its scenario in the catalogue, and bars by accuracy."""

    entry: str
    scenario: str
    bars: dict[str, float]


MODELS = {
    "wan2.1": Model("wan2.1", "720p81", {BF16: 0.62, FAST: 0.50}),
    "wan2.2": Model("wan2.2-5b", "704p121", {BF16: 0.66, FAST: 0.54}),
    "hunyuanvideo_vae": Model("hunyuanvideo", "720p129_default", {BF16: 0.60, FAST: 0.50}),
    "cogvideox_vae": Model("cogvideox", "480x720x49", {BF16: 0.70, FAST: 0.58}),
}


@dataclass(frozen=True)
class Layer:
    """A benchmark layer with one transform; times in ns by reading."""

    key: str
    plan: WinogradPlan
    times_ns: dict[Reading, float]
    estimate_ns: float
    hbm_bytes: int
    instructions: int
    bar_us: float | None

    @property
    def default_ns(self) -> float:
        """In the default reading."""
        return self.times_ns[Reading.default]

    def shift(self, reading: Reading) -> float:
        """A reading against the default one."""
        return self.times_ns[reading] / self.default_ns - 1


def best_timed(shape: ConvShape, transform: str, machine: Machine = TRN2) -> Priced:
    """The best plan of each axis by the cost model, and of those the faster on the timeline."""
    problem = ConvProblem(shape, machine, budget=UNROLLED)
    families = [family_of(transform, axis) for axis in (0, 1)]
    if transform in PAIRED:
        families = [family_of(PAIRED[transform], 1, pairs=True)]
    best_by_family = [
        search(algorithm_named("winograd"), problem, family)[:1] for family in families
    ]
    return min(
        (best for few in best_by_family for best in few),
        key=lambda plan: time_plan(plan.plan).makespan_ns,
    )


def model_layer(
    key: str, transform: str, readings: Sequence[Reading], machine: Machine = TRN2
) -> Layer:
    """Plan, simulate once and schedule in every reading."""
    best = best_timed(find(key).shape, transform, machine)
    run = trace_plan(best.plan)
    lines = {
        reading: schedule(run.trace, run.machine, reading, memory=run.memory)
        for reading in readings
    }
    default = lines[Reading.default]
    return Layer(
        key,
        best.plan,
        {reading: line.makespan_ns for reading, line in lines.items()},
        best.cost.total_ns,
        default.hbm_bytes,
        default.static_instructions,
        BARS_US[transform].get(key) if machine == TRN2 else None,
    )


def layer_table(layers: Sequence[Layer]) -> str:
    """One line for each layer and transform."""
    columns = [Column("layer", "<"), Column("transform", "<"), Column("us"), Column("bar\nus")]
    columns += [Column("met", "<"), Column("optimistic"), Column("pessimistic")]
    columns += [Column("cost\nmodel"), Column("HBM\nMB"), Column("instruc-\ntions")]
    columns += [Column("plan", "<")]
    return aligned(columns, [_layer_row(layer) for layer in layers])


def _layer_row(layer: Layer) -> list[str]:
    met = "-" if layer.bar_us is None else "met" if met_bar(layer) else "missed"
    return [
        layer.key,
        layer.plan.whole.name,
        microseconds(layer.default_ns),
        "-" if layer.bar_us is None else f"{layer.bar_us:.0f}",
        met,
        percent(layer.shift(Reading.optimistic)),
        percent(layer.shift(Reading.pessimistic)),
        percent(layer.estimate_ns / layer.default_ns - 1),
        f"{layer.hbm_bytes / 1e6:.0f}",
        f"{layer.instructions}",
        layer.plan.in_words(),
    ]


def met_bar(layer: Layer) -> bool:
    """Whether a layer is within its bar."""
    return layer.bar_us is not None and layer.default_ns <= 1000 * layer.bar_us


def workarounds(layers: Sequence[Layer]) -> str:
    """What each assumption is worth: the time of F(2,3) and F(4,3) without it."""
    columns = [Column("layer", "<"), Column("transform", "<"), Column("as read")]
    columns += [Column("16-bit pairs\nat half rate"), Column("no fast\ncopies")]
    columns += [Column("whole sums\nonly"), Column("column tiles\nin parallel")]
    return aligned(columns, [_workaround_row(layer) for layer in layers])


def _workaround_row(layer: Layer) -> list[str]:
    timing = TRN2.timing
    slow_pairs = replace(TRN2, timing=replace(timing, vector_pair_16bit_free=False))
    slow_copies = replace(TRN2, timing=replace(timing, vector_wide_16bit=False))
    whole = "-"
    if layer.plan.m == 2:
        whole_sums = _whole_sums(layer.plan)
        whole = microseconds(time_plan(whole_sums).makespan_ns) if whole_sums else "no plan"
    return [
        layer.key,
        layer.plan.whole.name,
        microseconds(layer.default_ns),
        microseconds(time_plan(layer.plan, machine=slow_pairs).makespan_ns),
        microseconds(time_plan(layer.plan, machine=slow_copies).makespan_ns),
        whole,
        microseconds(
            time_plan(layer.plan, machine=with_workarounds(TRN2, "column-tiles")).makespan_ns
        ),
    ]


@dataclass(frozen=True)
class ModelRun:
    """All convolutions of a decode of the patched model: seconds, and static instructions."""

    name: str
    accuracy: str
    ours_s: float
    closed_s: float  # by the cost model, which chose the plans
    baseline_s: float
    instructions: int
    calls: int
    fast_calls: int
    fast_share: float  # of the time
    bar: float

    @property
    def ratio(self) -> float:
        """Ours over the baseline's."""
        return self.ours_s / self.baseline_s


def _whole_sums(plan: WinogradPlan) -> WinogradPlan | None:
    """The fastest plan of the same transform and axis that reads sums only when they are whole."""
    problem = ConvProblem(plan.shape, TRN2, plan.dtype)
    found = candidates(problem, plan.transform, plan.axis, midgroup=False)
    return min(found, key=lambda each: priced(each).cost.weighed_ns, default=None)


def run_model(name: str) -> list[ModelRun]:
    """Every call with the best plan its policy allows, within a graph's instructions.

    The model is patched with all rewrites: upsampling is folded into convolutions, padding and
    caches are theirs. The baseline gets the convolutions that the model calls.
    """
    from trnconv.pytorch.estimate import (  # noqa: PLC0415 (torch: for models only)
        estimate,
        run_entry_on_meta,
    )

    model = MODELS[name]
    entry = find_model(model.entry)
    run = run_entry_on_meta(entry, entry.production, "decode")
    known = stored()
    baseline = sum(
        call.calls * baseline_ns(call.shape(), known)
        for call in find_calls(name, model.scenario, "decode")
        if call.dense
    )
    runs = []
    for accuracy, bar in model.bars.items():
        estimated = estimate(run, TRN2, accuracy=accuracy, cores=1)
        timed = [(layer, layer.calls * scheduled_ns(layer.price)) for layer in estimated.layers]
        fast = [(layer, ns) for layer, ns in timed if layer.price.plan.plan.algorithm == "winograd"]
        total = sum(ns for _, ns in timed)
        runs.append(
            ModelRun(
                name,
                accuracy,
                total / 1e9,
                estimated.seconds,
                baseline / 1e9,
                estimated.instructions,
                estimated.calls,
                sum(layer.calls for layer, _ in fast),
                sum(ns for _, ns in fast) / total,
                bar,
            )
        )
        print(model_table(runs[-1:]), file=sys.stderr, flush=True)
    return runs


@lru_cache(maxsize=1000)
def scheduled_ns(price: Price) -> float:
    """A call on the timeline. Of several launches the longest stands for all.

    Direct convolutions in several launches keep their cost model.
    """
    plan, closed = price.plan.plan, price.plan.cost.total_ns
    if price.launches > 1 and plan.algorithm == "direct":
        return price.ns
    return price.ns * time_plan(plan).makespan_ns / closed


def model_table(runs: Sequence[ModelRun]) -> str:
    """One line for each model and policy."""
    columns = [Column("model", "<"), Column("accuracy", "<"), Column("ours\ns")]
    columns += [Column("baseline\ns"), Column("ratio"), Column("bar"), Column("met", "<")]
    columns += [Column("cost\nmodel"), Column("calls"), Column("fast\ncalls")]
    columns += [Column("of the\ntime"), Column("instruc-\ntions")]
    rows = [
        [
            run.name,
            run.accuracy,
            f"{run.ours_s:.2f}",
            f"{run.baseline_s:.2f}",
            f"{run.ratio:.3f}",
            f"{run.bar}",
            "met" if run.ratio <= run.bar else "missed",
            percent(run.closed_s / run.ours_s - 1),
            f"{run.calls}",
            f"{run.fast_calls}",
            f"{100 * run.fast_share:.0f} %",
            f"{run.instructions}",
        ]
        for run in runs
    ]
    return aligned(columns, rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--layers", default="all", help="all, none, or keys: a,b")
    parser.add_argument("--errors", default="all", choices=["all", "none"])
    parser.add_argument("--models", default="all", help="all, none, or names: wan2.1,wan2.2")
    parser.add_argument("--machine", default=TRN2.name, choices=list(_MACHINES), help="of layers")
    parser.add_argument("--workarounds", action="store_true", help="also without each assumption")
    parser.add_argument("--cores", type=int, default=1, choices=[1, 2], help="2: against one core")


def main(options: argparse.Namespace) -> int:
    """Model what is asked for and print it; the exit code."""
    if options.cores == pairs.CORES:
        return _pairs(options)
    machine = _MACHINES[options.machine]
    if machine != TRN2 and (options.workarounds or options.models != "none"):
        raise TrnconvError(
            f"--machine {machine.name} with workarounds or models: they are of {TRN2.name}."
            " Drop --workarounds and ask for --models none."
        )
    met: list[bool] = []
    print(
        f"Fast convolutions of trnconv: every time is modelled, {machine.name}, constants"
        f" {CONSTANTS_VERSION}, default reading; one core, bf16, launch not counted."
    )
    if options.layers != "none":
        keys = None if options.layers == "all" else options.layers.split(",")
        layers = [
            model_layer(key, transform, list(Reading), machine)
            for transform, bars in BARS_US.items()
            for key in bars
            if keys is None or key in keys
        ]
        print("", layer_table(layers), sep="\n")
        met += [met_bar(layer) for layer in layers if layer.bar_us is not None]
        steady = [abs(layer.shift(Reading.pessimistic)) <= READING_LIMIT for layer in layers]
        counted = [ok for ok, layer in zip(steady, layers, strict=True) if layer.plan.m == 2]
        print(f"F(2,3) in the pessimistic reading within 3 %: {sum(counted)}/{len(counted)}")
        if options.workarounds:
            print("", workarounds(layers), sep="\n")
    if options.errors != "none":
        errors = all_errors()
        print("", error_table(errors), sep="\n")
        met += [errors_met(error) for error in errors if has_bar(error)]
    if options.models != "none":
        names = list(MODELS) if options.models == "all" else options.models.split(",")
        runs = [run for name in names for run in run_model(name)]
        print("", model_table(runs), sep="\n")
        met += [run.ratio <= run.bar for run in runs]
    print("", f"bars met {sum(met)}/{len(met)}", sep="\n")
    return 0


def _pairs(options: argparse.Namespace) -> int:
    """Layers and models on two cores; errors and workarounds are those of one."""
    if options.workarounds or options.machine != TRN2.name:
        raise TrnconvError(
            "--workarounds and --machine with --cores 2: workarounds are of one core, pairs of"
            " trn2. Drop one of the two."
        )
    keys = {"all": None, "none": []}.get(options.layers, options.layers.split(","))
    names = {"all": list(MODELS), "none": []}.get(options.models, options.models.split(","))
    models = [(name, MODELS[name].entry, MODELS[name].scenario) for name in names]
    return pairs.compare(pairs.fast_problems(), keys, models)
