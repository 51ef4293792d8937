"""The methods a model in bands gets on top of those of a patched one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trnconv.errors import UnsupportedError
from trnconv.parallel.banded_model import BandedModel
from trnconv.parallel.comm import cut_out
from trnconv.parallel.differentiable import gathered
from trnconv.parallel.eager import EagerBands, convolved_with_gradients
from trnconv.parallel.row_functions import GatherWanted, handled
from trnconv.pytorch.lazy import LazyTensor
from trnconv.pytorch.lazy.base.bypass import is_passing
from trnconv.pytorch.lazy.frames.video import AxisOrder, LazyVideo
from trnconv.pytorch.lazy.fusion.convolution import frames_of
from trnconv.pytorch.lazy.fusion.epilogues import value_of
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.videos import video_of
from trnconv.pytorch.patching.methods import (
    ATTRIBUTE,
    Patch,
    convolution_forward,
    module_forward,
    wants_gradient,
)

Tensor = torch.Tensor
_VIDEO_RANKS = (4, 5)


class LazyBands(TorchFunctionMode):
    """While a model in bands runs without gradients: functions that mix rows pass here."""

    def __init__(self, spread: BandedModel) -> None:
        super().__init__()
        self._spread = spread

    def __enter__(self) -> LazyBands:  # noqa: PYI034 (typing.Self arrives with Python 3.11)
        self._spread.enter()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Merge, exchange, refuse, or let every rank do its own part."""
        del types
        keywords = kwargs or {}
        if is_passing() or self._spread.eager:
            return func(*args, **keywords)
        result = handled(self._spread, func, args, keywords)
        if result is not NotImplemented:
            return result
        if getattr(func, "__name__", "") != "clone":
            return func(*args, **keywords)
        source = video_of(args[0])  # before it is made
        copy = func(*args, **keywords)
        _note_copy(self._spread, source, copy)
        return copy


def _note_copy(spread: BandedModel, source: LazyVideo | None, copy: Tensor) -> None:
    """Frames that were copied for a cache have the rows around them of what they are a copy of."""
    if source is None or isinstance(copy, LazyTensor) or not source.as_it_lies:
        return
    made = LazyVideo.of(copy)
    if made is not None and source.layout is AxisOrder.video:
        run = source.runs[0]
        spread.halos.copied(frames_of(run), (run.start, run.stop), made.runs[0].base)


def spread_of(context: PatchContext) -> BandedModel:
    """What `shard_` put there."""
    assert isinstance(context.spread, BandedModel)
    return context.spread


def banded_forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """A module's forward on bands; on whole tensors where it mixes all positions.

    That is found out by running it: attention, reached on bands, asks for whole tensors, and the
    innermost module around it that was given videos gets them, from then on.
    """
    patch: Patch = self.__dict__[ATTRIBUTE]
    spread = spread_of(patch.context)
    if torch.compiler.is_compiling():
        raise UnsupportedError(
            "torch.compile of a model in bands: exchanges cannot be traced. Compile it without."
        )
    if not spread.eager and wants_gradient(self, args, kwargs):
        with EagerBands(spread):
            return banded_forward(self, *args, **kwargs)
    if not spread.axes:
        return _inside_of_gathered(self, spread, args, kwargs)
    if patch.name in spread.gathering:
        return _on_whole(self, spread, args, kwargs)
    try:
        return _own_forward(self, spread, args, kwargs)
    except GatherWanted as wanted:
        if not _takes_videos_only(args, kwargs):
            if patch.name == "":
                raise UnsupportedError(
                    f"{wanted} mixes all positions, in a model that was not given a video alone."
                ) from None
            raise
    spread.gathering.add(patch.name)
    return _on_whole(self, spread, args, kwargs)


def _own_forward(module: torch.nn.Module, spread: BandedModel, args: Any, kwargs: Any) -> Any:
    if not spread.eager:
        return module_forward(module, *args, **kwargs)
    patch: Patch = module.__dict__[ATTRIBUTE]
    with spread.stats.inside(patch.name):
        return module_forward(module, *args, **kwargs)


def _takes_videos_only(args: Any, kwargs: Any) -> bool:
    """Nothing else that the module could have changed before it asked: it runs again."""
    values = [arg for arg in (*args, *kwargs.values()) if arg is not None]
    tensors = [arg for arg in values if isinstance(arg, Tensor)]
    plain = all(isinstance(arg, (Tensor, int, float, bool, str)) for arg in values)
    return plain and bool(tensors) and all(tensor.dim() in _VIDEO_RANKS for tensor in tensors)


def _on_whole(module: torch.nn.Module, spread: BandedModel, args: Any, kwargs: Any) -> Any:
    """Gather, run, and take this rank's band of the result."""
    patch: Patch = module.__dict__[ATTRIBUTE]
    spread.comm.module = patch.name
    whole = [_gathered(arg, spread) for arg in args]
    named = {key: _gathered(arg, spread) for key, arg in kwargs.items()}
    with spread.gathered():
        result = _own_forward(module, spread, whole, named)
    return _of_all(result, lambda each: _band(each, spread))


def _inside_of_gathered(
    module: torch.nn.Module, spread: BandedModel, args: Any, kwargs: Any
) -> Any:
    """Beside the attention, a module with convolutions runs on bands again."""
    patch: Patch = module.__dict__[ATTRIBUTE]
    mixes = any(f"{name}.".startswith(f"{patch.name}.") for name in spread.gathering)
    if mixes or not _takes_videos_only(args, kwargs) or not _convolves(module, spread):
        return _own_forward(module, spread, args, kwargs)
    bands = [_band(arg, spread) for arg in args]
    named = {key: _band(arg, spread) for key, arg in kwargs.items()}
    with spread.banded():
        result = _own_forward(module, spread, bands, named)
        spread.comm.module = patch.name
        return _of_all(result, lambda each: _gathered(each, spread))


def _convolves(module: torch.nn.Module, spread: BandedModel) -> bool:
    kinds = (torch.nn.Conv2d, torch.nn.Conv3d)
    convolutions = [submodule for submodule in module.modules() if isinstance(submodule, kinds)]
    return any(
        convolution.kernel_size[axis - 3] > 1
        for convolution in convolutions
        for axis in spread.cut.axes
    )


def _gathered(value: Any, spread: BandedModel) -> Any:
    """A band as the whole tensor; what has no rows as it is."""
    if not isinstance(value, Tensor) or value.dim() not in _VIDEO_RANKS:
        return value
    tensor: Tensor = value_of(value)
    dims = spread.cut.dims(tensor.dim())
    return gathered(tensor, spread.comm, dims, spread.grid(tensor.shape))


def _band(value: Any, spread: BandedModel) -> Any:
    """This rank's band of a whole tensor."""
    if not isinstance(value, Tensor) or value.dim() not in _VIDEO_RANKS:
        return value
    tensor: Tensor = value_of(value)
    grid = spread.grid_of_whole(tensor.shape)
    if grid is None:
        return value
    dims, region = spread.cut.dims(tensor.dim()), grid.of(spread.comm.rank)
    return cut_out(tensor, dims, grid.whole, region).contiguous()


def _of_all(result: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(_of_all(inner, change) for inner in result)
    return change(result)


def banded_convolution_forward(self: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In place of `_conv_forward`: lazily as in any patched model; with gradients, at once."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    spread = spread_of(patch.context)
    with spread.stats.inside(patch.name):
        if not spread.eager:
            return convolution_forward(self, x, weight, bias)
        return convolved_with_gradients(spread, self, x, weight, bias)
