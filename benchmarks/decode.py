"""`python -m benchmarks decode`: whole decodes and encodes, convolutions and everything else.

Of each model: convolutions on our kernels, and the rest as torch's operators one by one ("as
written"), and with one kernel for each operation ("a kernel per op": a norm, an attention, an
activation, a copy). The baseline is nki-library's convolutions and a kernel per op of the model
without our rewrites, copies and padding included. Nothing but residuals, biases and activations is
fused into convolutions yet, so there is no column of fused blocks, and no bar for them is met.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.table import Column, aligned, significant
from nkisim.machine import CONSTANTS_VERSION
from trnconv.ask.cores import cores_in_words
from trnconv.baseline import model_baseline
from trnconv.cache import Cache
from trnconv.model_plan import ModelPlan, PlanOptions, Prices, by_kind, model_plan, operation_plans
from trnconv.model_plan.operations import as_written_ns
from trnconv.models import find, models

HELP = "whole decodes and encodes: convolutions and all else"
_SHOWN = 4  # kinds of operations in a row of the table


@dataclass(frozen=True)
class WholeRun:
    """One phase of a model at its production size. Seconds, modelled."""

    model: str
    size: str
    phase: str
    cores: int
    convolutions_s: float
    per_op_s: float  # all else, a kernel for each operation
    as_written_s: float  # all else, a kernel for each of torch's operators
    baseline_convolutions_s: float | None
    baseline_per_op_s: float  # all else of the model without rewrites
    kinds: tuple[tuple[str, float], ...]  # seconds, a kernel for each operation

    @property
    def whole_s(self) -> float:
        """Our convolutions, and a kernel for each operation."""
        return self.convolutions_s + self.per_op_s

    @property
    def baseline_s(self) -> float | None:
        """The baseline's convolutions, and a kernel for each operation."""
        if self.baseline_convolutions_s is None:
            return None
        return self.baseline_convolutions_s + self.baseline_per_op_s


def whole_run(model: str, phase: str, options: PlanOptions, prices: Prices) -> WholeRun:
    """A model planned, and what its baseline takes."""
    entry = find(model)
    plan = model_plan(entry, entry.production, phase, options, prices)
    seen, machine, cores = plan.observation, options.target, options.launch_cores
    known = model_baseline(entry, entry.production, phase, machine, cores)
    as_is = operation_plans(seen.operations_as_is, machine, cores)
    return WholeRun(
        entry.name,
        entry.production.name,
        phase,
        cores,
        plan.seconds,
        plan.operation_seconds,
        as_written_ns(seen.operations, machine, cores) / 1e9,
        None if known is None else known.seconds,
        sum(operation.ns for operation in as_is) / 1e9,
        _kinds(plan),
    )


def _kinds(plan: ModelPlan) -> tuple[tuple[str, float], ...]:
    return tuple((kind.kind, kind.ns / 1e9) for kind in by_kind(plan.operations))


def table(runs: Sequence[WholeRun]) -> str:
    """A row for each phase of each model."""
    names = ("convolu-\ntions, s", "a kernel\nper op, s", "as writ-\nten, s", "whole\ns")
    names += ("not con-\nvolutions", "baseline\ns", "of the\nbaseline")
    columns = [Column("model", "<"), Column("size", "<"), Column("phase", "<")]
    columns += [Column(name) for name in names]
    columns += [Column("a kernel per op: seconds", "<")]
    return aligned(columns, [_cells(run) for run in runs])


def _cells(run: WholeRun) -> list[str]:
    base = run.baseline_s
    kinds = ", ".join(f"{kind} {significant(spent)}" for kind, spent in run.kinds[:_SHOWN])
    return [
        run.model,
        run.size,
        run.phase,
        significant(run.convolutions_s),
        significant(run.per_op_s),
        significant(run.as_written_s),
        significant(run.whole_s),
        f"{run.per_op_s / run.whole_s:.0%}",
        "-" if base is None else significant(base),
        "-" if base is None else f"{run.whole_s / base:.2f}",
        kinds,
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--phase", choices=("encode", "decode"), help="only this one")
    parser.add_argument("--accuracy", default="bf16", help="direct, bf16 or fast")
    parser.add_argument("--cores", type=int, default=2, choices=[1, 2], help="of a launch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")


def main(options: argparse.Namespace) -> int:
    """Plan every model, print the table; the exit code."""
    wanted = PlanOptions(accuracy=options.accuracy, cores=options.cores)
    prices = Prices(Cache.named("prices"), cores=options.cores, jobs=os.cpu_count() or 1)
    names = options.model or [entry.name for entry in models()]
    runs = [
        whole_run(name, phase, wanted, prices)
        for name in names
        for phase in find(name).phases
        if options.phase in (None, phase)
    ]
    print(
        f"Modelled, trn2, constants {CONSTANTS_VERSION}, default reading, bf16, batch 1,"
        f" {cores_in_words(options.cores)}, accuracy {options.accuracy}; nothing was measured.\n"
    )
    print(table(runs))
    if options.json:
        document = {"constants": CONSTANTS_VERSION, "runs": [asdict(run) for run in runs]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\n{len(runs)} runs of {len(names)} models, every operation in one of the columns")
    return 0
