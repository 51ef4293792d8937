"""`python -m benchmarks shipped`: plans that come with the package, beside what a search finds.

Ratios below 1: the shipped plan is faster. By the planner's cost model, and of programs that are
short enough by their schedules, too: those are what `trnconv tune --registry` judges by.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from benchmarks.table import Column, aligned
from nkisim.machine import CONSTANTS_VERSION
from trnconv.algorithms.algorithm import Priced
from trnconv.model_plan.registry_plans import SHIPPED_LAUNCHES, Making
from trnconv.models import models
from trnconv.planner.best import searched_plan
from trnconv.planner.shares import launch_ns, searched_pair
from trnconv.planner.shipped_plans import shipped_answer, shipped_plans_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.launch import time_plans
from trnconv.runtime.tuning import Effort

HELP = "plans that come with the package, beside what a search finds"
_SAID_EVERY = 10
Launch = tuple[Priced, ...]


@dataclass(frozen=True)
class Compared:
    """A convolution's shipped plans over the searched ones."""

    machine: str
    cores: int
    cost_model: float
    schedule: float | None  # of short programs


def stored_problems(machine: str, cores: int, model: str) -> list[ConvProblem]:
    """Convolutions of the registry that have a plan, small ones first; equal ones once."""
    makings = [
        Making(entry, machine, cores, "bf16", Effort(), Path())
        for entry in models()
        if entry.name.startswith(model)
    ]
    problems = dict.fromkeys(problem for making in makings for problem in making.problems())
    stored = [problem for problem in problems if shipped_plans_of(problem, cores)]
    return sorted(stored, key=lambda problem: problem.shape.macs())


def compared(problem: ConvProblem, cores: int) -> Compared:
    """Search, and weigh both."""
    shipped = shipped_answer(problem, cores)
    assert shipped is not None
    searched = searched_pair(problem) if cores > 1 else (searched_plan(problem),)
    return Compared(
        problem.machine.name,
        cores,
        launch_ns(shipped) / launch_ns(searched),
        _by_schedule(shipped, searched),
    )


def _by_schedule(shipped: Launch, searched: Launch) -> float | None:
    plans = [tuple(priced.plan for priced in launch) for launch in (shipped, searched)]
    if plans[0] == plans[1]:
        return 1.0
    longest = max(priced.cost.instructions for priced in (*shipped, *searched))
    if longest > Effort().longest:
        return None
    return time_plans(plans[0]).makespan_ns / time_plans(plans[1]).makespan_ns


def summary(every: Sequence[Compared]) -> str:
    """Geometric mean, best and worst, a row for each launch."""
    names = ("plans", "geomean", "best", "worst", "by schedule:\ngeomean", "best", "worst")
    columns = [Column("machine", "<"), Column("cores"), *map(Column, names)]
    rows = []
    for machine, cores in dict.fromkeys((answer.machine, answer.cores) for answer in every):
        of_machine = [
            answer for answer in every if (answer.machine, answer.cores) == (machine, cores)
        ]
        scheduled = [answer.schedule for answer in of_machine if answer.schedule is not None]
        cells = [*_cells([answer.cost_model for answer in of_machine]), *_cells(scheduled)]
        rows.append([machine, str(cores), str(len(of_machine)), *cells])
    return aligned(columns, rows)


def _cells(ratios: Sequence[float]) -> list[str]:
    if not ratios:
        return ["-"] * 3
    return [f"{value:.4f}" for value in (geometric_mean(ratios), min(ratios), max(ratios))]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", default="", metavar="NAME", help="start of a model's name")
    parser.add_argument(
        "--every", type=int, default=20, metavar="N", help="one in N of them; 1: all, half an hour"
    )


def main(options: argparse.Namespace) -> int:
    """Compare, report; 1 if a shipped plan is slower by its judge."""
    stored = [
        (problem, cores)
        for machine, cores in SHIPPED_LAUNCHES
        for problem in stored_problems(machine, cores, options.model)
    ]
    answers: list[Compared] = []
    for problem, cores in stored[:: max(1, options.every)]:
        answers.append(compared(problem, cores))
        if len(answers) % _SAID_EVERY == 0:
            print(f"{len(answers)} compared", file=sys.stderr, flush=True)
    print(f"Modelled, constants {CONSTANTS_VERSION}, default reading, accuracy bf16.")
    print("Times of shipped plans over those of searched ones; nothing was measured.\n")
    print(summary(answers))
    slower = sum(map(is_slower, answers))
    print(f"\n{len(answers)} of {len(stored)} convolutions compared, {slower} slower than searched")
    return 1 if slower else 0


def is_slower(answer: Compared) -> bool:
    """By its schedule if that was the judge, else by the cost model."""
    decided = answer.cost_model if answer.schedule is None else answer.schedule
    return decided > 1 + 1e-9
