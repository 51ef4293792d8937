"""Functions of torch that look at several rows at once, met by a video in bands.

Group norms are merged over ranks, attention asks for the whole tensor, and the rest is refused:
what is not listed here works on every position alone, or moves no data between rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trnconv.errors import UnsupportedError
from trnconv.parallel.attention import attention
from trnconv.parallel.banded_model import BandedModel
from trnconv.parallel.group_norm import group_norm
from trnconv.pytorch.lazy.fusion.epilogues import value_of

_MIX_ALL = """scaled_dot_product_attention bmm baddbmm matmul __matmul__ einsum softmax
multi_head_attention_forward""".split()
_REFUSED = """avg_pool2d avg_pool3d max_pool2d max_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
lp_pool2d instance_norm grid_sample unfold fold conv_transpose2d conv_transpose3d""".split()
_ALONG_DIMENSIONS = """mean sum var std var_mean std_mean amax amin max min norm prod logsumexp
cumsum cumprod flip roll sort argmax argmin median normalize layer_norm softmax log_softmax
vector_norm""".split()
_FRAMES = 4  # dimensions of a tensor that may have rows and columns


class GatherWanted(Exception):  # noqa: N818 (not an error: a module asks for its input as a whole)
    """Raised inside of a module that mixes all positions; caught by `forward`."""


def handled(spread: BandedModel, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a function over all bands; NotImplemented if every rank may do its own part."""
    name = getattr(func, "__name__", "")
    if not spread.axes:
        attends = name == "scaled_dot_product_attention"
        return attention(spread, func, args, kwargs) if attends else NotImplemented
    if name in _MIX_ALL:
        raise GatherWanted(name)
    if name in _REFUSED:
        raise _refusal(spread, name)
    if name == "group_norm":
        if args[0].dim() < _FRAMES:
            raise GatherWanted(name)
        spread.comm.module = spread.stats.module
        named = {name: value_of(value) for name, value in kwargs.items()}
        return group_norm(spread.comm, *(value_of(arg) for arg in args), **named)
    if name == "interpolate":
        _require_nearest(spread, args, kwargs)
    if name == "__getitem__" and _cuts(spread, args):
        raise _refusal(spread, f"some of the {spread.cut.names}")
    if name in _ALONG_DIMENSIONS and _crosses(spread, name, args, kwargs):
        raise _refusal(spread, f"{name} along {spread.cut.names}")
    return NotImplemented


def _require_nearest(spread: BandedModel, args: Any, kwargs: Any) -> None:
    """Upsampling by whole numbers copies rows; any other way reads several."""
    bound = dict(zip(("input", "size", "scale_factor", "mode"), args, strict=False), **kwargs)
    mode = bound.get("mode", "nearest")
    x, size, factor = bound["input"], bound.get("size"), bound.get("scale_factor")
    listed = size if size is not None else factor
    for axis in spread.cut.axes:
        at = axis - 3
        value = listed[at] if isinstance(listed, (tuple, list, torch.Size)) else listed
        times = value / x.shape[at] if size is not None else value
        whole = times is not None and times >= 1 and times == int(times)
        if mode not in ("nearest", "nearest-exact") or not whole:
            raise _refusal(spread, f"interpolation ({mode}) by {times}")


def _crosses(spread: BandedModel, name: str, args: Any, kwargs: Any) -> bool:
    """Whether a function along dimensions goes along the one that is cut."""
    rank = _rank(args[0])
    if rank < _FRAMES:
        return False
    if name == "layer_norm":
        shape = kwargs.get("normalized_shape", args[1] if len(args) > 1 else ())
        return any(len(shape) > 2 - axis for axis in spread.cut.axes)
    position = 2 if name in ("norm", "normalize", "roll") else 1
    positional = args[position] if len(args) > position else None
    dims = kwargs.get("dim", kwargs.get("dims", positional))
    if dims is None and name == "normalize":
        dims = 1
    if _rank(dims):
        return False  # the larger of two tensors, position by position
    if dims is None:
        return True
    listed = dims if isinstance(dims, (tuple, list)) else (dims,)
    return not {dim % rank for dim in listed}.isdisjoint(spread.cut.dims(rank))


def _cuts(spread: BandedModel, args: Any) -> bool:
    """Whether an index takes some of the rows; [..., None] and the like are let through."""
    keys = args[1] if isinstance(args[1], tuple) else (args[1],)
    plain = all(isinstance(key, (slice, int)) for key in keys)
    rank = _rank(args[0])
    if not plain or rank < _FRAMES:
        return False
    cut_keys = [keys[at] for at in spread.cut.dims(rank) if at < len(keys)]
    return any(key not in (slice(None), slice(0, None)) for key in cut_keys)


def _rank(value: Any) -> int:
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _refusal(spread: BandedModel, what: str) -> UnsupportedError:
    cut = spread.cut.names
    return UnsupportedError(
        f"{spread.stats.module or 'the model'}: {what}, of a video cut into bands of"
        f" {cut}. It reads {cut} of other ranks, and is not known to"
        " trnconv.parallel. Cut the other axis, or run the model on one rank."
    )
