"""`--cores 2` of `forward` and `fast`: both cores of a launch against one, in the same run.

Layers are unrolled plans on the timeline: one core alone, then both on one clock and one HBM.
Models are priced by the cost model within a graph's instructions. Their baseline on a pair takes
half of its time on one core, as if its rows or channels were halved and nothing was lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.model import find_calls
from benchmarks.scatter_times import baseline_ns, stored
from benchmarks.table import Column, aligned, microseconds
from nkisim.machine import CONSTANTS_VERSION, TRN2
from trnconv.algorithms.algorithm import Plan
from trnconv.cases import find
from trnconv.geometry import conv_shape, input_gradient_shape
from trnconv.models import find as find_model
from trnconv.planner.best import only, searched_plan
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.policy import BF16, FAST, Policy
from trnconv.runtime.describe import describe_split
from trnconv.runtime.launch import time_plan, time_plans

Scenario = tuple[str, str, str]  # of a decode: bars, entry of the registry, catalogue
UNROLLED = 10**9  # static instructions; no layer needs as many, so nothing is looped
CORES = 2  # of a launch
DIRECT_LAYERS = ("a", "b", "c1", "h1", "i1", "k1")
FAST_LAYERS = ("a", "b", "c1", "h1", "h2")
DIRECT_BAR, FAST_BAR, POINTWISE_BAR, OTHERS_BAR = 1.95, 1.93, 1.75, 1.8  # times one core
# Ours over the baseline, both on a pair.
MODEL_BARS = {
    "wan2.1": {BF16: 0.54, FAST: 0.50},
    "wan2.2": {BF16: 0.66, FAST: 0.63},
    "hunyuanvideo_vae": {BF16: 0.55, FAST: 0.50},
    "cogvideox_vae": {BF16: 0.46, FAST: 0.40},
}


@dataclass(frozen=True)
class Asked:
    """A problem, what it is called, and how many times faster a pair is to be."""

    key: str
    name: str
    problem: ConvProblem
    bar: float


@dataclass(frozen=True)
class Pair:
    """One problem on one core and on two; times in ns, modelled."""

    asked: Asked
    alone_ns: float
    both_ns: float
    plans: tuple[Plan, ...]

    @property
    def gain(self) -> float:
        """How many times faster two cores are."""
        return self.alone_ns / self.both_ns

    @property
    def met(self) -> bool:
        """Whether that is as much as it is to be."""
        return self.gain >= self.asked.bar


def direct_problems() -> Iterable[Asked]:
    """Direct layers, then a depthwise convolution and the gradients of a layer."""
    for key in (*DIRECT_LAYERS, "j"):
        problem = only(ConvProblem(find(key).shape, TRN2, budget=UNROLLED), "direct")
        yield Asked(key, "direct", problem, POINTWISE_BAR if key == "j" else DIRECT_BAR)
    deep = conv_shape((1, 512, 4, 64, 64), (512, 1, 3, 3, 3), padding=1, groups=512)
    problem = only(ConvProblem(deep, TRN2, budget=UNROLLED), "depthwise")
    yield Asked("512", "depthwise 3x3x3", problem, OTHERS_BAR)
    shape = find("c1").shape
    problem = ConvProblem(shape, TRN2, budget=UNROLLED)
    yield Asked("c1", "weight gradient", replace(problem, direction=WEIGHT_GRADIENT), OTHERS_BAR)
    turned = replace(problem, shape=input_gradient_shape(shape))
    yield Asked("c1", "input gradient", only(turned, "direct"), OTHERS_BAR)


def fast_problems() -> Iterable[Asked]:
    """F(2,3) of layers: the default policy allows no other transform."""
    policy = Policy(BF16, least_macs=0)
    for key in FAST_LAYERS:
        problem = ConvProblem(find(key).shape, TRN2, budget=UNROLLED, policy=policy)
        yield Asked(key, "F(2,3)", only(problem, "winograd"), FAST_BAR)


def timed(named: Asked) -> Pair:
    """The planner's choice for one core and for two, on the timeline."""
    alone = time_plan(searched_plan(named.problem).plan).makespan_ns
    plans = tuple(priced.plan for priced in shared_plans(named.problem))
    return Pair(named, alone, time_plans(plans).makespan_ns, plans)


def table(pairs: Sequence[Pair]) -> str:
    """One line for each problem."""
    columns = [
        Column("layer", "<"),
        Column("what", "<"),
        Column("one core\nus"),
        Column("pair\nus"),
    ]
    columns += [Column("times"), Column("bar"), Column("met", "<"), Column("core 0 has", "<")]
    columns += [Column("plan of core 0", "<")]
    rows = [
        [
            pair.asked.key,
            pair.asked.name,
            microseconds(pair.alone_ns),
            microseconds(pair.both_ns),
            f"{pair.gain:.3f}",
            f"{pair.asked.bar}",
            "met" if pair.met else "missed",
            describe_split(*pair.plans) if pair.plans[0] != pair.plans[1] else "all, as core 1",
            pair.plans[0].in_words(),
        ]
        for pair in pairs
    ]
    return aligned(columns, rows)


@dataclass(frozen=True)
class ModelPair:
    """A decode on a pair, in seconds, modelled by the cost model."""

    name: str
    accuracy: str
    ours_s: float
    alone_s: float  # ours on one core
    baseline_s: float
    bar: float

    @property
    def ratio(self) -> float:
        """Ours over the baseline's."""
        return self.ours_s / self.baseline_s


def model_pairs(name: str, entry_name: str, scenario: str) -> list[ModelPair]:
    """One decode with the plans of two cores, and of one."""
    from trnconv.pytorch.estimate import (  # noqa: PLC0415 (torch: for models only)
        estimate,
        run_entry_on_meta,
    )

    entry = find_model(entry_name)
    run = run_entry_on_meta(entry, entry.production, "decode")
    known = stored()
    calls = [call for call in find_calls(name, scenario, "decode") if call.dense]
    baseline = sum(call.calls * baseline_ns(call.shape(), known) for call in calls) / 2e9
    pairs = []
    for accuracy, bar in MODEL_BARS[name].items():
        alone, both = (
            estimate(run, TRN2, accuracy=accuracy, cores=cores).seconds for cores in (1, 2)
        )
        pairs.append(ModelPair(name, accuracy, both, alone, baseline, bar))
        print(model_table(pairs[-1:]), file=sys.stderr, flush=True)
    return pairs


def model_table(runs: Sequence[ModelPair]) -> str:
    """One line for each model and policy."""
    columns = [Column("model", "<"), Column("accuracy", "<"), Column("ours\ns")]
    columns += [Column("one core\ns"), Column("times"), Column("baseline\ns"), Column("ratio")]
    columns += [Column("bar"), Column("met", "<")]
    rows = [
        [
            run.name,
            run.accuracy,
            f"{run.ours_s:.2f}",
            f"{run.alone_s:.2f}",
            f"{run.alone_s / run.ours_s:.2f}",
            f"{run.baseline_s:.2f}",
            f"{run.ratio:.3f}",
            f"{run.bar}",
            "met" if run.ratio <= run.bar else "missed",
        ]
        for run in runs
    ]
    return aligned(columns, rows)


def heading() -> str:
    """What the numbers below are."""
    return (
        "Two cores of a launch (LNC2) against one: every time is modelled, trn2, constants"
        f" {CONSTANTS_VERSION}, default reading, bf16, unrolled plans, launch not counted."
    )


def compare(
    problems: Iterable[Asked], keys: Sequence[str] | None, models: Iterable[Scenario] = ()
) -> int:
    """Print layers whose key is asked for and models, and how many bars are met; the exit code."""
    print(heading())
    pairs = []
    for named in problems:
        if keys is None or named.key in keys:
            pairs.append(timed(named))
            print(table(pairs[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    if pairs:
        print("", table(pairs), sep="\n")
    runs = [run for model in models for run in model_pairs(*model)]
    if runs:
        print("\nModels: cost model, within a graph's instructions; the baseline takes half of its")
        print("time on one core, an ideal split.", "", model_table(runs), sep="\n")
    met = [pair.met for pair in pairs] + [run.ratio <= run.bar for run in runs]
    print("", f"bars met {sum(met)}/{len(met)}", sep="\n")
    return 0
