"""ModelPlan: every convolution of a model planned, everything it does priced, without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nkisim.machine import Machine, find_machine
from trnconv.errors import PlanError, UnsupportedError
from trnconv.fused_ops.refusal import has_kernels
from trnconv.fused_ops.rms_norm.epilogue import is_faster_fused
from trnconv.model_plan.operations import OperationPlan, operation_plans
from trnconv.model_plan.prices import Prices
from trnconv.model_plan.traces import model_trace
from trnconv.models import ModelEntry, Size, find
from trnconv.models.sizes import size_of
from trnconv.planner.table import algorithm_of
from trnconv.planner.tuned_plans import tuned_plan
from trnconv.problem.conv_problem import ConvProblem, without_norm
from trnconv.problem.cores import cores_of, describe_cores
from trnconv.problem.limits import DEFAULT_BUDGET, compile_s
from trnconv.problem.policy import BF16, policy_of
from trnconv.runtime.graph import ONE_GRAPH, Ask, GraphBudget, price_graph
from trnconv.runtime.pricing import Price
from trnconv.traces import (
    Graph,
    ModelTrace,
    TracedConv,
    graphs_of,
    without_fused_norms,
    without_norm_epilogues,
    without_norms,
)


@dataclass(frozen=True)
class PlanOptions:
    """Where a model would run, and what accuracy is asked for: `problem/policy.py`."""

    machine_name: str = "trn2"
    accuracy: str = BF16
    cores: int | None = None  # of a launch; None: as many as the machine's has
    graph: GraphBudget = ONE_GRAPH  # what a compiler may be given at once

    @property
    def machine(self) -> Machine:
        """The machine of this name."""
        return find_machine(self.machine_name)

    @property
    def launch_cores(self) -> int:
        """Cores of a launch."""
        return cores_of(self.machine, self.cores)


DEFAULT_OPTIONS = PlanOptions()
Alike = list[tuple[list[TracedConv], int]]  # works that a kernel cannot tell apart, and their calls


@dataclass(frozen=True)
class LayerPlan:
    """Equal calls of a convolution, by one module or by several, and what one of them costs."""

    work: TracedConv  # of the first module
    modules: tuple[str, ...]
    calls: int  # of all modules together
    price: Price
    tuned: bool  # whether the plan comes from a file that `trnconv tune` wrote

    @property
    def ns(self) -> float:
        """All calls together."""
        return self.calls * self.price.ns

    @property
    def instructions(self) -> int:
        """Static instructions of all calls."""
        return self.calls * self.price.instructions

    @property
    def hbm_bytes(self) -> int:
        """Bytes that all calls read and write."""
        return self.calls * self.price.hbm_bytes

    @property
    def macs(self) -> int:
        """Multiply-adds of all calls, as the model asks for them."""
        asked = self.work.instead_of or self.work.shape
        return self.calls * asked.macs()


@dataclass(frozen=True)
class GraphPlan:
    """Convolutions that are compiled together, and one launch of them."""

    name: str
    launches: int
    calls: tuple[tuple[Price, int], ...]  # of a launch: equal ones, and how many

    @property
    def ns(self) -> float:
        """Of a launch, its convolutions one after the other."""
        return sum(calls * price.ns for price, calls in self.calls)

    @property
    def instructions(self) -> int:
        """Static, as a compiler counts them."""
        return sum(calls * price.instructions for price, calls in self.calls)

    @property
    def regions(self) -> int:
        """Hardware loops."""
        return sum(calls * price.regions for price, calls in self.calls)

    @property
    def compile_s(self) -> float:
        """How long compiling is assumed to take."""
        return compile_s(self.instructions, self.regions)


@dataclass(frozen=True)
class ModelPlan:
    """A phase of a model at a size. Times are modelled, one launch after the other.

    `layers` are in the order of their first calls. `operations` are all that the model does
    besides, copies included, each priced as a kernel of its own. Left out: what a launch takes to
    start.
    """

    trace: ModelTrace
    size: Size
    options: PlanOptions
    layers: tuple[LayerPlan, ...]
    graphs: tuple[GraphPlan, ...]
    operations: tuple[OperationPlan, ...]

    @property
    def label(self) -> str:
        """Where times come from, in words."""
        cores = describe_cores(self.options.launch_cores)
        machine = f"{self.options.machine_name}, constants {self.options.machine.constants}"
        return f"modelled, {machine}, default reading, {cores}"

    @property
    def seconds(self) -> float:
        """All convolutions one after the other."""
        return sum(layer.ns for layer in self.layers) / 1e9

    @property
    def operation_seconds(self) -> float:
        """All that is no convolution, one after the other."""
        return sum(operation.ns for operation in self.operations) / 1e9

    @property
    def whole_seconds(self) -> float:
        """Everything, one after the other."""
        return self.seconds + self.operation_seconds

    @property
    def instructions(self) -> int:
        """Static instructions of the longest graph."""
        return max((graph.instructions for graph in self.graphs), default=0)

    @property
    def regions(self) -> int:
        """Hardware loops of all graphs."""
        return sum(graph.regions for graph in self.graphs)

    @property
    def compile_s(self) -> float:
        """How long compiling all graphs is assumed to take."""
        return sum(graph.compile_s for graph in self.graphs)

    @property
    def fits_a_graph(self) -> bool:
        """Whether the compiler would take each of them as one graph."""
        return self.instructions <= self.options.graph.instructions

    @property
    def convolution_bytes(self) -> int:
        """HBM traffic of the convolutions."""
        return sum(layer.hbm_bytes for layer in self.layers)

    @property
    def copied_bytes(self) -> int:
        """HBM traffic of padding, concatenation, upsampling and caches, read and written."""
        return self.trace.copied_bytes

    @property
    def calls(self) -> int:
        """Convolutions called."""
        return sum(layer.calls for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-adds that the model asks for."""
        return sum(layer.macs for layer in self.layers)

    def heaviest(self, count: int | None = None) -> tuple[LayerPlan, ...]:
        """The layers that take longest, those first."""
        return tuple(sorted(self.layers, key=lambda layer: -layer.ns)[:count])


def model_plan(
    model: ModelEntry | str,
    size: Size | str = "",
    phase: str = "decode",
    options: PlanOptions = DEFAULT_OPTIONS,
    prices: Prices | None = None,
) -> ModelPlan:
    """Plan one encode or decode of a registered model.

    `size` is a name of the registry, height x width x frames, or a Size; without, the production
    size. Sizes of the registry need no torch. `prices` are worked out for this call only, unless
    the caller hands in those of an earlier one, or of a cache: `Prices(Cache.named("prices"))`.
    """
    entry = find(model) if isinstance(model, str) else model
    planned_size = size_of(entry, size) if isinstance(size, str) else size
    if phase not in entry.phases:
        raise UnsupportedError(f"{phase} of {entry.name}: it can {' and '.join(entry.phases)}.")
    return plan_trace(model_trace(entry, planned_size, phase), planned_size, options, prices)


def plan_trace(
    trace: ModelTrace,
    size: Size,
    options: PlanOptions = DEFAULT_OPTIONS,
    prices: Prices | None = None,
) -> ModelPlan:
    """Plan what a model was traced to do.

    A norm is done by the convolution before it where that is faster, and apart elsewhere. Where no
    kernel takes a norm into a convolution's start (direct ones), norms are apart; where there are
    no kernels of norms at all (trn1), models do without.
    """
    if not has_kernels(options.machine):
        trace = without_norms(trace)
    known = Prices(cores=options.cores) if prices is None else prices
    cores = cores_of(options.machine, known.cores)
    if cores != options.launch_cores:
        raise UnsupportedError(
            f"prices of {cores} cores for a plan of {options.launch_cores}: ask for the same."
        )
    try:
        return _planned(norms_placed(trace, options, known), size, options, known)
    except PlanError:
        apart = without_fused_norms(trace)
        if apart == trace:
            raise
        return _planned(apart, size, options, known)


def norms_placed(trace: ModelTrace, options: PlanOptions, known: Prices) -> ModelTrace:
    """The same, each norm over channels where it is faster: at a convolution's end, or apart."""
    normed = {work: _problem(work, options) for work, _ in trace.works if work.epilogue.norm}
    distinct = dict.fromkeys(normed.values())
    known.prepare(
        [
            asked
            for normed_problem in distinct
            for asked in (normed_problem, without_norm(normed_problem))
        ]
    )
    cores = options.launch_cores
    apart = {problem for problem in distinct if not is_faster_fused(problem, cores, known.ns_of)}
    return without_norm_epilogues(trace, lambda work: normed[work] in apart) if apart else trace


def _planned(trace: ModelTrace, size: Size, options: PlanOptions, known: Prices) -> ModelPlan:
    cores = options.launch_cores
    graphs = [(graph, _equal_calls(graph)) for graph in graphs_of(trace.works)]
    known.prepare(
        [_problem(works[0], options) for _, calls_of_works in graphs for works, _ in calls_of_works]
    )
    priced = [
        (graph, calls_of_works, _prices_of(calls_of_works, known, options))
        for graph, calls_of_works in graphs
    ]
    return ModelPlan(
        trace,
        size,
        options,
        _in_order(_layers(priced, options), trace),
        tuple(_graph_plan(*priced_graph) for priced_graph in priced),
        operation_plans(trace.operations, options.machine, cores),
    )


def _prices_of(calls_of_works: Alike, known: Prices, options: PlanOptions) -> list[Price]:
    priced_calls = [(_asking(known, works[0], options), calls) for works, calls in calls_of_works]
    return price_graph(priced_calls, options.graph)


def _graph_plan(graph: Graph[TracedConv], calls_of_works: Alike, prices: list[Price]) -> GraphPlan:
    called = ((price, calls) for price, (_, calls) in zip(prices, calls_of_works, strict=True))
    return GraphPlan(graph.name, graph.launches, tuple(called))


def _layers(
    priced: list[tuple[Graph[TracedConv], Alike, list[Price]]], options: PlanOptions
) -> list[LayerPlan]:
    """Equal calls with one plan, of all graphs together."""
    layers: dict[tuple[object, Price], LayerPlan] = {}
    for graph, calls_of_works, prices in priced:
        for (works, calls), price in zip(calls_of_works, prices, strict=True):
            key = (_kernel_key(works[0]), price)
            before = layers.get(key)
            modules = (*(before.modules if before else ()), *(work.module for work in works))
            layers[key] = LayerPlan(
                before.work if before else works[0],
                tuple(dict.fromkeys(modules)),
                (before.calls if before else 0) + graph.launches * calls,
                price,
                is_tuned(_problem(works[0], options), price),
            )
    return list(layers.values())


def _in_order(layers: list[LayerPlan], trace: ModelTrace) -> tuple[LayerPlan, ...]:
    """By the first call of a module, the modules of a layer too."""
    modules = dict.fromkeys(work.module for work, _ in trace.works)
    first = {module: number for number, module in enumerate(modules)}
    ordered = [
        replace(layer, modules=tuple(sorted(layer.modules, key=first.__getitem__)))
        for layer in layers
    ]
    return tuple(sorted(ordered, key=lambda layer: first[layer.modules[0]]))


def is_tuned(problem: ConvProblem, price: Price) -> bool:
    """Whether a price is that of a tuned plan, or of its decisions for the half of a core."""
    stored, plan = tuned_plan(problem), price.plan.plan
    return stored is not None and algorithm_of(plan).moved(plan, problem) == stored.plan


def _equal_calls(graph: Graph[TracedConv]) -> Alike:
    """Works that a kernel cannot tell apart, together, and how often a launch calls them."""
    alike: dict[object, tuple[list[TracedConv], int]] = {}
    for work, calls in graph.works:
        works, before = alike.get(_kernel_key(work), ([], 0))
        alike[_kernel_key(work)] = ([*works, work], before + calls)
    return list(alike.values())


def _kernel_key(work: TracedConv) -> tuple[object, ...]:
    how = (work.reproducible, work.instead_of, work.prologue)
    return (work.shape, work.dtype, work.pieces, work.epilogue, *how)


def _asking(prices: Prices, work: TracedConv, options: PlanOptions) -> Ask:
    return lambda budget: prices.of(_problem(work, options, budget))


def _problem(work: TracedConv, options: PlanOptions, budget: int = DEFAULT_BUDGET) -> ConvProblem:
    return work.problem(options.machine, budget, policy_of(options.accuracy))
