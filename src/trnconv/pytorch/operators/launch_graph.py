"""A graph of torch.compile with launches in it: an op of ours becomes the launcher that it calls.

    torch.compile(model, backend="trnconv")  # launchers in place of ops, then backend "neuron"

An op of torch.library hides its kernel from who compiles a graph. Here the kernel's own launcher
is the node, and packed weights are inputs of the graph, behind those that it had. Before each call
what changed since the last one is packed, outside of the graph. An op that stays as it is says why
in an `OpaqueOpWarning`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from trnconv.algorithms.program import Prepared
from trnconv.geometry import NO_MODES
from trnconv.pytorch.backends.adapters import Adapter, present_in, require_adapter
from trnconv.pytorch.backends.choice import Backend, choose_backend, machine_of
from trnconv.pytorch.backends.conv_call import INPUT_GRADIENT, ConvCall
from trnconv.pytorch.backends.gradient_scale import is_scaled
from trnconv.pytorch.backends.neuron import NeuronDevice, problem_of
from trnconv.pytorch.backends.packed_weights import Images
from trnconv.pytorch.operators import convolutions
from trnconv.runtime.compute import launches_of, require_whole_phases
from trnconv.runtime.convolve import forward_filters
from trnconv.runtime.launch import MOST_PIECES, LaunchOperands, with_joined_pieces

Compiler = Callable[..., Callable[..., Any]]  # a backend of torch.compile
_CALLS: Final[dict[str, Callable[..., convolutions.Call]]] = {
    "trnconv::convolution": convolutions.convolution_call,
    "trnconv::fused_convolution": convolutions.fused_call,
    "trnconv::input_gradient": convolutions.input_gradient_call,
}
_VIEWS: Final = ("reshape", "view", "detach", "squeeze", "unsqueeze")  # methods of a weight
_VALUE: Final = "example_value"  # where torch.compile keeps the fake tensor of a node


class OpaqueOpWarning(UserWarning):
    """An op stays one in a compiled graph: its kernel is no node, and it packs when it runs."""


class _Stays(Exception):  # noqa: N818 (no error: it says why an op is left alone)
    """Why an op stays as it is."""


def with_launches(compiler: str | Compiler = "neuron") -> Compiler:
    """A backend of torch.compile: launchers in place of ops, then `compiler`."""

    def compile_graph(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        launched = launched_graph(graph)
        given = [*inputs, *map(_static, launched.images(inputs))]
        compiled = torch._dynamo.lookup_backend(compiler)(launched.graph, given)  # noqa: SLF001 (documented so)

        def call(*inputs: Any) -> Any:
            return compiled(*inputs, *launched.images(inputs))

        return call

    return compile_graph


def compile_with_launches(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Backend "trnconv"."""
    return with_launches()(graph, inputs)


def _static(image: torch.Tensor) -> torch.Tensor:
    """What stands for an image while a graph is traced: a tensor that nobody traced has symbols."""
    context = torch._guards.TracingContext.try_get()  # noqa: SLF001 (where backends find it)
    if context is None or context.fake_mode is None:
        return image
    fake: torch.Tensor = context.fake_mode.from_tensor(image, static_shapes=True)
    return fake


@dataclass(frozen=True)
class _Input:
    """An input of the graph by number, and the methods that look at it."""

    number: int
    views: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def of(self, inputs: Sequence[Any]) -> torch.Tensor:
        """What the op is given of these inputs."""
        tensor: torch.Tensor = inputs[self.number]
        for method, args in self.views:
            tensor = getattr(tensor, method)(*args)
        return tensor


@dataclass(frozen=True)
class _GraphFilters:
    """What a launch reads of a weight and a bias: images, packed when one has changed."""

    prepared: Prepared
    adapter: Adapter
    call: ConvCall
    w: _Input
    bias: _Input | None

    def images(self, inputs: Sequence[Any]) -> Images:
        """On the device, of what the graph is called with."""
        whole = LaunchOperands(
            (), self.w.of(inputs), None if self.bias is None else self.bias.of(inputs)
        )
        own = whole
        if self.call.wanted == INPUT_GRADIENT:
            own = replace(whole, w=forward_filters(whole.w, self.call.spec.groups))
        device = NeuronDevice(whole, self.call.wanted, self.adapter)
        return device.packed(self.prepared, own, whole.w.device)


@dataclass(frozen=True)
class LaunchGraph:
    """A graph with launchers; images of weights are its last inputs."""

    graph: GraphModule
    filters: tuple[_GraphFilters, ...]

    def images(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """What is passed behind these inputs."""
        return [image for packed in self.filters for image in packed.images(inputs)]


def launched_graph(given: GraphModule) -> LaunchGraph:
    """A copy of the graph, changed: torch.compile goes on with the one it gave."""
    graph = GraphModule(given, _copy(given.graph))
    graph.meta.update(given.meta)
    placeholders = list(graph.graph.find_nodes(op="placeholder"))
    launches = []
    for node in list(graph.graph.nodes):
        name = _name(node)
        if name not in _CALLS:
            continue
        try:
            made = _launched(node, _CALLS[name], placeholders)
        except _Stays as why:
            words = f"{name} stays one op in the compiled graph: {why}"
            warnings.warn(words, OpaqueOpWarning, stacklevel=2)
            continue
        launches += [made] if made else []
    if launches:
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return LaunchGraph(graph, tuple(launches))


def _copy(graph: Graph) -> Graph:
    made = Graph()
    made.output(made.graph_copy(graph, {}))
    return made


def _name(node: Node) -> str:
    is_op = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)  # noqa: SLF001 (its only name)
    return str(node.target._schema.name) if is_op else ""  # type: ignore[union-attr]  # noqa: SLF001


def _launched(
    node: Node, call_of: Callable[..., convolutions.Call], placeholders: list[Node]
) -> _GraphFilters | None:
    """Replace an op by its launch; None if another backend than a device is to run it."""
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]  # noqa: SLF001 (its only names)
    given = dict(zip(names, node.args, strict=False))
    backend = given.pop("backend")
    call, nodes = call_of(*given.values())
    values = _map(nodes, lambda node: node.meta[_VALUE])
    x = values.inputs[0]
    name, _ = machine_of(str(backend))
    if choose_backend(x, name).backend is not Backend.neuron:
        return None
    _require_plain(node, values)
    adapter = require_adapter(x.device.type)
    prepared = _prepared(call, values, adapter)
    bias = None if nodes.bias is None else _input_of(nodes.bias, placeholders)
    filters = _GraphFilters(prepared, adapter, call, _input_of(nodes.w, placeholders), bias)
    _insert(node, filters, nodes)
    return filters


def _map(operands: LaunchOperands, change: Callable[[Any], Any]) -> LaunchOperands:
    rest = (operands.w, operands.bias, operands.residual, operands.factors)
    return LaunchOperands(
        tuple(map(change, operands.inputs)),
        *(tensor if tensor is None else change(tensor) for tensor in rest),
    )


def _require_plain(node: Node, values: LaunchOperands) -> None:
    """Refuse what a launcher alone would not do."""
    x = values.inputs[0]
    if node.meta[_VALUE].requires_grad:
        raise _Stays("gradients are asked for, and launchers have none. Run it under no_grad.")
    if any(not isinstance(size, int) for input_ in values.inputs for size in input_.shape):
        raise _Stays("its sizes are symbols, and kernels are planned for numbers: dynamic=False.")
    if x.numel() == 0:
        raise _Stays("there is nothing to compute.")


def _prepared(call: ConvCall, values: LaunchOperands, adapter: Adapter) -> Prepared:
    if call.wanted == INPUT_GRADIENT and call.spec.modes != NO_MODES:
        raise _Stays("the borders of its padding are added after its launch.")
    problem = with_joined_pieces(problem_of(call, values, adapter))
    if is_scaled(call, problem):
        raise _Stays("a fast input gradient is scaled before and after its launch.")
    device = NeuronDevice(values, call.wanted, adapter)
    parts = [prepared for _, prepared in launches_of(problem, device)]
    if len(parts) != 1:
        raise _Stays(f"it takes {len(parts)} launches.")
    require_whole_phases(parts[0], values)
    return parts[0]


def _input_of(node: Node, placeholders: list[Node]) -> _Input:
    """Where an operand comes from, if it is an input of the graph, or a view of one."""
    views: list[tuple[str, tuple[Any, ...]]] = []
    while node not in placeholders:
        source, *args = node.args if node.op == "call_method" else [None]
        plain = not node.kwargs and not any(isinstance(arg, Node) for arg in args)
        if not isinstance(source, Node) or node.target not in _VIEWS or not plain:
            raise _Stays("its weight or bias is computed in the graph. Compute it before.")
        views.append((str(node.target), tuple(args)))
        node = source
    return _Input(placeholders.index(node), tuple(reversed(views)))


def _insert(node: Node, filters: _GraphFilters, nodes: LaunchOperands) -> None:
    """The launch in place of a node, with an input of the graph for each image."""
    graph, prepared = node.graph, filters.prepared
    last = list(graph.find_nodes(op="placeholder"))[-1]
    images = []
    for number in range(sum(len(lowered.arrays) for lowered in prepared.lowered)):
        with graph.inserting_after(last):
            last = graph.placeholder(f"{node.name}_image_{number}")
        images.append(last)
    with graph.inserting_before(node):
        inputs = tuple(map(_dense, nodes.inputs))
        if len(inputs) > MOST_PIECES:
            inputs = (graph.call_function(torch.cat, (inputs, 2)),)
        residual = None if nodes.residual is None else _dense(nodes.residual)
        *tensors, recipe = prepared.arguments(inputs, tuple(images), residual, nodes.factors)
        kernel, outputs = prepared.kernel(len(inputs)), len(prepared.lowered[0].outputs)
        launch = filters.adapter.launcher(kernel, present_in(tuple(tensors)), recipe, outputs)
        given = tuple(tensor for tensor in tensors if tensor is not None)
        done = graph.call_function(getattr(launch, "_opoverload", launch), given)
        y = _cropped(done, node, prepared)
    y.meta.update(node.meta)
    node.replace_all_uses_with(y)
    graph.erase_node(node)


def _dense(node: Node) -> Node:
    """In the order of its dimensions, by the graph if it is not."""
    if node.meta[_VALUE].is_contiguous():
        return node
    return node.graph.call_method("contiguous", (node,))


def _cropped(done: Node, node: Node, prepared: Prepared) -> Node:
    """Without what was computed to make phases whole."""
    sizes = tuple(node.meta[_VALUE].shape)
    if prepared.lowered[0].outputs[0] == sizes:
        return done
    kept = tuple(slice(0, size) for size in sizes)
    cut = node.graph.call_function(operator.getitem, (done, kept))
    return node.graph.call_method("contiguous", (cut,))
