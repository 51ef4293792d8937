"""The convolutions that a model calls, as its server's dispatch sees them: with cached frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from trnconv.geometry import ConvShape, lifted
from trnconv.integrations.vllm_omni_neuron.routes import Route, route_of

_FRONT = 4  # of six paddings, last axis first: frames before the first


@dataclass(frozen=True)
class SiteCall:
    """One call of one convolution: frames of its cache are frames of its input."""

    name: str
    shape: ConvShape
    route: Route  # who computes it in vllm-omni-neuron


def site_calls(model: nn.Module, run: Callable[[], object]) -> list[SiteCall]:
    """The calls that happen while `run()` runs, in order; on the meta device it takes seconds."""
    calls: list[SiteCall] = []
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d)):
            hooks.append(module.register_forward_pre_hook(_noting(name, calls), with_kwargs=True))
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def chunks_of(calls: Sequence[SiteCall]) -> list[list[SiteCall]]:
    """The calls of each chunk of frames: a site that is called again begins another."""
    chunks: list[list[SiteCall]] = []
    seen: set[str] = set()
    for call in calls:
        if not chunks or call.name in seen:
            chunks.append([])
            seen = set()
        seen.add(call.name)
        chunks[-1].append(call)
    return chunks


def _noting(name: str, calls: list[SiteCall]) -> Callable[..., None]:
    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, *rest = args
        cache = rest[0] if rest else kwargs.get("cache_x")
        shape = _shape(module, x, cache)
        calls.append(SiteCall(name, shape, route_of(shape, has_bias=module.bias is not None)))

    return note


def _shape(module: Any, x: Any, cache: Any) -> ConvShape:
    """The problem with the cache in front, in place of as many frames of padding."""
    is_3d = isinstance(module, nn.Conv3d)
    axes = module._padding if hasattr(module, "_padding") else None  # noqa: SLF001 (a causal one)
    frames = 0 if cache is None or axes is None or axes[_FRONT] == 0 else cache.shape[2]
    if axes is not None:
        before = (axes[4] - frames, axes[2], axes[0])
        after = (axes[5], axes[3], axes[1])
    else:
        before = after = lifted(tuple(module.padding), 0)
    size = tuple(x.shape[2:]) if is_3d else (1, *x.shape[2:])
    return ConvShape(
        batch=x.shape[0],
        c_in=x.shape[1],
        c_out=module.out_channels,
        size=(size[0] + frames, size[1], size[2]),
        kernel=lifted(tuple(module.kernel_size), 1),
        stride=lifted(tuple(module.stride), 1),
        dilation=lifted(tuple(module.dilation), 1),
        pad_before=before,
        pad_after=after,
        groups=module.groups,
    )
