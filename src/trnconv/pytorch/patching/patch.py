"""patch_, unpatch_ and patched: they change instances, never classes or torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from torch import nn

from trnconv.errors import UnsupportedError
from trnconv.host.workarounds import PLAIN_TENSORS
from trnconv.problem.policy import BF16, Policy, policy_of
from trnconv.pytorch.backends.adapters import require_adapter
from trnconv.pytorch.backends.choice import NEURON_DEVICES, Backend, asked_for
from trnconv.pytorch.lazy.base.stats import PatchStats
from trnconv.pytorch.lazy.fusion.convolution import unsupported_type
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, PatchContext, Rewrites
from trnconv.pytorch.patching.methods import (
    ATTRIBUTE,
    Bound,
    HookedCall,
    Patch,
    convolution_forward,
    module_forward,
    put,
    torch_forward,
    transposed_forward,
    unsplit_forward,
)
from trnconv.pytorch.patching.own_code import entries_of, own_methods, splits_for_cudnn, weight_type
from trnconv.pytorch.patching.report import Entry, PatchReport
from trnconv.runtime.ranges import Ranges

Filter = Callable[[str, nn.Module], bool]
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def patch_(  # noqa: PLR0913 (each is a decision of the caller's)
    model: nn.Module,
    filter_fn: Filter | None = None,
    on_unsupported: Literal["keep", "raise"] = "keep",
    *,
    reproducible: bool = False,
    accuracy: str | Policy = BF16,
    ranges: Ranges | None = None,
    rewrites: Rewrites = ALL_REWRITES,
    backend: str | Backend | None = None,
    lazy: bool = True,
) -> PatchReport:
    """Put every convolution of a model on the kernels of trnconv, in place.

    `filter_fn(name, module)` says which are patched; `on_unsupported` what happens to one that the
    kernels cannot run. With `reproducible`, results do not depend on how a video is cut into
    chunks. `accuracy` says what kernels may give for speed, as in `functional`; with `ranges`
    (`calibrate`), what may be given depends on the largest input of each layer, and layers that
    were not sampled stay direct.

    Without gradients, padding, caches and upsampling go into the kernels; with gradients, under
    torch.compile, with `lazy=False`, and on a host whose workaround `plain-tensors` is on, only the
    convolutions themselves are ours.
    """
    if on_unsupported not in ("keep", "raise"):
        raise UnsupportedError(f"on_unsupported={on_unsupported!r}: keep or raise.")
    if any(ATTRIBUTE in module.__dict__ for module in model.modules()):
        raise UnsupportedError("the model, or a part of it, is patched already: unpatch_ it first.")
    wanted = filter_fn or _everything
    refused = frozenset(name for name, module in model.named_modules() if not wanted(name, module))
    context = PatchContext(
        stats=PatchStats(),
        rewrites=rewrites,
        reproducible=reproducible,
        policy=policy_of(accuracy),
        ranges=ranges,
        backend=asked_for(backend),
        refused=refused,
        lazy=lazy and not _wants_plain_tensors(model),
    )
    entries = _entries(model, refused)
    context.left_to_torch = frozenset(entry.name for entry in entries if entry.reason)
    unsupported = [entry for entry in entries if entry.reason and entry.name not in refused]
    if unsupported and on_unsupported == "raise":
        first = unsupported[0]
        raise UnsupportedError(
            f'{first.name}: {first.reason} Leave it to torch with on_unsupported="keep", or exclude'
            " it with filter_fn."
        )
    reasons = {entry.name: entry.reason for entry in entries}
    for name, module in model.named_modules():
        _patch_one(
            module, Patch(name, context, {}, [], reasons.get(name, "")), root=module is model
        )
    for method in entries_of(model):
        patch = model.__dict__.get(ATTRIBUTE) or Patch("", context, {}, [])
        put(model, patch, method, None)
    return PatchReport(tuple(entries), context.stats)


def unpatch_(model: nn.Module) -> None:
    """Take back what `patch_` did: no attribute of ours is left."""
    _require_in_place(model)
    for module in model.modules():
        patch = module.__dict__.pop(ATTRIBUTE, None)
        for method in () if patch is None else patch.methods:
            if method in patch.before:
                module.__dict__[method] = patch.before[method]
            else:
                del module.__dict__[method]
        if isinstance(module.__dict__.get("_call_impl"), HookedCall):
            del module.__dict__["_call_impl"]


def _require_in_place(model: nn.Module) -> None:
    """Refuse to take away what somebody wrapped since."""
    for name, module in model.named_modules():
        patch = module.__dict__.get(ATTRIBUTE)
        for method in () if patch is None else patch.methods:
            if not isinstance(module.__dict__.get(method), Bound):
                raise UnsupportedError(
                    f"{method} of {name or 'the model'} was replaced after patch_: take that back"
                    " first."
                )


@contextmanager
def patched(model: nn.Module, *args: Any, **kwargs: Any) -> Iterator[PatchReport]:
    """Patched inside the `with`, as it was outside; arguments as for `patch_`."""
    report = patch_(model, *args, **kwargs)
    try:
        yield report
    finally:
        unpatch_(model)


def _wants_plain_tensors(model: nn.Module) -> bool:
    """Whether the model is on a device whose host has the workaround on."""
    kinds = {parameter.device.type for parameter in model.parameters()}
    return any(
        PLAIN_TENSORS in require_adapter(kind).workarounds
        for kind in kinds.intersection(NEURON_DEVICES)
    )


def _everything(name: str, module: nn.Module) -> bool:
    del name, module
    return True


def _entries(model: nn.Module, refused: frozenset[str]) -> list[Entry]:
    entries = []
    for name, module in model.named_modules():
        if isinstance(module, _CONVOLUTIONS + _TRANSPOSED):
            reason = own_methods(module) or _type_reason(module)
            refusal = "filter_fn refused it" if name in refused else reason
            entries.append(Entry.of(name, module, refusal))
    return entries


def _type_reason(module: nn.Module) -> str:
    """Why kernels do not take its weights; a type that only a call tells is looked at there."""
    dtype = weight_type(module)
    return "" if dtype is None else unsupported_type(dtype)


def _patch_one(module: nn.Module, patch: Patch, *, root: bool) -> None:
    if isinstance(module, _CONVOLUTIONS):
        ours = torch_forward if patch.reason else convolution_forward
        put(module, patch, "_conv_forward", ours)
        if splits_for_cudnn(module) and not patch.reason:
            put(module, patch, "forward", unsplit_forward)
    elif isinstance(module, _TRANSPOSED):
        put(module, patch, "forward", torch_forward if patch.reason else transposed_forward)
    elif root or not type(module).__module__.startswith("torch.nn."):
        put(module, patch, "forward", module_forward)
