"""The report of a model: one encode or decode at a size."""

from __future__ import annotations

from dataclasses import asdict, replace

from nkisim.fabric import FABRICS
from nkisim.machine import Machine
from trnconv.baseline import ModelBaseline, model_baseline
from trnconv.corpus.fleet.instances import Instance, instances
from trnconv.geometry import ConvShape
from trnconv.model_plan import (
    LayerPlan,
    ModelPlan,
    PlanOptions,
    Prices,
    between,
    by_kind,
    latencies,
    model_plan,
    operation_plans,
)
from trnconv.models import ModelEntry, find
from trnconv.models.sizes import size_of
from trnconv.problem.policy import DIRECT, policy_of
from trnconv.report.assemble import ReportInputs, ReportOptions, make_report
from trnconv.report.content import Budget, Contender, LatencyRow, Report, Subject
from trnconv.report.records import Besides, Convolution
from trnconv.report.scope import BESIDES, MODELLED, left_out_of_model, promise

_GIB = 2**30


def report_of_model(
    model: str,
    size: str,
    phase: str,
    options: PlanOptions,
    asked: ReportOptions,
    prices: Prices | None = None,
) -> Report:
    """Plan a model, schedule its heaviest layers, and compare."""
    entry = find(model)
    clip = size_of(entry, size)
    known = Prices(cores=options.cores) if prices is None else prices
    asked.tell("planning", 0, 0)
    plan = model_plan(entry, clip, phase, options, known)
    baseline = model_baseline(entry, clip, phase, options.machine, options.launch_cores)
    return make_report(_report_inputs(entry, plan, baseline, known), asked)


def _report_inputs(
    entry: ModelEntry, plan: ModelPlan, baseline: ModelBaseline | None, prices: Prices
) -> ReportInputs:
    machine, reach = plan.options.machine, between(plan)
    return ReportInputs(
        subject=_subject(entry, plan),
        machine=machine,
        cores=plan.options.launch_cores,
        accuracy=plan.options.accuracy,
        convolutions=[_convolution(layer, plan) for layer in plan.layers],
        baseline=_unknown if baseline is None else baseline.ns_of,
        baseline_seconds=None if baseline is None else baseline.seconds,
        besides=_besides(plan),
        longest_graph=plan.instructions,
        memory=_memory(plan, machine),
        contenders=_contenders(entry, plan, prices),
        modelled=(*MODELLED, BESIDES),
        left_out=left_out_of_model(),
        latencies=tuple(LatencyRow(**asdict(latency)) for latency in latencies(plan)),
        range_seconds=(reach.least, reach.most),
    )


def _unknown(shape: ConvShape) -> None:
    """No baseline."""


def _besides(plan: ModelPlan) -> Besides:
    trace, options = plan.trace, plan.options
    as_is = operation_plans(trace.operations_as_is, options.machine, options.launch_cores)
    as_is_seconds = sum(operation.ns for operation in as_is) / 1e9
    return Besides(by_kind(plan.operations), as_is_seconds, plan.copied_bytes)


def _subject(entry: ModelEntry, plan: ModelPlan) -> Subject:
    clip, phase = plan.size, plan.trace.phase
    frames = f", {clip.frames} frames" if clip.frames > 1 else ""
    return Subject(
        kind="model",
        title=f"{entry.title}: {phase} at {clip.height} \u00d7 {clip.width}{frames}",
        name=entry.name,
        phase=phase,
        size=f"{clip.height}x{clip.width}x{clip.frames}",
        source=plan.trace.source,
    )


def _convolution(layer: LayerPlan, plan: ModelPlan) -> Convolution:
    work, options = layer.work, plan.options
    shape = work.instead_of or work.shape
    policy = policy_of(options.accuracy)
    return Convolution(
        modules=layer.modules,
        problem=work.problem(options.machine, layer.price.plan.cost.instructions, policy),
        calls=layer.calls,
        price=layer.price,
        asked=shape if isinstance(shape, ConvShape) else None,
    )


def _memory(plan: ModelPlan, machine: Machine) -> tuple[Budget, ...]:
    """HBM that a launch has if all cores of an instance work alike."""
    where = _instance_of(machine)
    if where is None:
        return ()
    trace = plan.trace
    chip = where.device_gib * _GIB / where.chips
    note = "activations and caches alive at once, and weights; limit:"
    return (
        Budget(
            name="HBM, all cores at work",
            used=trace.peak_bytes + trace.weight_bytes,
            limit=chip * plan.options.launch_cores / FABRICS[where.machine].cores_per_chip,
            unit="B",
            note=f"{note} what a chip has for each launch of as many cores ({where.name})",
        ),
        Budget(
            name="HBM, one launch at work",
            used=trace.peak_bytes + trace.weight_bytes,
            limit=chip,
            unit="B",
            note=f"{note} the memory of a chip",
        ),
    )


def _instance_of(machine: Machine) -> Instance | None:
    return next(
        (instance for instance in instances() if instance.machine == machine.base_name), None
    )


def _contenders(entry: ModelEntry, plan: ModelPlan, prices: Prices) -> tuple[Contender, ...]:
    accuracy = plan.options.accuracy
    ours = Contender(
        name=f"ours, accuracy {accuracy}",
        seconds=plan.whole_seconds,
        is_subject=True,
        note=promise(accuracy),
    )
    if accuracy == DIRECT:
        return (ours,)
    options = replace(plan.options, accuracy=DIRECT)
    direct = model_plan(entry, plan.size, plan.trace.phase, options, prices)
    other = Contender(
        name=f"ours, accuracy {DIRECT}",
        seconds=direct.whole_seconds,
        is_subject=False,
        note=promise(DIRECT),
    )
    return (ours, other)
