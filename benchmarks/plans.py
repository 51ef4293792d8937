"""`python -m benchmarks plans`: plan every convolution of the catalogue, on every machine.

A record is planned as it was captured and, where that differs, with the zeros its wrapper put into
the input as padding; grouped and transposed ones too. What has tensors beyond 32-bit offsets, or
more output channels than a short program can have, is planned launch by launch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.table import Column, aligned, by_times
from nkisim.machine import CONSTANTS_VERSION, MACHINES, Machine
from trnconv.algorithms.algorithm import Priced
from trnconv.algorithms.search import of_algorithm
from trnconv.catalogue import Call, calls
from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape, TransposedShape
from trnconv.planner.best import only, searched_plan
from trnconv.planner.table import algorithm_named
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.launches import planned_parts
from trnconv.problem.limits import DEFAULT_BUDGET

HELP = "plan every convolution of the catalogue"
DTYPE = "bfloat16"
DIRECT = algorithm_named("direct")
Shape = ConvShape | TransposedShape
_TOGETHER = 8  # problems a worker takes at once
_SAID_EVERY = 500
_LARGEST = 5


@dataclass(frozen=True)
class Task:
    """A problem on a machine."""

    shape: Shape
    machine: str


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What came of a task; `failure` says why nothing did."""

    task: Task
    ms: float
    failure: str = ""
    launches: int = 0
    instructions: int = 0  # of the longest launch, by the cost model
    looped: bool = False
    streamed: bool = False


def distinct_problems(records: Iterable[Call]) -> list[Shape]:
    """Every problem once, in the order of capture."""
    shapes: dict[Shape, None] = {}
    for call in records:
        if call.transposed:
            shapes[call.transposed_shape()] = None
        else:
            shapes[call.shape()] = None
            shapes[call.implicit_shape()] = None
    return list(shapes)


def plan_task(task: Task) -> Planned:
    """Plan all launches of a problem; equal ones once."""
    start = time.perf_counter()
    try:
        planned = _taken(task.shape, MACHINES[task.machine])
    except Exception as error:  # noqa: BLE001 (whatever stops the planner is what is reported)
        return Planned(task=task, ms=_ms_since(start), failure=f"{type(error).__name__}: {error}")
    return _outcome(task, _ms_since(start), len(planned), planned)


def _taken(shape: Shape, machine: Machine) -> list[Priced]:
    problem = only(ConvProblem(shape, machine, DTYPE), DIRECT.name)
    return [taken for _, taken in planned_parts(problem, searched_plan)]


def _outcome(task: Task, ms: float, launch_count: int, planned: Sequence[Priced]) -> Planned:
    return Planned(
        task=task,
        ms=ms,
        launches=launch_count,
        instructions=max(priced.cost.instructions for priced in planned),
        looped=any(priced.plan.is_looped for priced in planned),
        streamed=any(of_algorithm(DIRECT, priced).streamed > 0 for priced in planned),
    )


def _ms_since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


def plan_all(tasks: Sequence[Task], jobs: int) -> Iterator[Planned]:
    """Outcomes in the order of the tasks. Every worker begins with nothing cached."""
    if jobs == 1:
        yield from map(plan_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(plan_task, tasks, chunksize=_TOGETHER)


def by_machine(outcomes: Sequence[Planned], machines: Sequence[str]) -> str:
    """A line for each machine."""
    columns = [
        Column("machine", "<"),
        *(Column(text) for text in ("planned", "failed", "median\nms", "p95\nms", "max\nms")),
        *(Column(text) for text in ("looped", "streamed", "several\nlaunches", "launches\nin all")),
        Column("most\ninstructions"),
    ]
    rows = [
        _machine_row(name, [outcome for outcome in outcomes if outcome.task.machine == name])
        for name in machines
    ]
    return aligned(columns, rows)


def _machine_row(name: str, outcomes: Sequence[Planned]) -> list[str]:
    times = [outcome.ms for outcome in outcomes]
    failed = sum(bool(outcome.failure) for outcome in outcomes)
    return [
        name,
        f"{len(outcomes) - failed}",
        f"{failed}",
        f"{median(times):.1f}",
        f"{percentile(times, 95):.1f}",
        f"{max(times):.1f}",
        f"{sum(outcome.looped for outcome in outcomes)}",
        f"{sum(outcome.streamed for outcome in outcomes)}",
        f"{sum(outcome.launches > 1 for outcome in outcomes)}",
        f"{sum(outcome.launches for outcome in outcomes)}",
        f"{max(outcome.instructions for outcome in outcomes)}",
    ]


def percentile(values: Sequence[float], share: int) -> float:
    """The smallest value that at least `share` percent do not exceed."""
    return sorted(values)[-(-share * len(values) // 100) - 1]


def largest(outcomes: Sequence[Planned]) -> str:
    """The calls with the most instructions in one launch."""
    columns = [Column("instruc-\ntions"), Column("machine", "<"), Column("launches"), Column("ms")]
    columns += [Column("looped", "<"), Column("problem", "<")]
    ranked = sorted(outcomes, key=lambda outcome: outcome.instructions, reverse=True)
    rows = [
        [
            f"{outcome.instructions}",
            outcome.task.machine,
            f"{outcome.launches}",
            f"{outcome.ms:.1f}",
            "looped" if outcome.looped else "unrolled",
            described(outcome.task.shape),
        ]
        for outcome in ranked[:_LARGEST]
    ]
    return aligned(columns, rows)


def described(shape: Shape) -> str:
    """A problem in one line: input, weight, and what is not plain about it."""
    x = (shape.batch, shape.c_in, *shape.size)
    weight = (shape.c_out, shape.c_in // shape.groups, *shape.kernel)
    text = f"{by_times(x)} * {by_times(weight)}"
    if isinstance(shape, TransposedShape):
        return f"{text} transposed, stride {by_times(shape.stride)}"
    if shape.stride != (1, 1, 1):
        text += f" stride {by_times(shape.stride)}"
    if any((*shape.pad_before, *shape.pad_after)):
        text += f" pad {by_times(shape.pad_before)}..{by_times(shape.pad_after)}"
    return text


def last_line(outcomes: Sequence[Planned], machines: Sequence[str]) -> str:
    """Problems planned on every machine, the median planning time, the longest call."""
    problems = {outcome.task.shape for outcome in outcomes}
    failed = {outcome.task.shape for outcome in outcomes if outcome.failure}
    return (
        f"planned {len(problems) - len(failed)}/{len(problems)} on {' '.join(machines)},"
        f" median {median(outcome.ms for outcome in outcomes):.1f} ms,"
        f" most instructions {max(outcome.instructions for outcome in outcomes)}"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument(
        "--machines", type=machines_named, default=tuple(MACHINES), metavar="trn1,trn2"
    )
    parser.add_argument("--jobs", type=_at_least_one, default=2, metavar="N", help="processes")
    parser.add_argument("--model", default="", metavar="NAME", help="start of a model's name")


def machines_named(text: str) -> tuple[str, ...]:
    """The machines of a comma-separated list."""
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in MACHINES]
    if unknown:
        known = ", ".join(MACHINES)
        raise argparse.ArgumentTypeError(f"no machine {', '.join(unknown)}; there are {known}")
    return names


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} processes: at least 1 is needed")
    return int(text)


def records_of(model: str) -> list[Call]:
    """The records of the models whose names begin so."""
    records = [call for call in calls() if call.model.startswith(model) and call.dense]
    if not records:
        known = ", ".join(dict.fromkeys(call.model for call in calls() if call.dense))
        raise TrnconvError(f"dense convolutions of {model!r}: there are none. Models are {known}.")
    return records


def heading(records: int, problems: int, jobs: int) -> str:
    """What was planned, and what the milliseconds are."""
    return (
        f"{records} dense records are {problems} distinct problems: as captured, and with a"
        " wrapper's zeros as padding.\n"
        f"{DTYPE}, one core, at most {DEFAULT_BUDGET} instructions a launch, constants"
        f" {CONSTANTS_VERSION}, default reading.\n"
        f"Milliseconds are planning time on this computer: {jobs} process(es), each with caches of"
        " its own that are empty at first."
    )


def main(options: argparse.Namespace) -> int:
    """Plan, report; 1 if anything could not be planned."""
    records = records_of(options.model)
    problems = distinct_problems(records)
    tasks = [Task(shape, name) for name in options.machines for shape in problems]
    outcomes = []
    for outcome in plan_all(tasks, options.jobs):
        outcomes.append(outcome)
        if len(outcomes) % _SAID_EVERY == 0:
            print(f"{len(outcomes)} of {len(tasks)}", file=sys.stderr, flush=True)
    print(heading(len(records), len(problems), options.jobs), "", sep="\n")
    print(by_machine(outcomes, options.machines), "", largest(outcomes), "", sep="\n")
    failures = [outcome for outcome in outcomes if outcome.failure]
    for failure in failures:
        print(
            f"failed on {failure.task.machine}: {described(failure.task.shape)}: {failure.failure}"
        )
    print(last_line(outcomes, options.machines))
    return 1 if failures else 0
