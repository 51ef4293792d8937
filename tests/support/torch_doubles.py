"""Doubles of torch_neuronx, libtorch_neuronx_lite and torch_xla on top of the double of nki.

- `nki_op(name, mutates_args={})` takes a launcher with complete annotations of tensors, traces it
  with fake tensors, and gives what is called with device tensors alone.
- `wrap_nki(kernel)` is called with a grid only.
- Tensors of the device are a subclass here: patched models note no data movement on them.
- A kernel takes contiguous tensors of the device, and is queued until somebody synchronises.
"""

import inspect
from itertools import count
from types import SimpleNamespace

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

import nkisim
from neuron_tensor import LAUNCHERS, QUEUE, NeuronTensor
from nki_double import NkiDouble
from trnconv.host.vendor import Vendor

GRAPHS = []  # that backend "neuron" has compiled


class TorchNki(NkiDouble):
    """nki whose kernels take tensors of device "neuron", fake tensors and arrays."""

    def jit(self, function):
        return TorchKernel(super().jit(function))


class TorchKernel:
    """A jitted kernel, for tensors."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return TorchKernel(self.kernel[grid])

    def enable_non_ssa_legalization(self):
        return TorchKernel(self.kernel.enable_non_ssa_legalization())

    def disable_address_rotation(self):
        return TorchKernel(self.kernel.disable_address_rotation())

    def __call__(self, *args):
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if any(isinstance(one, FakeTensor) for one in tensors):
            return shapes_of(self.kernel, args)
        assert all(isinstance(one, NeuronTensor) for one in tensors), "tensors of the device"
        assert all(one.held.is_contiguous() for one in tensors), "contiguous tensors"
        QUEUE.kernels.append(self.kernel.func.__name__)
        done = self.kernel(*(one.held if isinstance(one, NeuronTensor) else one for one in args))
        made = tuple(map(type(tensors[0]), done if isinstance(done, tuple) else (done,)))
        return made if isinstance(done, tuple) else made[0]


def shapes_of(kernel, args):
    """What a kernel returns for fake tensors: it is traced, nothing is computed."""
    mode = next(one.fake_mode for one in args if isinstance(one, FakeTensor))
    run = nkisim.run(
        nkisim.Kernel(kernel.func)[kernel.grid],
        *map(_spec, args),
        machine=kernel.nki.target,
        lnc=kernel.nki.lnc,
        values=False,
    )
    with mode:
        made = [torch.empty(shape, dtype=getattr(torch, one)) for shape, one in run.output_shapes]
    return tuple(made) if len(made) > 1 else made[0]


def _spec(one):
    if not isinstance(one, torch.Tensor):
        return one
    return nkisim.Spec(tuple(one.shape), str(one.dtype).removeprefix("torch."))


class Wrapped:
    """What wrap_nki returns. The call with a grid is one node of a graph, constants in it."""

    made = count()

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        ops = {}

        def call(*args):
            present = tuple(isinstance(one, torch.Tensor) for one in args)
            constants = [one for one, here in zip(args, present, strict=True) if not here]
            key = (present, repr(constants))
            if key not in ops:
                launcher = typed_launcher(self.kernel[grid], args, present)
                ops[key] = registered(f"nki_kernel_wrapper::kernel_{next(self.made)}", launcher)
            return ops[key](*(one for one in args if isinstance(one, torch.Tensor)))

        return call

    def __call__(self, *_):
        raise AssertionError("wrap_nki(kernel) is called with a grid: wrap_nki(kernel)[lnc](...)")


class NkiOp:
    """torch_neuronx.nki_op."""

    def __init__(self):
        self.names = []

    def __call__(self, name, *, mutates_args):
        assert mutates_args == {}
        assert all(part.isidentifier() for part in name.split("::"))
        assert name not in self.names, f"{name} is there already"
        self.names.append(name)

        def decorate(launcher):
            return registered(name, launcher)

        return decorate


def registered(name, launcher):
    """The op of a launcher, which stands for its shapes as well."""
    schema = torch.library.infer_schema(launcher, mutates_args=())
    expected = len(inspect.signature(launcher).parameters)
    assert schema.count("Tensor") >= expected + 1

    def launch(*tensors):
        assert len(tensors) == expected
        assert all(isinstance(one, torch.Tensor) for one in tensors)
        require_traceable(launcher, tensors)
        return launcher(*tensors)

    LAUNCHERS[name] = launch
    op = torch.library.custom_op(name, launcher, mutates_args=())
    op.register_fake(launcher)
    return op


def typed_launcher(kernel, args, present):
    """A function of tensors alone, with the annotations that an op needs."""

    def launch(*tensors):
        left = iter(tensors)
        return kernel(
            *(next(left) if here else one for one, here in zip(args, present, strict=True))
        )

    names = [f"tensor_{number}" for number in range(sum(present))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    tensors = [inspect.Parameter(name, kind, annotation=torch.Tensor) for name in names]
    mode = FakeTensorMode()
    traced = launch(*(faked(one, mode) for one in args if isinstance(one, torch.Tensor)))
    returned = tuple[(torch.Tensor,) * len(traced)] if type(traced) is tuple else torch.Tensor
    launch.__signature__ = inspect.Signature(tensors, return_annotation=returned)
    return launch


def require_traceable(launcher, tensors):
    """A launcher runs on fake tensors, and gives fake tensors."""
    mode = FakeTensorMode()
    found = launcher(*(faked(one, mode) for one in tensors))
    assert all(isinstance(one, FakeTensor) for one in (found if type(found) is tuple else [found]))


def faked(tensor, mode):
    return mode.from_tensor(torch.empty(tensor.shape, dtype=tensor.dtype))


def vendor_with_torch(failures=(), lnc=2):
    """All packages; torch_neuronx without nki_op if it is to fail so."""
    members = {"wrap_nki": Wrapped, "__version__": "2.13.3.0"}
    if "no-nki-op" not in failures:
        members["nki_op"] = NkiOp()
    return Vendor(
        nki=TorchNki(failures, lnc=lnc),
        torch_neuronx=SimpleNamespace(**members),
        nki_source="nki 0.7.0 (a double)",
    )


@torch._dynamo.register_backend(name="neuron")
def compile_for_neuron(graph, inputs):
    """The backend of torch.compile: a graph is traced with fake tensors, lowered, and then runs."""
    if "no-compile" in QUEUE.failures:
        raise RuntimeError("neuronx-cc failed to lower the graph")
    return aot_autograd(fw_compiler=lowered)(graph, inputs)


def lowered(graph, _inputs):
    """It knows ATen's operators and what nki_op made; any other op has no lowering.

    Tracing takes tensors of the device apart (they are a subclass): here they are put together.
    """
    for name in ops_in(graph):
        if name not in LAUNCHERS and not name.startswith("aten::"):
            raise RuntimeError(f"no lowering for {name}")
    launches = [name for name in ops_in(graph) if name in LAUNCHERS]
    if len(launches) > 1 and "one-launch-a-graph" in QUEUE.failures:
        raise RuntimeError("neuronx-cc failed with NCC_IXCG998: kernels in one graph")
    GRAPHS.append(graph)

    def run(*given):
        done = graph.forward(*tree_map_only(torch.Tensor, NeuronTensor, given))
        return tree_map_only(NeuronTensor, lambda one: one.held, done)

    return make_boxed_func(run)


def ops_in(graph):
    """Ops of torch.library in a graph, by name."""
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    return [one._schema.name for one in targets if isinstance(one, torch._ops.OpOverload)]


def lite_vendor(lnc=2):
    return Vendor(nki=TorchNki(lnc=lnc), lite=SimpleNamespace(wrap_nki=Wrapped))


def xla_vendor(lnc=2):
    return Vendor(nki=TorchNki(lnc=lnc), torch_xla=SimpleNamespace(__version__="2.9"))
