"""Device "neuron" in Python: tensors that say they are there, with values on the CPU.

torch's hook for backends written in Python gives PrivateUse1 the name "neuron". Functions of torch
run on the values and give tensors of the device. A copy to the host is counted; while a kernel is
queued and nobody has synchronised, it is an error.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from trnconv.pytorch.operators import convolutions, norms

_library = torch.library.Library("aten", "IMPL")
OURS = {
    "trnconv::convolution": convolutions.convolution,
    "trnconv::input_gradient": convolutions.input_gradient,
    "trnconv::weight_gradient": convolutions.weight_gradient,
    "trnconv::fused_convolution": convolutions.fused_op,
    "trnconv::norm": norms.norm_op,
    "trnconv::group_factors": norms.factors_op,
    "trnconv::modulation": norms.modulation_op,
}


LAUNCHERS = {}  # by the names of the ops that a double of nki_op made


class Queue:
    """Kernels that were called and not waited for; copies to the host."""

    def __init__(self):
        self.kernels = []
        self.host_copies = 0
        self.failures = frozenset()

    def synchronize(self):
        self.kernels.clear()

    def reset(self, failures=()):
        self.synchronize()
        self.host_copies = 0
        self.failures = frozenset(failures)


QUEUE = Queue()
backend_registration._setup_privateuseone_for_python_backend("neuron")
torch.neuron.synchronize = QUEUE.synchronize


class NeuronTensor(torch.Tensor):
    """A tensor of device "neuron"; `held` has its values."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            dtype=held.dtype,
            device="neuron",
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            requires_grad=held.requires_grad,
        )

    def __init__(self, held):
        self.held = held

    def __tensor_flatten__(self):
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner, _context, _size, _stride):
        return NeuronTensor(inner["held"])

    def __repr__(self):
        return f"NeuronTensor({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name
        if name in OURS and not _fake(args):  # for every device: it gets the tensors as they are
            return OURS[name]._init_fn(*args, **kwargs)
        if name in LAUNCHERS and not _fake(args):
            return LAUNCHERS[name](*args)
        dense = name in {"aten::clone", "aten::contiguous"} and _permuted(args[0])
        if dense and "device-contiguous" in QUEUE.failures:
            raise RuntimeError("clone with another layout is not implemented on this device")
        to_host = _to_host(name, args, kwargs)
        if to_host:
            _copied_to_host()
        kwargs.pop("device", None)
        found = func(*_held(args), **_held(kwargs))
        if func._schema.is_mutable:
            return args[0]
        return found if to_host else tree_map_only(torch.Tensor, cls, found)


def _permuted(tensor):
    """Whether its dimensions lie in another order; a slice, or what is expanded, does not."""
    strides = [
        step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and step
    ]
    return strides != sorted(strides, reverse=True)


_enter = TorchDispatchMode.__enter__


def _entered_unless_told(mode):
    """Modes of others than torch can be told to fail."""
    of_torch = type(mode).__module__.partition(".")[0] == "torch"
    if "no-dispatch-modes" in QUEUE.failures and not of_torch:
        raise RuntimeError("a dispatch mode above device neuron is not implemented")
    return _enter(mode)


TorchDispatchMode.__enter__ = _entered_unless_told


def _fake(tree):
    """Whether there are no values: tensors are fake, or functional ones around fake ones."""
    return any(
        isinstance(leaf.held, (FakeTensor, FunctionalTensor))
        for leaf in tree_leaves(tree)
        if isinstance(leaf, NeuronTensor)
    )


class XlaTensor(NeuronTensor):
    """A tensor that says it is on device "xla".

    torch is not linked with that here, so below Python it is one of "neuron", and `moved` stands
    for `Tensor.to`.
    """

    @property
    def device(self):
        return torch.device("xla")

    @staticmethod
    def __tensor_unflatten__(inner, _context, _size, _stride):
        return XlaTensor(inner["held"])


def _held(tree):
    return tree_map_only(NeuronTensor, lambda tensor: tensor.held, tree)


def _to_host(name, args, kwargs):
    device = kwargs.get("device")
    if name == "aten::copy_":
        return not isinstance(args[0], NeuronTensor)
    return device is not None and torch.device(device).type == "cpu"


def _copied_to_host():
    QUEUE.host_copies += 1
    assert not QUEUE.kernels, f"a copy to the host while {QUEUE.kernels} are queued"


def _empty(size, *, dtype=None, **_):
    return NeuronTensor(torch.empty(size, dtype=dtype))


def _empty_strided(size, stride, *, dtype=None, **_):
    return NeuronTensor(torch.empty_strided(size, stride, dtype=dtype))


_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")

_to = torch.Tensor.to


def moved(tensor, *args, **kwargs):
    """`Tensor.to` that knows device "xla"."""
    is_there = isinstance(tensor, XlaTensor)
    if args and isinstance(args[0], (str, torch.device)) and torch.device(args[0]).type == "xla":
        return tensor if is_there else XlaTensor(tensor.detach().clone())
    return _to(tensor, *args, **kwargs)
