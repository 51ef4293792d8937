"""`python -m benchmarks model wan2.1 --size 720x1280x81`: all convolutions of one run of a model.

Every distinct dense call of the catalogue is planned within its share of a graph's instructions,
simulated and scheduled, hardware loops included; the baseline has the same problem and no budget.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scatter import scatter_ns
from benchmarks.table import Column, aligned, by_times, microseconds, significant
from nkisim.machine import CONSTANTS_VERSION, MACHINES, TRN2, Machine, Reading
from trnconv.catalogue import Call, calls
from trnconv.errors import TrnconvError
from trnconv.geometry import ConvShape
from trnconv.planner.best import only, searched_plan
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.launches import launches
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.runtime import time_plan

HELP = "all convolutions of one run of a model"
DTYPE = "bfloat16"
GRAPH_BUDGET = 5_000_000  # static instructions
WIDTHS = {480: 832, 704: 1280, 720: 1280}  # what `p` stands for in the catalogue's scenarios


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One call, all its launches together."""

    ours_ns: float
    baseline_ns: float
    bound: str  # of the longest launch
    instructions: int
    looped: bool
    executed_macs: int  # what the array does, useful or not
    launches: int


def scenario_size(scenario: str) -> str:
    """Height x width x frames of a scenario's name: 720p81_tiled is 720x1280x81."""
    base = scenario.partition("_")[0]
    height, p, frames = base.partition("p")
    if p and height.isdecimal() and frames.isdecimal() and int(height) in WIDTHS:
        return f"{height}x{WIDTHS[int(height)]}x{frames}"
    return base


def find_calls(model: str, size: str, phase: str) -> list[Call]:
    """The calls of the one scenario that a model's name, a size and a phase describe."""
    near = [call for call in calls() if call.model.startswith(model) and call.phase == phase]
    named = [call for call in near if call.scenario == size]
    found = named or [call for call in near if scenario_size(call.scenario) == size]
    runs = dict.fromkeys((call.model, call.scenario) for call in found)
    if len(runs) == 1:
        return found
    wanted = f"{phase} of a model {model}... at {size}"
    if runs:
        listed = ", ".join(f"{name} --size {scenario}" for name, scenario in runs)
        raise TrnconvError(f"{wanted}: there are {len(runs)}. Name one of {listed}.")
    listed = "; ".join(_known(model))
    raise TrnconvError(f"{wanted}: not in the catalogue. It has {listed}.")


def _known(model: str) -> list[str]:
    """What there is of the models asked for, else of all."""
    asked = [call for call in calls() if call.model.startswith(model)] or list(calls())
    return list(
        dict.fromkeys(f"{call.model} --size {call.scenario} --phase {call.phase}" for call in asked)
    )


def price(shape: ConvShape, machine: Machine, budget: int) -> Cost:
    """Plan, simulate and schedule a problem, launch by launch; equal launches once."""
    parts = [launch.shape for launch in launches(shape)]
    costs = {part: _price_launch(part, machine, budget) for part in dict.fromkeys(parts)}
    every = [costs[part] for part in parts]
    return Cost(
        ours_ns=sum(cost.ours_ns for cost in every),
        baseline_ns=scatter_ns(shape, machine, Reading.default),
        bound=max(every, key=lambda cost: cost.ours_ns).bound,
        instructions=sum(cost.instructions for cost in every),
        looped=any(cost.looped for cost in every),
        executed_macs=sum(cost.executed_macs for cost in every),
        launches=len(every),
    )


@dataclass(frozen=True)
class _LaunchCost:
    ours_ns: float
    bound: str
    instructions: int
    looped: bool
    executed_macs: int


def _price_launch(shape: ConvShape, machine: Machine, budget: int) -> _LaunchCost:
    problem = ConvProblem(shape, machine, DTYPE, budget=budget)
    searched = searched_plan(only(problem, "direct"))
    timeline = time_plan(searched.plan)
    return _LaunchCost(
        timeline.makespan_ns,
        timeline.bound,
        timeline.static_instructions,
        searched.plan.is_looped,
        searched.cost.columns * machine.partitions**2,
    )


@dataclass(frozen=True)
class Layer:
    """A record of the catalogue and what one call of it costs."""

    call: Call
    cost: Cost


@dataclass(frozen=True)
class Totals:
    """Sums over all calls."""

    ours_s: float
    baseline_s: float
    instructions: int
    executed_macs: int
    dense_macs: int
    calls: int
    launches: int


def totals(layers: Sequence[Layer]) -> Totals:
    """Every layer as often as it is called."""
    return Totals(
        sum(layer.call.calls * layer.cost.ours_ns for layer in layers) / 1e9,
        sum(layer.call.calls * layer.cost.baseline_ns for layer in layers) / 1e9,
        sum(layer.call.calls * layer.cost.instructions for layer in layers),
        sum(layer.call.calls * layer.cost.executed_macs for layer in layers),
        sum(layer.call.calls * layer.call.macs for layer in layers),
        sum(layer.call.calls for layer in layers),
        sum(layer.call.calls * layer.cost.launches for layer in layers),
    )


def table(layers: Sequence[Layer]) -> str:
    """One line for each layer, in the order of the catalogue."""
    whole = totals(layers).ours_s * 1e9
    columns = [Column("calls"), Column("input", "<"), Column("weight", "<"), Column("stride", "<")]
    columns += [Column(text) for text in ("ours\nus", "baseline\nus", "ours /\nbaseline")]
    columns += [Column("of the\nwhole"), Column("bound", "<"), Column("instruc-\ntions")]
    columns += [Column("loops", "<"), Column("module", "<")]
    return aligned(columns, [_row(layer, whole) for layer in layers])


def _row(layer: Layer, whole_ns: float) -> list[str]:
    call, cost = layer.call, layer.cost
    shape = call.implicit_shape()
    return [
        f"{call.calls}",
        by_times((shape.batch, shape.c_in, *shape.size)),
        by_times((shape.c_out, shape.c_in, *shape.kernel)),
        by_times(shape.stride),
        microseconds(cost.ours_ns),
        microseconds(cost.baseline_ns),
        f"{cost.ours_ns / cost.baseline_ns:.3f}",
        f"{100 * call.calls * cost.ours_ns / whole_ns:.1f} %",
        cost.bound,
        f"{cost.instructions}",
        "looped" if cost.looped else "unrolled",
        call.module,
    ]


def last_line(whole: Totals) -> str:
    """The whole run, ours and the baseline's."""
    return (
        f"{significant(whole.ours_s)} s modelled, baseline {significant(whole.baseline_s)} s,"
        f" ratio {whole.ours_s / whole.baseline_s:.3f}, instructions {whole.instructions}"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("model", help="start of a model's name, such as wan2.1")
    parser.add_argument("--size", required=True, help="720x1280x81, or a scenario as 720p81")
    parser.add_argument("--phase", default="decode", help="encode, decode, ...")
    parser.add_argument("--machine", default=TRN2.name, choices=sorted(MACHINES))
    parser.add_argument(
        "--budget-graph",
        type=int,
        default=GRAPH_BUDGET,
        metavar="N",
        help="static instructions of all calls together",
    )


def main(options: argparse.Namespace) -> int:
    """Model every layer, print them and their sum; the exit code."""
    machine = MACHINES[options.machine]
    found = find_calls(options.model, options.size, options.phase)
    records = [call for call in found if call.dense]
    if not records:
        raise TrnconvError(f"{options.model} {options.size}: it has no dense convolution to time.")
    budget = min(DEFAULT_BUDGET, options.budget_graph // _launch_count(records))
    priced: dict[ConvShape, Cost] = {}
    layers: list[Layer] = []
    for call in records:
        shape = call.implicit_shape()
        if shape not in priced:
            print(f"{len(layers)} of {len(records)}  {call.module}", file=sys.stderr, flush=True)
            priced[shape] = price(shape, machine, budget)
        layers.append(Layer(call, priced[shape]))
    print(_heading(records[0], machine, budget), "", table(layers), "", sep="\n")
    print(_summary(totals(layers), options.budget_graph, len(found) - len(records)))
    print(last_line(totals(layers)))
    return 0


def _launch_count(records: Sequence[Call]) -> int:
    return sum(call.calls * len(launches(call.implicit_shape())) for call in records)


def _heading(first: Call, machine: Machine, budget: int) -> str:
    return (
        f"{first.model} {first.scenario} {first.phase}: every time is modelled, {machine.name},"
        f" constants {CONSTANTS_VERSION}, default reading, one core, bf16, launches not counted.\n"
        f"Plans of at most {budget} instructions a launch; zeros a wrapper put into an input are"
        " padding. us are of one call."
    )


def _summary(whole: Totals, graph_budget: int, left_out: int) -> str:
    text = (
        f"{whole.calls} calls in {whole.launches} launches;"
        f" {100 * whole.instructions / graph_budget:.0f} % of {graph_budget} instructions\n"
        f"executed / dense multiply-adds {whole.executed_macs / whole.dense_macs:.3f}"
        f" ({whole.executed_macs / 1e12:.1f} T / {whole.dense_macs / 1e12:.1f} T)"
    )
    if left_out:
        text += f"\nleft out: {left_out} records that are grouped or transposed"
    return text
