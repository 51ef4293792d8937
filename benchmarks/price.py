"""`python -m benchmarks price`: what the planner believes a plan takes, beside its schedule.

The cost model decides which plan is taken. Here it is held against nkisim's schedule of the same
plan, for the best plan of every algorithm that answers a problem: with and without hardware loops,
residual, streamed weights, pieces, padding modes, upsampling, and as gradients.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.table import Column, aligned, microseconds, percent
from nkisim.machine import CONSTANTS_VERSION, MACHINES
from trnconv.algorithms.algorithm import Plan
from trnconv.cases import find
from trnconv.geometry import conv_shape, input_gradient_shape, transposed_shape
from trnconv.planner.best import offers_of
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import BEFORE, epilogue_of
from trnconv.problem.policy import DIRECT, FAST, policy_of
from trnconv.runtime import time_plan

HELP = "what the planner believes plans take, beside their schedules"
WITHIN = 0.05  # of the schedule: what a price is wanted to be
_SHORT = 6_000  # static instructions: a budget that only hardware loops keep
_LONG = 80_000  # one that most layers keep without
_RESIDUAL = epilogue_of("silu", BEFORE, "")


@dataclass(frozen=True)
class Ask:
    """A problem by name."""

    name: str
    problem: ConvProblem


@dataclass(frozen=True)
class PricedPlan:
    """A plan with its price and its schedule, in ns."""

    name: str
    plan: Plan
    price_ns: float
    scheduled_ns: float

    @property
    def error(self) -> float:
        """Of the price, as a share of the schedule."""
        return self.price_ns / self.scheduled_ns - 1


def asks() -> Iterator[Ask]:
    """Layers of models, and what can be asked about them; cropped, so that each takes seconds."""
    for key in ("a", "b", "c2", "c4", "d", "e", "f", "g", "h1", "i1", "i2", "i3", "j", "k1", "k3"):
        shape = find(key).shape
        short = replace(shape, size=(min(shape.size[0], 4), *shape.size[1:]))
        problem = ConvProblem(short, MACHINES["trn2"], budget=_LONG, policy=policy_of(FAST))
        yield Ask(key, problem)
        if key in ("a", "b", "c2", "e", "i1", "i2", "k1"):
            yield Ask(f"{key}, short", replace(problem, budget=_SHORT))
        if key in ("a", "b", "c2", "i2"):
            yield Ask(f"{key}, residual", replace(problem, epilogue=_RESIDUAL))
            yield Ask(
                f"{key}, residual, short", replace(problem, epilogue=_RESIDUAL, budget=_SHORT)
            )
    yield from _layouts()
    yield from _gradients()
    yield from _machines()


def _layouts() -> Iterator[Ask]:
    """Inputs in pieces, padding modes, upsampling, depthwise, transposed, other types."""
    wide, deep = (1, 96, 4, 48, 320), (1, 256, 4, 40, 96)
    yield _ask("pieces", wide, (96, 96, 3, 3, 3), pieces=(2, 2), padding=(0, 1, 1))
    for budget in (_LONG, _SHORT):
        loops = ", short" if budget == _SHORT else ""
        for mode in ("replicate", "reflect"):
            modes = ("zeros", mode, mode)
            args: dict[str, Any] = {"padding": (0, 1, 1), "padding_mode": modes, "budget": budget}
            yield _ask(f"{mode}{loops}", deep, (256, 256, 3, 3, 3), **args)
        doubled = {"padding": (0, 1, 1), "upsample": (1, 2, 2), "budget": budget}
        yield _ask(f"upsampled{loops}", (1, 256, 3, 40, 64), (128, 256, 3, 3, 3), **doubled)
        yield _ask(
            f"depthwise{loops}",
            (1, 512, 4, 64, 64),
            (512, 1, 3, 3, 3),
            groups=512,
            padding=1,
            budget=budget,
        )
        yield _ask(f"fp32{loops}", deep, (256, 256, 3, 3, 3), dtype="float32", budget=budget)
    yield _ask("stride 2", (1, 128, 3, 128, 128), (128, 128, 3, 3, 3), stride=2, padding=1)
    yield _ask(
        "depthwise 7x7", (1, 384, 1, 56, 56), (384, 1, 1, 7, 7), groups=384, padding=(0, 3, 3)
    )
    yield _ask("groups", (1, 256, 1, 64, 64), (256, 64, 1, 3, 3), groups=4, padding=(0, 1, 1))
    yield _ask("audio", (1, 128, 1, 1, 16384), (128, 128, 1, 1, 7), padding=(0, 0, 3))
    shape = transposed_shape((1, 128, 2, 48, 48), (128, 64, 3, 4, 4), stride=(1, 2, 2), padding=1)
    yield Ask("transposed", ConvProblem(shape, MACHINES["trn2"]))


def _gradients() -> Iterator[Ask]:
    for key in ("b", "c2", "i2"):
        shape = find(key).shape
        short = replace(shape, size=(3, *shape.size[1:]))
        problem = ConvProblem(short, MACHINES["trn2"], budget=_LONG, policy=policy_of(DIRECT))
        yield Ask(f"{key}, weight gradient", replace(problem, direction=WEIGHT_GRADIENT))
        yield Ask(
            f"{key}, weight gradient, short",
            replace(problem, direction=WEIGHT_GRADIENT, budget=_SHORT),
        )
        yield Ask(f"{key}, input gradient", replace(problem, shape=input_gradient_shape(short)))


def _machines() -> Iterator[Ask]:
    for name in ("trn1", "trn3"):
        for key in ("a", "c4", "k1"):
            shape = find(key).shape
            short = replace(shape, size=(min(shape.size[0], 3), *shape.size[1:]))
            problem = ConvProblem(short, MACHINES[name], budget=_LONG, policy=policy_of(FAST))
            yield Ask(f"{key}, {name}", problem)
            yield Ask(f"{key}, {name}, short", replace(problem, budget=_SHORT))


def _ask(name: str, x: Sequence[int], w: Sequence[int], **arguments: Any) -> Ask:
    """A problem by torch's arguments and by those of a problem."""
    ours = {key: arguments.pop(key) for key in ("pieces", "budget", "dtype") if key in arguments}
    shape = conv_shape(x, w, **arguments)
    return Ask(name, ConvProblem(shape, MACHINES["trn2"], policy=policy_of(FAST), **ours))


def priced_plans(ask: Ask) -> list[PricedPlan]:
    """The best plan of each algorithm that has one, scheduled."""
    return [
        PricedPlan(
            ask.name,
            offer.best.plan,
            offer.best.cost.total_ns,
            time_plan(offer.best.plan).makespan_ns,
        )
        for offer in offers_of(ask.problem)
        if offer.plans
    ]


def table(plans: Sequence[PricedPlan]) -> str:
    """One line for each plan."""
    columns = [Column("problem", "<"), Column("machine", "<"), Column("algorithm", "<")]
    columns += [Column("price\nus"), Column("schedule\nus"), Column("error"), Column("plan", "<")]
    rows = [
        [
            priced.name,
            priced.plan.machine_name,
            priced.plan.family,
            microseconds(priced.price_ns),
            microseconds(priced.scheduled_ns),
            percent(priced.error),
            priced.plan.in_words(),
        ]
        for priced in plans
    ]
    return aligned(columns, rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="problems whose name begins with this")


def main(options: argparse.Namespace) -> int:
    """Price and schedule; 0 whatever comes of it: prices are shown, not judged."""
    wanted = [ask for ask in asks() if ask.name.startswith(options.only)]
    with multiprocessing.Pool(options.workers) as pool:
        every = [plan for plans in pool.imap(priced_plans, wanted) for plan in plans]
    distinct = list({(plan.plan, plan.price_ns): plan for plan in reversed(every)}.values())[::-1]
    print(f"Modelled: constants {CONSTANTS_VERSION}, default reading, one core.\n")
    print(table(distinct))
    errors = sorted(abs(plan.error) for plan in distinct)
    near = sum(error <= WITHIN for error in errors)
    print(f"\nmedian {median(errors):.1%}, worst plans:")
    for plan in sorted(distinct, key=lambda plan: -abs(plan.error))[:5]:
        print(f"  {plan.name}, {plan.plan.family}: {percent(plan.error)}")
    print(f"within 5 %: {near}/{len(distinct)}, worst {100 * errors[-1]:.1f} %")
    return 0
