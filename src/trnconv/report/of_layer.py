"""The report of a single layer."""

from __future__ import annotations

from dataclasses import replace

from trnconv.baseline import layer_ns
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.policy import ALWAYS_DIRECT, DIRECT
from trnconv.report.assemble import ReportInputs, ReportOptions, make_report
from trnconv.report.content import Contender, Report, Subject
from trnconv.report.records import Besides, Convolution
from trnconv.report.scope import MODELLED, left_out_of_layer, promise
from trnconv.runtime.pricing import price


def report_of_layer(
    name: str, note: str, problem: ConvProblem, options: ReportOptions, cores: int | None = None
) -> Report:
    """Plan and schedule one layer, and compare."""
    options.tell("planning", 0, 0)
    launched = cores_of(problem.machine, cores)
    priced = price(problem, cores=launched)
    shape = problem.shape
    known = (
        layer_ns(shape, problem.machine, problem.dtype, launched)
        if isinstance(shape, ConvShape)
        else None
    )
    inputs = ReportInputs(
        subject=_subject(name, note, problem),
        machine=problem.machine,
        cores=launched,
        accuracy=problem.policy.accuracy,
        convolutions=[
            Convolution(
                (name,), problem, 1, priced, shape if isinstance(shape, ConvShape) else None
            )
        ],
        baseline=lambda _: known,
        baseline_seconds=None if known is None else known / 1e9,
        besides=Besides(),
        longest_graph=priced.instructions,
        memory=(),
        contenders=_contenders(problem, priced.ns / 1e9, launched),
        modelled=MODELLED,
        left_out=left_out_of_layer(),
    )
    return make_report(inputs, options)


def _subject(name: str, note: str, problem: ConvProblem) -> Subject:
    shape = problem.shape
    size, taps = ("\u00d7".join(map(str, numbers)) for numbers in (shape.size, shape.kernel))
    return Subject(
        kind="layer",
        title=f"{name}: {shape.c_in} \u2192 {shape.c_out} channels, {taps}, input {size}",
        name=name,
        phase="",
        size="x".join(map(str, shape.size)),
        source=note or "as the command describes it",
    )


def _contenders(problem: ConvProblem, seconds: float, cores: int) -> tuple[Contender, ...]:
    accuracy = problem.policy.accuracy
    ours = Contender(
        name=f"ours, accuracy {accuracy}",
        seconds=seconds,
        is_subject=True,
        note=promise(accuracy),
    )
    if accuracy == DIRECT:
        return (ours,)
    direct = price(replace(problem, policy=ALWAYS_DIRECT), cores=cores).ns / 1e9
    name = f"ours, accuracy {DIRECT}"
    return (ours, Contender(name=name, seconds=direct, is_subject=False, note=promise(DIRECT)))
