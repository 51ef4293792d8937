"""`python -m benchmarks planning`: CPU seconds that planning takes, with nothing cached.

Single calls are 300 large convolutions as users of torch have them, on trn1, trn2 and trn3, and
some kernels larger than anybody's. Models are all of the registry, encode and decode, at all sizes
that are stored, on trn2. Launches have as many cores as the machine's: two on trn2 and trn3.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import median
from typing import Any

from benchmarks.drawn_shapes import drawn_shape, is_small
from benchmarks.table import Column, aligned
from nkisim.machine import TRN2
from trnconv.geometry import ConvShape, conv_shape
from trnconv.model_plan import model_plan, planned_sizes
from trnconv.models import find, models
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.describe import describe_call
from trnconv.runtime.pricing import price
from trnconv.runtime.weight_gradient import gradient_problem

HELP = "CPU seconds that planning takes"
SINGLE_S, MODEL_S = 2.0, 15.0  # what a call and a model may take
_SHAPES = 300
_SLOWEST = 10
_DEPTHWISE = conv_shape((1, 384, 56, 56), (384, 1, 31, 31), padding=15, groups=384)
_WIDE = conv_shape((1, 512, 28, 28), (512, 512, 31, 31), padding=15)
_LARGEST_KERNELS: tuple[ConvShape, ...] = (
    _DEPTHWISE,
    conv_shape((1, 384, 56, 56), (384, 1, 31, 31), padding=45, dilation=3, groups=384),
    _WIDE,
    conv_shape((1, 256, 56, 56), (256, 256, 14, 31), padding=(7, 15)),
    conv_shape((1, 64, 40, 40, 40), (64, 64, 31, 31, 31), padding=15),
    conv_shape((1, 3, 64, 64, 64), (16, 3, 31, 31, 31), padding=15),
)
_GRADIENTS = (_DEPTHWISE, _WIDE)


@dataclass(frozen=True)
class Timed:
    """What was planned, and how long it took."""

    name: str
    seconds: float  # of this computer's CPU


def call_number(number: int) -> ConvProblem:
    """A single call: large kernels first, then drawn shapes that are too large to run."""
    named = [ConvProblem(shape, TRN2) for shape in _LARGEST_KERNELS]
    named += [gradient_problem(shape, TRN2.name, "bfloat16") for shape in _GRADIENTS]
    if number < len(named):
        return named[number]
    large = (shape_number for shape_number in count() if not is_small(shape_number))
    return drawn_shape(next(islice(large, number - len(named), None))).problem()


def time_call(number: int) -> Timed:
    """Plan a single call."""
    forget()
    problem = call_number(number)
    start = time.process_time()
    price(problem)
    return Timed(describe_call(problem), time.process_time() - start)


def time_model(job: tuple[str, str, str]) -> Timed:
    """Plan a model: its name, a size and a phase."""
    forget()
    start = time.process_time()
    model_plan(*job)
    return Timed(" ".join(job), time.process_time() - start)


def run(function: Callable[[Any], Timed], tasks: Sequence[Any], jobs: int) -> list[Timed]:
    """Outcomes in the order of the tasks."""
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap(function, tasks, chunksize=1):
            outcomes.append(outcome)
            said = f"{len(outcomes)} of {len(tasks)}  {outcome.seconds:.2f} s  {outcome.name}"
            print(said, file=sys.stderr, flush=True)
    return outcomes


def forget() -> None:
    """Empty everything that the packages remember between calls."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("trnconv", "nkisim")):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def slowest(outcomes: Sequence[Timed]) -> str:
    """Those that took longest, those first."""
    ranked = sorted(outcomes, key=lambda outcome: outcome.seconds, reverse=True)[:_SLOWEST]
    columns = [Column("CPU\nseconds"), Column("planned", "<")]
    return aligned(columns, [[f"{outcome.seconds:.2f}", outcome.name] for outcome in ranked])


def summary(what: str, outcomes: Sequence[Timed], most: float) -> str:
    """How many, how long, and how many are above what they may take."""
    seconds = [outcome.seconds for outcome in outcomes]
    above = sum(elapsed > most for elapsed in seconds)
    return (
        f"{len(outcomes)} {what}: median {median(seconds):.2f} s, in all {sum(seconds):.1f} s,"
        f" {above} above {most:g} s"
    )


def worst(outcomes: Sequence[Timed]) -> str:
    """The longest, or a dash if nothing was asked for."""
    return f"{max(outcome.seconds for outcome in outcomes):.2f} s" if outcomes else "-"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--calls", type=int, default=_SHAPES, metavar="N", help="drawn shapes")
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")


def main(options: argparse.Namespace) -> int:
    """Plan, report; 1 if anything took longer than it may."""
    names = options.model or [entry.name for entry in models()]
    jobs = [
        (name, size.name, phase)
        for name in names
        for size in planned_sizes(find(name))
        for phase in find(name).phases
    ]
    extra = len(_LARGEST_KERNELS) + len(_GRADIENTS)
    numbers = range(extra + options.calls) if options.calls else range(0)
    calls = run(time_call, numbers, options.jobs)
    planned = run(time_model, jobs, options.jobs)
    for what, outcomes, most in (("calls", calls, SINGLE_S), ("models", planned, MODEL_S)):
        if outcomes:
            print(summary(what, outcomes, most), slowest(outcomes), "", sep="\n")
    print(f"single calls: worst {worst(calls)}, models: worst {worst(planned)}")
    above = [call for call in calls if call.seconds > SINGLE_S]
    return 1 if above or any(model.seconds > MODEL_S for model in planned) else 0
