"""What of a model's modules is torch's own code, and what is somebody else's."""

from __future__ import annotations

import inspect

from torch import nn

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

    From there on, what it keeps from chunk to chunk stays noted. Others work too: then every module
    they call is entered by itself. Generators run after they return, so they are among the others.
    """
    found = []
    for name in dir(type(model)):
        method = inspect.getattr_static(type(model), name)
        if name.startswith("_") or not ("encode" in name or "decode" in name):
            continue
        if inspect.isfunction(method) and not inspect.isgeneratorfunction(method):
            found.append(name)
    return found
