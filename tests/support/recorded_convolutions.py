"""The convolutions that torch is asked for while a piece of code runs, whoever asks."""

from math import prod
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Convolution(NamedTuple):
    """The arguments of one call, tensors as shapes."""

    input: tuple[int, ...]
    weight: tuple[int, ...]
    bias: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]  # of a transposed one; else empty
    groups: int


class Recorder(TorchDispatchMode):
    """`with Recorder() as recorder:` collects `calls` and their multiply-adds `macs`."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.macs = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.convolution.default:
            call = _convolution(*args)
            self.calls.append(call)
            positions = call.input if call.transposed else output.shape
            self.macs += prod(positions) * prod(call.weight[1:])
        return output


def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    return Convolution(
        input=tuple(x.shape),
        weight=tuple(weight.shape),
        bias=bias is not None,
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        transposed=transposed,
        output_padding=tuple(output_padding) if transposed else (),
        groups=groups,
    )
