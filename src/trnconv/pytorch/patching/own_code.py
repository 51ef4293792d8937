"""What of a model's modules is torch's own code, and what is somebody else's."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

_TORCHS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TORCHS_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
# They cut inputs of 2 to 3 GB along the frames for cuDNN's sake. Our kernels need no such cut. With
# a stride along frames it may shift frames, and is part of what the class computes.
_SPLITTERS = ("CogVideoXSafeConv3d", "KVAESafeConv3d", "Kandinsky6SRSafeConv3d")


def own_methods(module: nn.Module) -> str:
    """Why a convolution computes what torch's does not; empty if it is torch's.

    A subclass with a `forward` of its own, as causal convolutions have, runs that as it is: what
    is looked at is the method that we would put ours in place of.
    """
    method = "forward" if isinstance(module, _TORCHS_TRANSPOSED) else "_conv_forward"
    if method in module.__dict__:
        return f"its {method} was replaced on the instance."
    for kind in (*_TORCHS, *_TORCHS_TRANSPOSED):
        if isinstance(module, kind) and getattr(type(module), method) is not getattr(kind, method):
            return f"{type(module).__name__} has its own {method}."
    return ""


def splits_for_cudnn(module: nn.Module) -> bool:
    """Whether it cuts large inputs as classes of diffusers do, and nobody wrapped its forward.

    A hook that casts or loads weights does, and must run; below it, the class cuts as it likes.
    """
    kind = type(module)
    if "forward" in module.__dict__:
        return False
    if not (kind.__module__.startswith("diffusers.") and kind.__name__ in _SPLITTERS):
        return False
    return isinstance(module, nn.Conv3d) and module.stride[0] == 1


def entries_of(model: nn.Module) -> list[str]:
    """Methods by which a model encodes or decodes, besides its forward.

    From there on, what it keeps from chunk to chunk stays lazy. Others work too: then every module
    they call is entered by itself. Generators run after they return, so they are among the others.
    """
    methods = []
    for name in dir(type(model)):
        method = inspect.getattr_static(type(model), name)
        if name.startswith("_") or not ("encode" in name or "decode" in name):
            continue
        if inspect.isfunction(method) and not inspect.isgeneratorfunction(method):
            methods.append(name)
    return methods


def weight_type(module: nn.Module) -> torch.dtype | None:
    """The type of a convolution's weight; None where only making the weight would tell.

    To read a weight that a parametrization makes would run it, and that may have effects: spectral
    norm in training goes a step on. What it is made of is read instead.
    """
    if is_parametrized(module, "weight"):
        made_of: Any = module.parametrizations["weight"]  # type: ignore[index]
        original = made_of.original if made_of.is_tensor else made_of.original0
        may_change = made_of.unsafe and not original.is_floating_point()
        return None if may_change else original.dtype
    for name in ("weight_g", "weight_orig", "weight"):  # two of them: of torch's older hooks
        if (tensor := _stored(module, name)) is not None:
            return tensor.dtype
    return None


def weight_shape(module: nn.Module) -> tuple[int, ...]:
    """The shape of a convolution's weight, which is not made for that; as it was built, if need be.

    A channel count of 0 is one that a lazy module of torch's learns at its first call.
    """
    weight = _stored(module, "weight")
    if weight is not None and not is_lazy(weight):
        return tuple(weight.shape)
    conv: Any = module
    channels = (conv.out_channels, conv.in_channels)
    first, second = reversed(channels) if isinstance(module, _TORCHS_TRANSPOSED) else channels
    return (first, second // conv.groups, *conv.kernel_size)


def _stored(module: nn.Module, name: str) -> torch.Tensor | None:
    """A tensor that is read without effects: a parameter, a buffer, or an attribute."""
    for kept in (module._parameters, module._buffers, module.__dict__):  # noqa: SLF001 (torch's)
        if isinstance(tensor := kept.get(name), torch.Tensor):
            return tensor
    return None
