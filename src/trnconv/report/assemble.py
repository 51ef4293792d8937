"""Making a report of convolutions that were planned and priced before.

A report has two kinds of modelled times. Totals and rows of layers are prices as they were given:
mostly cost models. The heaviest layers are also traced and scheduled here, instruction by
instruction, which takes seconds a layer: for their timelines, for what they take in every reading,
and for what each open point of the timing model changes in the heaviest one. `ReadingRow` has both
times of a layer side by side.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import nkisim
import trnconv
from nkisim.machine import Machine, Reading
from trnconv.baseline import NAME, what
from trnconv.crop import describe, under_its_plan
from trnconv.geometry import ConvShape
from trnconv.planner.best import best_plan
from trnconv.planner.shares import plans_of_two
from trnconv.problem.conv_problem import ConvProblem
from trnconv.report.content import (
    Budget,
    Contender,
    Effect,
    LatencyRow,
    LayerTimeline,
    Origin,
    Report,
    Sensitivity,
    Subject,
    Totals,
)
from trnconv.report.records import (
    BaselineOf,
    Besides,
    Convolution,
    by_time,
    instruction_budget,
    kind_rows,
    layer_rows,
    machine_facts,
    on_chip_budgets,
    totals_of,
)
from trnconv.report.schedules import TimedLaunch, TimedLayer, time_layer, time_taken
from trnconv.report.sensitivity import effects, largest_first, reading_row
from trnconv.report.strips import extrapolated, strips_of, window_of

_BLOCKS = 3  # of rows, of the piece that is scheduled again for every open point

Tell = Callable[[str, int, int], None]  # what is being done, how far, of how many (0: unknown)


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """What a report is made of: planned and priced by `of_model.py` or `of_layer.py`."""

    subject: Subject
    machine: Machine
    cores: int  # of a launch
    accuracy: str
    convolutions: Sequence[Convolution]
    baseline: BaselineOf
    baseline_seconds: float | None
    besides: Besides  # what is no convolution
    longest_graph: int  # static instructions
    memory: tuple[Budget, ...]  # off chip
    contenders: tuple[Contender, ...]  # ours; the baseline is added
    modelled: tuple[str, ...]  # what the times cover, in sentences
    left_out: tuple[str, ...]  # and what not
    latencies: tuple[LatencyRow, ...] = ()
    range_seconds: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """How much of it, and what made it."""

    command: str
    date: str
    heaviest: int = 3  # layers that are traced and scheduled
    effects: bool = True  # of every open point, on the heaviest of them
    tell: Tell = lambda *_: None  # hears what takes time


def make_report(inputs: ReportInputs, options: ReportOptions) -> Report:
    """The report. A layer's number is its place by time, from 1, in rows and timelines alike."""
    ordered = by_time(inputs.convolutions)
    rows = layer_rows(ordered, inputs.baseline)
    totals = totals_of(ordered, inputs.accuracy, inputs.baseline_seconds, inputs.besides)
    timed: list[TimedLayer] = []
    heaviest = ordered[: options.heaviest]
    for convolution in heaviest:
        options.tell("scheduling the heaviest layers", len(timed), len(heaviest))
        timed.append(_scheduled(convolution))
    timelines = tuple(_timeline(number, layer) for number, layer in enumerate(timed, 1))
    facts = machine_facts(inputs.machine, inputs.cores)
    instructions = instruction_budget(inputs.longest_graph)
    return Report(
        subject=inputs.subject,
        origin=_origin(options),
        machine=facts,
        totals=totals,
        latencies=inputs.latencies,
        range_seconds=inputs.range_seconds,
        layers=rows,
        others=kind_rows(inputs.besides, totals.whole_seconds),
        timelines=timelines,
        budgets=(instructions, *inputs.memory, *on_chip_budgets(timelines, facts)),
        contenders=(*inputs.contenders, *_baseline(totals, inputs.cores)),
        sensitivity=_sensitivity(ordered, timed, options),
        modelled=inputs.modelled,
        left_out=inputs.left_out,
    )


def _scheduled(convolution: Convolution) -> TimedLayer:
    """With the plans that were priced.

    Of several launches a price has the plans of the longest only: all are planned again, with the
    length of its program as the budget.
    """
    if convolution.price.launches == 1:
        return time_taken(convolution.problem, convolution.price.plans)
    budget = convolution.price.plan.cost.instructions
    return time_layer(replace(convolution.problem, budget=budget), cores=convolution.cores)


def _origin(options: ReportOptions) -> Origin:
    return Origin(
        command=options.command,
        date=options.date,
        trnconv_version=trnconv.__version__,
        nkisim_version=nkisim.__version__,
        python_version=platform.python_version(),
    )


def _timeline(number: int, timed: TimedLayer) -> LayerTimeline:
    """Of the longest launch, and of its core that ends last."""
    launch = timed.longest
    line = launch.timelines[Reading.default]
    window = window_of(line)
    memory = launch.memory
    return LayerTimeline(
        number=number,
        ns=line.makespan_ns,
        bound=line.bound,
        plan=launch.taken.plan.in_words(),
        launches=len(timed.launches),
        core=launch.last,
        ends_ns=tuple(core.makespan_ns for core in launch.cores[Reading.default]),
        mfu=line.mfu,
        sbuf_peak_bytes_per_partition=memory.sbuf_peak_bytes_per_partition,
        psum_peak_banks=memory.psum_peak_banks,
        window_begin_ns=window[0],
        window_end_ns=window[1],
        extrapolated=extrapolated(line),
        strips=strips_of(line, window),
    )


def _baseline(totals: Totals, cores: int) -> tuple[Contender, ...]:
    if totals.baseline_whole_seconds is None:
        return ()
    seconds = totals.baseline_whole_seconds
    return (Contender(name=NAME, seconds=seconds, is_subject=False, note=what(cores)),)


def _sensitivity(
    ordered: Sequence[Convolution], timed: Sequence[TimedLayer], options: ReportOptions
) -> Sensitivity:
    """What open points change: of the layers in `timed`, which are the first of `ordered`."""
    heaviest = ordered[: len(timed)]
    whole_ns = sum(convolution.total_ns for convolution in ordered)
    readings = tuple(
        reading_row(number, convolution.price.ns, scheduled)
        for number, (convolution, scheduled) in enumerate(zip(heaviest, timed, strict=True), 1)
    )
    effects: tuple[Effect, ...] = ()
    without: tuple[str, ...] = ()
    cut = ""
    if options.effects and timed and len(timed[0].launches) == 1:
        options.tell("cutting a piece of the heaviest layer", 0, 0)
        piece, cut = _piece(ordered[0].problem, timed[0])
        effects, without = largest_first(list(_effects(piece.longest, options.tell)))
    return Sensitivity(
        readings=readings,
        scheduled_share=sum(convolution.total_ns for convolution in heaviest) / whole_ns,
        effects_of=1 if effects or without else 0,
        effects_cut=f", {cut}" if cut else "",
        effects=effects,
        without_effect=without,
    )


def _effects(launch: TimedLaunch, tell: Tell) -> Iterator[Effect]:
    points = len(launch.run.machine.timing.assumptions())
    for done, effect in enumerate(effects(launch), 1):
        tell("scheduling it once for each open point", done, points)
        yield effect


def _piece(problem: ConvProblem, whole: TimedLayer) -> tuple[TimedLayer, str]:
    """A few blocks of a layer's rows, and how many in words; if that fails, the layer and no words.

    Every open point takes up to two more schedules, so a piece is scheduled that is done quickly,
    with the layer's own plan. On two cores that is the plan of a core alone, cut into two.
    """
    alone = whole.launched == 1
    best = whole.longest.taken if alone else best_plan(problem)
    smaller = under_its_plan(problem, best, whole.launched * _BLOCKS)
    if smaller is None:
        return whole, ""
    smaller_problem, planned = smaller
    assert isinstance(problem.shape, ConvShape)
    assert isinstance(smaller_problem.shape, ConvShape)
    plans = (planned,) if alone else plans_of_two(planned, smaller_problem)
    by = "with the same plan" if alone else "with one core's plan, halved"
    part = f"{describe(problem.shape, smaller_problem.shape)} {by}"
    return time_taken(smaller_problem, plans, (Reading.default,)), part
