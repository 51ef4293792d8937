"""`install_` and `uninstall_`: an autoencoder of vllm-omni-neuron on our kernels, and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from trnconv.errors import UnsupportedError
from trnconv.pytorch import PatchReport, patch_, unpatch_
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.functional.arguments import wants_gradient
from trnconv.pytorch.operators.convolutions import fused_convolution
from trnconv.pytorch.patching.methods import ATTRIBUTE

_DISPATCH, _TRY, _PACKED = "install_nki_dispatch", "_maybe_nki_forward", "_nki_packed_filters"


@dataclass(frozen=True)
class _PaddedConv:
    """How a convolution with padding is asked for, as ops take it."""

    accuracy: str
    backend: str
    reproducible: bool
    is_ours: bool  # else their forward pads, and what is patched, or torch, goes on


@dataclass(frozen=True)
class ServedReport:
    """What was patched, and the convolutions by who computed them before."""

    patch: PatchReport
    sites: tuple[str, ...]  # modules of theirs whose dispatch is ours now

    def __str__(self) -> str:
        """A line each."""
        patched, left = self.patch.patched, self.patch.left_to_torch
        lines = [f"{len(patched)} convolutions on our kernels, {len(left)} left to torch"]
        lines += [f"left to torch: {entry.name}, {entry.reason}" for entry in left]
        lines.append(f"dispatch to nki-library off at {len(self.sites)} of them")
        return "\n".join(lines)


def install_(vae: nn.Module, *, lazy: bool = False, **options: Any) -> ServedReport:
    """Serve every convolution, in place; call it before `prepare_nki_conv_dispatch` and `compile`.

    Modules that dispatch to nki-library keep their `forward`, but pack nothing for it
    (`install_nki_dispatch`), and what they try first (`_maybe_nki_forward`) is ours: a convolution
    with its padding, in one op, as a compiled decoder needs it. With `lazy`, for a decoder that is
    not compiled, all rewrites of `patch_` apply instead. `options` are those of `patch_`.
    """
    theirs = {name: site for name, site in vae.named_modules() if hasattr(site, _DISPATCH)}
    if not theirs:
        raise UnsupportedError(
            f"{type(vae).__name__} has no module with {_DISPATCH}: it is not vllm-omni-neuron's."
            " Patch other models with trnconv.pytorch.patch_."
        )
    if any(_DISPATCH in module.__dict__ for module in theirs.values()):
        raise UnsupportedError("the model is served already: uninstall_ it first.")
    report = patch_(vae, lazy=lazy, **options)
    for module in theirs.values():
        setattr(module, _PACKED, None)
        module.__dict__[_DISPATCH] = _packs_nothing
        if hasattr(module, _TRY):
            module.__dict__[_TRY] = partial(_tried, module, _padded_conv(module, lazy=lazy))
    return ServedReport(report, tuple(theirs))


def uninstall_(vae: nn.Module) -> None:
    """Take it back. Filters for nki-library are packed by the next `install_nki_dispatch`."""
    unpatch_(vae)
    for module in vae.modules():
        for name in (_DISPATCH, _TRY):
            module.__dict__.pop(name, None)


def _padded_conv(module: nn.Module, *, lazy: bool) -> _PaddedConv:
    """By what `patch_` decided for the module."""
    patch = module.__dict__[ATTRIBUTE]
    context = patch.context
    accuracy = context.policy_for(patch.name).text()
    is_ours = not lazy and not patch.reason
    return _PaddedConv(accuracy, context.backend, context.reproducible, is_ours)


def _packs_nothing(target_device: object = None) -> bool:
    """Their problem whether a site is served: it is, with what our ops pack by themselves."""
    del target_device
    return True


def _tried(
    module: Any, how: _PaddedConv, x: torch.Tensor, padding: list[int]
) -> torch.Tensor | None:
    """The convolution of x padded so; None: their forward pads, and what is patched goes on."""
    if not how.is_ours or wants_gradient(x, module.weight, module.bias):
        return None
    spec = ConvSpec(
        tuple(module.stride),
        (padding[4], padding[2], padding[0]),
        (padding[5], padding[3], padding[1]),
        tuple(module.dilation),
        module.groups,
        accuracy=how.accuracy,
        reproducible=how.reproducible,
    )
    return fused_convolution([x], module.weight, module.bias, spec, backend=how.backend)
