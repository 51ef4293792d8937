"""`python -m benchmarks chunk`: the graphs of a model that works chunk by chunk, within a budget.

Of each kind of chunk: modelled time of its convolutions, instructions as a compiler counts them,
hardware loops, what the loops lose against the same plans unrolled, and how long compiling is
assumed to take. The steady chunk is the one that is launched most often; of this one, norms and
attention with kernels of ours are counted as well, a line before the last. What has no kernel of
ours is left to the compiler: its instructions are not known.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from benchmarks.table import Column, aligned
from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.winograd_upsample.plan import UpsamplePlan
from trnconv.model_plan import GraphPlan, OperationPlan, PlanOptions, Prices, model_plan
from trnconv.models import find
from trnconv.models.sizes import size_of
from trnconv.planner.table import priced
from trnconv.problem.cores import describe_cores
from trnconv.problem.limits import COMPILE_ASSUMPTION, compile_s
from trnconv.problem.policy import BF16
from trnconv.runtime.graph import GraphBudget
from trnconv.runtime.pricing import Price

HELP = "graphs of a model that works chunk by chunk, within instructions and hardware loops"
_INSTRUCTIONS = 1_000_000
_REGIONS = 21


@dataclass(frozen=True)
class Chunk:
    """A graph, and what its loops lose."""

    graph: GraphPlan
    lost: float  # of the time that its plans take unrolled

    @property
    def line(self) -> str:
        """The last line of this benchmark, for the steady one."""
        graph = self.graph
        size = f"instructions {graph.instructions}, regions {graph.regions}"
        return (
            f"steady chunk {graph.ns / 1e6:.2f} ms modelled, {size}, lost {100 * self.lost:.2f} %"
        )


def unrolled_ns(price: Price) -> float:
    """What a call takes if its plan has no hardware loop; of several launches, as the longest."""
    if not price.plan.plan.is_looped:
        return price.ns
    straight = priced(_unrolled(price.plan.plan))
    return price.ns * straight.cost.total_ns / price.plan.cost.total_ns


def _unrolled(plan: Any) -> Plan:
    straight = {"iteration_spans": 0} if isinstance(plan, UpsamplePlan) else {"looped": False}
    return cast(Plan, replace(plan, **straight))


def chunks_of(
    model: str, size: str, phase: str, options: PlanOptions, jobs: int
) -> tuple[tuple[Chunk, ...], tuple[OperationPlan, ...]]:
    """Every graph of a phase, and all that is no convolution."""
    prices = Prices(cores=options.cores, jobs=jobs)
    plan = model_plan(model, size_of(find(model), size), phase, options, prices)
    chunks = []
    for graph in plan.graphs:
        unrolled = sum(calls * unrolled_ns(price) for price, calls in graph.calls)
        chunks.append(Chunk(graph, graph.ns / unrolled - 1))
    return tuple(chunks), plan.operations


def everything(graph: GraphPlan, operations: Sequence[OperationPlan]) -> str:
    """A graph with the operations between its convolutions, in words."""
    counted = [(plan, plan.in_a_launch(graph.launches)) for plan in operations]
    ours = [(plan, calls) for plan, calls in counted if plan.instructions and calls]
    left = sum(calls for plan, calls in counted if not plan.instructions)
    ns = graph.ns + sum(calls * plan.call_ns for plan, calls in counted)
    instructions = graph.instructions + sum(calls * plan.instructions for plan, calls in ours)
    regions = graph.regions + sum(calls * plan.regions for plan, calls in ours)
    return (
        f"everything in it {ns / 1e6:.2f} ms modelled, instructions {instructions}, regions"
        f" {regions}, compiling {compile_s(instructions, regions) / 60:.1f} min;"
        f" {sum(calls for _, calls in ours)} norms and attentions of ours, {left} operations left"
        " to the compiler, whose instructions are not in it"
    )


def table(chunks: Sequence[Chunk]) -> str:
    """A row a graph."""
    columns = [
        Column("graph", "<"),
        Column("launches"),
        Column("ms a\nlaunch"),
        Column("instructions"),
        Column("hardware\nloops"),
        Column("lost to\nloops, %"),
        Column("compiling,\nmin"),
    ]
    rows = [
        [
            chunk.graph.name,
            f"{chunk.graph.launches}",
            f"{chunk.graph.ns / 1e6:.2f}",
            f"{chunk.graph.instructions}",
            f"{chunk.graph.regions}",
            f"{100 * chunk.lost:.2f}",
            f"{chunk.graph.compile_s / 60:.1f}",
        ]
        for chunk in chunks
    ]
    return aligned(columns, rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model")
    parser.add_argument("--size", default="", help="height x width x frames, or a size's name")
    parser.add_argument("--phase", default="decode")
    parser.add_argument("--machine", default="trn2")
    parser.add_argument("--accuracy", default=BF16)
    parser.add_argument("--cores", type=int, help="of a launch; without, the machine's")
    parser.add_argument("--instructions", type=int, default=_INSTRUCTIONS, help="of a graph")
    parser.add_argument("--regions", type=int, default=_REGIONS, help="hardware loops of a graph")
    parser.add_argument("--jobs", type=int, default=2)


def main(options: argparse.Namespace) -> int:
    """Print the graphs; 1 if the steady one is beyond its budget."""
    budget = GraphBudget(options.instructions, options.regions)
    plan_options = PlanOptions(options.machine, options.accuracy, options.cores, budget)
    chunks, operations = chunks_of(
        options.model, options.size, options.phase, plan_options, options.jobs
    )
    cores = describe_cores(plan_options.launch_cores)
    print(
        f"{options.model} {options.phase}, {options.machine}, accuracy {options.accuracy}, {cores},"
        f" at most {budget.instructions} instructions and {budget.regions} loops a graph"
    )
    print(f"{table(chunks)}\ncompiling {COMPILE_ASSUMPTION}")
    steady = max(chunks, key=lambda chunk: (chunk.graph.launches, chunk.graph.ns))
    print(everything(steady.graph, operations))
    print(steady.line)
    graph = steady.graph
    held = graph.instructions <= budget.instructions and graph.regions <= options.regions
    return 0 if held else 1
