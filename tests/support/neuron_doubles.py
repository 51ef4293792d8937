"""Doubles of the documented ways to call a kernel on a Neuron device; they run it in nkisim.

They hold a call to what is documented: a jitted kernel takes device tensors and plain records;
`nki_op` makes an op of a fully annotated function of tensors.
"""

import torch

import nkisim


class FakeJit:
    """nki.jit: what it returns is called with tensors, None or NKI objects."""

    def __init__(self):
        self.called = []

    def __call__(self, kernel):
        return FakeKernel(kernel, self.called)


class FakeKernel:
    """A jitted kernel; `kernel[2]` is launched on two cores."""

    def __init__(self, kernel, called, cores=1):
        self.kernel, self.called, self.cores = kernel, called, cores

    def __getitem__(self, cores):
        return FakeKernel(self.kernel, self.called, cores)

    def __call__(self, *args):
        *tensors, recipe = args
        assert all(each is None or type(each) is torch.Tensor for each in tensors)
        assert all(each is None or each.is_contiguous() for each in tensors)
        assert isinstance(recipe, nkisim.language.NKIObject)
        self.called.append((self.kernel.__name__, tensors))
        return nkisim.run(
            nkisim.Kernel(self.kernel)[self.cores], *args, machine="trn2", lnc=self.cores
        ).outputs


class FakeNkiOp:
    """torch_neuronx.nki_op(name, mutates_args={}): a decorator of annotated functions."""

    def __init__(self):
        self.names = []

    def __call__(self, name, *, mutates_args):
        assert mutates_args == {}

        def decorate(function):
            self.names.append(name)
            schema = torch.library.infer_schema(function, mutates_args=())
            assert schema.count("Tensor") >= 2  # x and y at least: statistics have no weights
            return function

        return decorate
