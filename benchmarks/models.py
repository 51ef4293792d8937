"""`python -m benchmarks models`: every autoencoder of the registry at its production size.

What encodes and decodes do comes from stored traces, without torch. Their convolutions are
priced by the planner's cost model (`--simulate`: traced and scheduled), under the default policy,
on trn2 and trn3; with `--full` also directly and under "fast", whose plans are searched for: that
takes most of an hour. Times are of a launch: two cores, or `--cores 1`, for which plans of trn3 are
searched for, too, and left out without `--full`. Convolutions that torch keeps are listed with the
reason. The baseline gets the convolutions that the model calls; on two cores it takes half of its
time on one.

With `--trace` each model runs again on the meta device, once patched with all rewrites and once
as it is, with the extra `diffusers`: that gives what is printed of models as they are, and times of
the baseline that are not stored, which are then kept.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import compress
from math import isnan
from pathlib import Path

from benchmarks.scatter_times import Times, baseline_ns, store, stored
from benchmarks.table import Column, aligned, significant
from nkisim.machine import CONSTANTS_VERSION, TRN2, TRN3
from trnconv.baseline import model_baseline
from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape
from trnconv.model_plan import ModelPlan, PlanOptions, Prices, model_trace, plan_trace
from trnconv.model_plan.registry_plans import SHIPPED_LAUNCHES
from trnconv.models import find, models
from trnconv.problem.cores import describe_cores
from trnconv.problem.policy import ALWAYS_DIRECT, BF16, DIRECT, FAST
from trnconv.runtime.pricing import price
from trnconv.traces import TracedConv

HELP = "every autoencoder of the registry at its production size"
CORES_OF_A_CHIP = 8
_NONE = "-"
Job = tuple[str, str]  # model, phase


@dataclass(frozen=True)
class Row:
    """One phase of a model. Times are modelled, of convolutions only."""

    model: str
    size: str
    phase: str
    calls: int
    ours_s: float  # accuracy bf16, the default
    direct_s: float  # NaN if it was not asked for, as all of these
    fast_s: float
    as_is_s: float  # our kernels without the rewrites
    trn3_s: float
    baseline_s: float  # NaN if it was not asked for, or is not stored
    instructions: int
    copied_gb: float
    copied_as_is_gb: float  # NaN if the model did not run as it is
    peak_gb: float
    largest_gb: float
    patched: int
    left_to_torch: tuple[str, ...]  # modules, and why


@dataclass(frozen=True)
class Asked:
    """What a row is to have."""

    simulate: bool
    baseline: bool
    full: bool
    cores: int  # of a launch
    trace: bool = False

    @property
    def trn3(self) -> bool:
        """On trn3, too: where its plans come with the package, or if all is asked for."""
        return self.full or (TRN3.name, self.cores) in SHIPPED_LAUNCHES


def row_of(job: Job, *, asked: Asked, known: Times) -> tuple[Row, Times]:
    """The row of a job, and the baseline's times that were computed for it."""
    return measure(job, asked=asked, known=known) if asked.trace else (planned(job, asked), {})


def planned(job: Job, asked: Asked) -> Row:
    """The row of what was traced before."""
    entry, phase = find(job[0]), job[1]
    size, unknown = entry.production, float("nan")
    trace = model_trace(entry, size, phase)

    def of(accuracy: str, machine: str = TRN2.name) -> ModelPlan:
        options = PlanOptions(machine, accuracy, asked.cores)
        prices = Prices(simulate=asked.simulate, cores=asked.cores)
        return plan_trace(trace, size, options, prices)

    ours = of(BF16)
    stored = model_baseline(entry, size, phase, TRN2, asked.cores) if asked.baseline else None
    whole = phase == entry.phases[-1]  # a model's convolutions are counted once
    return Row(
        model=entry.name,
        size=size.name,
        phase=phase,
        calls=ours.calls,
        ours_s=ours.seconds,
        direct_s=of(DIRECT).seconds if asked.full else unknown,
        fast_s=of(FAST).seconds if asked.full else unknown,
        as_is_s=unknown,
        trn3_s=of(BF16, TRN3.name).seconds if asked.trn3 else unknown,
        baseline_s=unknown if stored is None else stored.seconds,
        instructions=ours.instructions,
        copied_gb=ours.copied_bytes / 1e9,
        copied_as_is_gb=unknown,
        peak_gb=trace.peak_bytes / 1e9,
        largest_gb=trace.largest_bytes / 1e9,
        patched=trace.patched if whole else 0,
        left_to_torch=tuple(
            f"{left.module}: {left.reason}" for left in trace.left_to_torch if whole
        ),
    )


def measure(job: Job, *, asked_options: Asked, known: Times) -> tuple[Row, Times]:
    """The row of a model that runs on the meta device, and the baseline's times it needed."""
    from trnconv.pytorch.estimate import (  # noqa: PLC0415 (torch: for this command only)
        estimate,
        run_entry_on_meta,
    )
    from trnconv.pytorch.lazy.tensors.context import NO_REWRITES  # noqa: PLC0415

    entry, phase = find(job[0]), job[1]
    size = entry.production
    run = run_entry_on_meta(entry, size, phase)
    as_is_run = run_entry_on_meta(entry, size, phase, rewrites=NO_REWRITES)
    priced = partial(estimate, simulate=asked_options.simulate, cores=asked_options.cores)
    ours = priced(run, TRN2)
    times: Times = {}
    total = unknown = float("nan")
    if asked_options.baseline:
        used = dict(known)
        works = as_is_run.report.stats.works.items()
        total = sum(calls * _baseline(work, used) for work, calls in works)
        times = {shape: ns for shape, ns in used.items() if shape not in known}
    whole = phase == entry.phases[-1]  # a model's convolutions are counted once
    return (
        Row(
            model=entry.name,
            size=size.name,
            phase=phase,
            calls=ours.calls,
            ours_s=ours.seconds,
            direct_s=priced(run, TRN2, accuracy=DIRECT).seconds if asked_options.full else unknown,
            fast_s=priced(run, TRN2, accuracy=FAST).seconds if asked_options.full else unknown,
            as_is_s=priced(as_is_run, TRN2).seconds if asked_options.full else unknown,
            trn3_s=priced(run, TRN3).seconds if asked_options.trn3 else unknown,
            baseline_s=total / asked_options.cores / 1e9,
            instructions=ours.instructions,
            copied_gb=ours.copied_bytes / 1e9,
            copied_as_is_gb=sum(as_is_run.report.copied().values()) / 1e9,
            peak_gb=run.peak_bytes / 1e9,
            largest_gb=run.largest_bytes / 1e9,
            patched=len(run.report.patched) if whole else 0,
            left_to_torch=tuple(
                f"{left.name}: {left.reason}" for left in run.report.left_to_torch if whole
            ),
        ),
        times,
    )


def _baseline(work: TracedConv, known: Times) -> float:
    """Grouped and transposed convolutions have no baseline: there it gets our direct time."""
    if not isinstance(work.shape, ConvShape) or work.shape.groups > 1:
        return price(work.problem(TRN2, policy=ALWAYS_DIRECT), cores=1, beyond_hbm=True).ns
    return baseline_ns(work.shape, known)


def rows_of(jobs: Sequence[Job], options: argparse.Namespace) -> Iterator[Row]:
    """Rows as they are done; new times of the baseline are kept in its file."""
    known = stored()
    wanted = (options.simulate, not options.no_baseline, options.full, options.cores)
    work = partial(row_of, asked=Asked(*wanted, options.trace), known=known)
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for done, (row, times) in enumerate(pool.imap(work, jobs), 1):
            words = f"{done} of {len(jobs)}  {row.model} {row.phase}"
            print(f"{words}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
            if times:
                known.update(times)
                store(known)
            yield row


def table(rows: Sequence[Row], cores: int) -> str:
    """One line for each phase of each model, without columns that have no number at all."""
    launch = "core" if cores == 1 else "pair"
    names = ["calls", f"trn2\n{launch}, s", "direct\ns", "fast\ns", "chip of 8,\nideal, s"]
    names += [f"trn3\n{launch}, s", "baseline\ns", "ours /\nbaseline", "ours /\nas it is"]
    names += ["instruc-\ntions", "copies\nGB", "as it is\nGB", "peak\nGB", "largest\ntensor, GB"]
    columns = [Column("model", "<"), Column("size", "<"), Column("phase", "<")]
    columns += [Column(name) for name in names]
    lines = [_cells(row, cores) for row in rows]
    used = [any(line[place] != _NONE for line in lines) for place in range(len(columns))]
    return aligned(list(compress(columns, used)), [list(compress(line, used)) for line in lines])


def _cells(row: Row, cores: int) -> list[str]:
    known = not isnan(row.baseline_s)
    return [
        row.model,
        row.size,
        row.phase,
        f"{row.calls}",
        significant(row.ours_s),
        _seconds(row.direct_s),
        _seconds(row.fast_s),
        significant(row.ours_s * cores / CORES_OF_A_CHIP),
        _seconds(row.trn3_s),
        _seconds(row.baseline_s),
        f"{row.ours_s / row.baseline_s:.2f}" if known else _NONE,
        _NONE if isnan(row.as_is_s) else f"{row.ours_s / row.as_is_s:.3f}",
        f"{row.instructions}",
        f"{row.copied_gb:.0f}",
        _NONE if isnan(row.copied_as_is_gb) else f"{row.copied_as_is_gb:.0f}",
        f"{row.peak_gb:.1f}",
        f"{row.largest_gb:.2f}",
    ]


def _seconds(value: float) -> str:
    return _NONE if isnan(value) else significant(value)


def last_line(rows: Sequence[Row]) -> str:
    """How many models, and what became of their convolutions."""
    patched, left = sum(row.patched for row in rows), sum(len(row.left_to_torch) for row in rows)
    models = len({row.model for row in rows})
    return f"{models} models, {patched} convolutions patched, {left} left to torch"


def lines_left_to_torch(rows: Sequence[Row]) -> list[str]:
    """A line for each convolution that is left to torch."""
    return [f"left to torch: {row.model} {words}" for row in rows for words in row.left_to_torch]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--phase", choices=("encode", "decode"), help="only this one")
    parser.add_argument("--simulate", action="store_true", help="schedule every launch: slow")
    parser.add_argument("--no-baseline", action="store_true", help="leave the baseline out")
    parser.add_argument("--full", action="store_true", help="also direct, fast; trn3 of one core")
    parser.add_argument(
        "--trace", action="store_true", help="run the models again, and as they are: needs torch"
    )
    parser.add_argument("--cores", type=int, default=2, choices=[1, 2], help="of a launch")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")


def main(options: argparse.Namespace) -> int:
    """Estimate every model, print the table; the exit code."""
    wanted = options.model or [entry.name for entry in models()]
    jobs = [
        (name, phase)
        for name in wanted
        for phase in find(name).phases
        if options.phase in (None, phase)
    ]
    if not jobs:
        raise TrnconvError(f"{wanted} {options.phase}: no such phase.")
    rows: list[Row] = []
    for row in rows_of(jobs, options):
        rows.append(row)
        if options.json:
            document = {"constants": CONSTANTS_VERSION, "rows": [asdict(done) for done in rows]}
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(
        f"Modelled, constants {CONSTANTS_VERSION}, default reading, bf16, batch 1,"
        f" {describe_cores(options.cores)};"
        f" {'scheduled' if options.simulate else 'cost model of the planner'}.\n"
        "Convolutions only: no norms, attention, launches. Copies are bytes of padding,"
        " concatenation, upsampling and caches, read and written.\n"
    )
    print(table(rows, options.cores), "", *lines_left_to_torch(rows), last_line(rows), sep="\n")
    return 0
