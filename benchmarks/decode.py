"""`python -m benchmarks decode`: whole decodes and encodes, convolutions and everything else.

Of each model: our convolutions and all else, with norms and activations as a patched model runs
them ("fused": a norm and its activation are one kernel, a group norm goes into the convolution
behind it where that is faster, frames of caches are not copied); the same with one kernel for each
operation ("a kernel per op": a norm, an attention, an activation, a copy); and with torch's
operators one by one ("as written"). The baseline is nki-library's convolutions and a kernel per op
of the model without our rewrites, copies and padding included. What no kernel of ours does has the
price of its bytes, in all of them.

Without `--model`, those models are planned whose plans come with the package. Such a run writes its
rows to `benchmarks/decode.json`, for later ones to compare with: `--against FILE` plans decodes
with the accuracy "fast", and says what is left of the stored times.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.decode_against import BARS as RATIO_BARS
from benchmarks.decode_against import against_table, judged_against, stored_seconds
from benchmarks.table import Column, aligned, significant
from nkisim.machine import CONSTANTS_VERSION
from trnconv.baseline import model_baseline
from trnconv.cache import Cache
from trnconv.model_plan import (
    ModelPlan,
    PlanOptions,
    Prices,
    by_kind,
    model_plan,
    operation_plans,
    plan_trace,
)
from trnconv.model_plan.operations import as_written_ns
from trnconv.models import find, models
from trnconv.planner.shipped_plans import shipped_set
from trnconv.problem.cores import describe_cores
from trnconv.problem.policy import BF16, FAST
from trnconv.traces import without_norms

HELP = "whole decodes and encodes: convolutions and all else"
STORED = Path(__file__).with_suffix(".json")
_SHOWN = 4  # kinds of operations in a row of the table


@dataclass(frozen=True)
class WholeRun:
    """One phase of a model at its production size. Seconds, modelled."""

    model: str
    size: str
    phase: str
    cores: int
    convolutions_s: float  # some with a norm in them
    rest_s: float  # all else, norms and activations fused
    per_op_s: float  # everything: plain convolutions, a kernel for each operation
    as_written_s: float  # all but convolutions, a kernel for each of torch's operators
    baseline_s: float | None  # its convolutions, and a kernel per op of the model without rewrites
    kinds: tuple[tuple[str, float], ...]  # of the rest, seconds

    @property
    def fused_s(self) -> float:
        """Everything, as a patched model runs it."""
        return self.convolutions_s + self.rest_s

    @property
    def over_per_op(self) -> float:
        """What fusing leaves of the time."""
        return self.fused_s / self.per_op_s

    @property
    def over_baseline(self) -> float | None:
        """What is left of the baseline's time."""
        return None if self.baseline_s is None else self.fused_s / self.baseline_s


@dataclass(frozen=True)
class Bar:
    """A ratio that a run is to stay below."""

    model: str
    phase: str
    of: str  # a property of WholeRun
    most: float


BARS = (
    Bar("wan2.1", "decode", "over_per_op", 0.84),
    Bar("wan2.1", "encode", "over_per_op", 0.85),
    Bar("wan2.2-5b", "decode", "over_per_op", 0.90),
    Bar("hunyuanvideo", "decode", "over_per_op", 0.80),
    Bar("cogvideox", "decode", "over_per_op", 0.58),
    Bar("ltx-video-0.9.7", "decode", "over_per_op", 0.75),
    Bar("wan2.1", "decode", "over_baseline", 0.51),
    Bar("hunyuanvideo", "decode", "over_baseline", 0.49),
    Bar("cogvideox", "decode", "over_baseline", 0.36),
)


def whole_run(model: str, phase: str, options: PlanOptions, prices: Prices) -> WholeRun:
    """A model planned, and what its baseline takes."""
    entry = find(model)
    fused = model_plan(entry, entry.production, phase, options, prices)
    trace, machine, cores = fused.trace, options.machine, options.launch_cores
    per_op = plan_trace(without_norms(trace), entry.production, options, prices)
    known = model_baseline(entry, entry.production, phase, machine, cores)
    as_is = sum(plan.ns for plan in operation_plans(trace.operations_as_is, machine, cores)) / 1e9
    return WholeRun(
        entry.name,
        entry.production.name,
        phase,
        cores,
        fused.seconds,
        fused.operation_seconds,
        per_op.whole_seconds,
        as_written_ns(trace.operations_unfused, machine, cores) / 1e9,
        None if known is None else known.seconds + as_is,
        _kinds(fused),
    )


def _kinds(plan: ModelPlan) -> tuple[tuple[str, float], ...]:
    return tuple((kind.kind, kind.ns / 1e9) for kind in by_kind(plan.operations))


def table(runs: Sequence[WholeRun]) -> str:
    """A row for each phase of each model."""
    names = ("convolu-\ntions, s", "all else\nfused, s", "fused\ns", "a kernel\nper op, s")
    names += ("fused /\nper op", "rest as\nwritten, s", "baseline\ns", "fused /\nbaseline")
    columns = [Column("model", "<"), Column("size", "<"), Column("phase", "<")]
    columns += [Column(name) for name in names]
    columns += [Column("all else fused: seconds", "<")]
    return aligned(columns, [_cells(run) for run in runs])


def _cells(run: WholeRun) -> list[str]:
    base = run.baseline_s
    kinds = ", ".join(f"{kind} {significant(spent)}" for kind, spent in run.kinds[:_SHOWN])
    return [
        run.model,
        run.size,
        run.phase,
        significant(run.convolutions_s),
        significant(run.rest_s),
        significant(run.fused_s),
        significant(run.per_op_s),
        f"{run.over_per_op:.3f}",
        significant(run.as_written_s),
        "-" if base is None else significant(base),
        "-" if run.over_baseline is None else f"{run.over_baseline:.3f}",
        kinds,
    ]


def judged(runs: Sequence[WholeRun]) -> list[tuple[str, bool]]:
    """Every bar whose model was run, in words, and whether it is met."""
    verdicts = []
    for bar in BARS:
        for run in runs:
            ratio = getattr(run, bar.of)
            if (run.model, run.phase) == (bar.model, bar.phase) and ratio is not None:
                words = f"{bar.model} {bar.phase} {bar.of.replace('_', ' ')}: {ratio:.3f}"
                verdicts.append((f"{words}, at most {bar.most}", ratio <= bar.most))
    return verdicts


def _planned_names(cores: int) -> list[str]:
    """Models whose plans come with the package: others would be searched for, for minutes each."""
    known = {file.model for file in shipped_set(PlanOptions().machine_name, cores).files}
    return [entry.name for entry in models() if entry.name in known]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--phase", choices=("encode", "decode"), help="only this one")
    parser.add_argument(
        "--accuracy", help="direct, bf16 (default), fast (with --against) or fastest"
    )
    parser.add_argument("--cores", type=int, default=2, choices=[1, 2], help="of a launch")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="ratios to the rows of this file"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")


def main(options: argparse.Namespace) -> int:
    """Plan every model, print the table; the exit code."""
    stored = stored_seconds(options.against) if options.against else None
    options.accuracy = options.accuracy or (BF16 if stored is None else FAST)
    barred = [bar.model for bar in RATIO_BARS if bar.accuracy == options.accuracy]
    if stored is not None and barred and not options.model:
        options.model = list(dict.fromkeys(barred))
        options.phase = options.phase or "decode"
    wanted = PlanOptions(accuracy=options.accuracy, cores=options.cores)
    prices = Prices(Cache.named("prices"), cores=options.cores, jobs=os.cpu_count() or 1)
    names = options.model or _planned_names(options.cores)
    runs = [
        whole_run(name, phase, wanted, prices)
        for name in names
        for phase in find(name).phases
        if options.phase in (None, phase)
    ]
    print(
        f"Modelled, trn2, constants {CONSTANTS_VERSION}, default reading, bf16, batch 1,"
        f" {describe_cores(options.cores)}, accuracy {options.accuracy}; nothing was measured.\n"
    )
    print(table(runs))
    print(f"\n{len(runs)} runs of {len(names)} models, every operation in one of the columns")
    every = not options.model and options.phase is None and options.accuracy == BF16
    every = every and stored is None
    file = options.json or (STORED if every and options.cores == 2 else None)
    if file:
        document = {"constants": CONSTANTS_VERSION, "runs": [asdict(run) for run in runs]}
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    bars = judged(runs)
    if stored is not None:
        print(f"\n{against_table(runs, stored)}\n")
        bars = judged_against(runs, stored, options.accuracy)
    for words, is_met in bars:
        print(f"{'met ' if is_met else 'MISSED '}{words}")
    print(f"bars met {sum(is_met for _, is_met in bars)}/{len(bars)}")
    return 0
