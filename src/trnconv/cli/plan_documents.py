"""Plans as JSON documents: what `trnconv plan --json` prints and tables are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkisim.machine import find_machine
from trnconv.geometry import ConvShape
from trnconv.model_plan import (
    GraphPlan,
    LayerPlan,
    ModelPlan,
    between,
    by_kind,
    is_tuned,
    latencies,
    shares_by_bound,
)
from trnconv.models import find
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.limits import COMPILE_ASSUMPTION
from trnconv.records import to_json
from trnconv.runtime.pricing import Price
from trnconv.traces import TracedConv

if TYPE_CHECKING:
    from trnconv.cli.layer_options import LayerRequest

LEFT_OUT = ("what a launch takes to start",)
REST = (
    "priced as one kernel per operation. Patched models use our kernels for norms, group"
    " statistics, modulation and attention; how the compiler fuses the rest is not modelled"
)


def layer_document(
    layer: LayerRequest, problem: ConvProblem, price: Price, cores: int | None = None
) -> dict[str, Any]:
    """One layer, planned."""
    return {
        "kind": "modelled",
        "layer": {"name": layer.name, "note": layer.note, "in_words": layer.in_words()},
        **_label(problem.machine.name),
        "cores": cores_of(problem.machine, cores),
        "dtype": problem.dtype,
        "accuracy": problem.policy.accuracy,
        "multiply_adds": problem.shape.macs(),
        "budget": problem.budget,
        "sbuf_usable_bytes_per_partition": problem.machine.sbuf_usable_bytes_per_partition,
        **_price(price, tuned=is_tuned(problem, price)),
        "decisions": to_json(price.plan.plan, but=("reduced", "shape")),
    }


def _label(machine: str) -> dict[str, Any]:
    constants = find_machine(machine).constants
    return {"machine": machine, "constants_version": constants, "reading": "default"}


def _price(price: Price, *, tuned: bool) -> dict[str, Any]:
    """What one call costs, and how it is computed."""
    priced = price.plan
    return {
        "ns": price.ns,
        "bound": price.bound,
        "instructions": price.instructions,
        "regions": price.regions,
        "hbm_bytes": price.hbm_bytes,
        "executed_multiply_adds": price.executed_macs,
        "launches": price.launches,
        "sbuf_bytes_per_partition": priced.cost.sbuf_bytes,
        "algorithm": priced.plan.family,
        "plan": priced.plan.in_words(),
        "block": priced.plan.block_in_words(),
        "tuned": tuned,
        "shipped": price.shipped,
    }


@dataclass(frozen=True)
class ClipCall:
    """How a model is called: clips at once, and their type; what it is, if no registry knows it."""

    batch: int = 1
    dtype: str = "bfloat16"
    own: str = ""  # class of a module


ONE_CLIP = ClipCall()


def model_document(plan: ModelPlan, called: ClipCall = ONE_CLIP) -> dict[str, Any]:
    """A model, planned; its layers, the heaviest first."""
    trace, size = plan.trace, plan.size
    return {
        "kind": "modelled",
        "model": _named(trace.model, called),
        "batch": called.batch,
        "dtype": called.dtype,
        "size": {
            "name": size.name,
            "height": size.height,
            "width": size.width,
            "frames": size.frames,
        },
        "phase": trace.phase,
        **_label(plan.options.machine_name),
        "cores": plan.options.launch_cores,
        "accuracy": plan.options.accuracy,
        "whole_seconds": plan.whole_seconds,
        "seconds": plan.seconds,
        "operation_seconds": plan.operation_seconds,
        "latencies": [to_json(latency) for latency in latencies(plan)],
        "between_seconds": to_json(between(plan)),
        "share_by_bound": dict(shares_by_bound(plan)),
        "operations": [to_json(kind) for kind in by_kind(plan.operations)],
        "operations_by": REST,
        "calls": plan.calls,
        "multiply_adds": plan.macs,
        "instructions": plan.instructions,
        "instruction_limit": plan.options.graph.instructions,
        "fits_a_graph": plan.fits_a_graph,
        "graphs": [_graph(graph) for graph in plan.graphs],
        "regions": plan.regions,
        "compile_s": plan.compile_s,
        "compile_assumption": COMPILE_ASSUMPTION,
        "convolution_bytes": plan.convolution_bytes,
        "copied_bytes": plan.copied_bytes,
        "copies": [to_json(copy) for copy in trace.moved],
        "peak_bytes": trace.peak_bytes,
        "largest_bytes": trace.largest_bytes,
        "largest_shape": list(trace.largest_shape),
        "weight_bytes": trace.weight_bytes,
        "convolutions_patched": trace.patched,
        "convolutions_left_to_torch": [to_json(left) for left in trace.left_to_torch],
        "traced_with": trace.source,
        "left_out": list(LEFT_OUT),
        "distinct": len(plan.layers),
        "tuned": sum(layer.tuned for layer in plan.layers),
        "shipped": sum(layer.price.shipped for layer in plan.layers),
        "layers": [_layer(layer, plan) for layer in plan.heaviest()],
    }


def _named(model: str, called: ClipCall) -> dict[str, str]:
    if called.own:
        return {"name": model, "title": model, "class": called.own}
    entry = find(model)
    return {"name": entry.name, "title": entry.title, "class": entry.diffusers_class}


def _graph(graph: GraphPlan) -> dict[str, Any]:
    return {
        "name": graph.name,
        "launches": graph.launches,
        "ns": graph.ns,
        "instructions": graph.instructions,
        "regions": graph.regions,
        "compile_s": graph.compile_s,
    }


def _layer(layer: LayerPlan, plan: ModelPlan) -> dict[str, Any]:
    return {
        "modules": list(layer.modules),
        "convolution": describe_convolution(layer.work),
        "input": _by_x(layer.work.shape.size),
        "calls": layer.calls,
        "total_ns": layer.ns,
        "share": layer.ns / 1e9 / plan.seconds,
        "call": _price(layer.price, tuned=layer.tuned),
        "work": to_json(layer.work, but=("module",)),
    }


def describe_convolution(work: TracedConv) -> str:
    """Channels, taps and what is special: 384>192 1x3x3 up 1x2x2."""
    shape = work.shape
    words = [f"{shape.c_in}>{shape.c_out}", _by_x(shape.kernel)]
    if shape.stride != (1, 1, 1):
        words.append(f"/{_by_x(shape.stride)}")
    if isinstance(shape, ConvShape) and shape.upsample != (1, 1, 1):
        words.append(f"up {_by_x(shape.upsample)}")
    if shape.groups > 1:
        words.append(f"{shape.groups} groups")
    return " ".join(words)


def _by_x(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
