"""causal_conv3d: a video convolved chunk by chunk, with the frames before as a cache.

The cache is a tuple of tensors [N, C_in, T_i, H, W], oldest first: the last `dilation * (kernel -
1) + 1 - stride` frames of all that came before (none if that is negative), fewer at the start of a
video. They are read where they lie, nothing is concatenated. What the next cache has is copied: it
shares memory with nothing that the caller gave, neither the chunk nor the cache before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from trnconv.errors import ShapeError
from trnconv.geometry import REPLICATE, ZEROS, Triple
from trnconv.problem.epilogue import IDENTITY
from trnconv.problem.policy import BF16, Policy, policy_of
from trnconv.pytorch import functional
from trnconv.pytorch.backends.choice import Backend, asked_for
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.functional.arguments import Axes, require_no_order, wants_gradient
from trnconv.pytorch.operators.convolutions import fused_convolution

Tensor = torch.Tensor
Cache = tuple[Tensor, ...]


def causal_conv3d(  # noqa: PLR0913 (torch's own arguments, and ours)
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    cache: Cache | None = None,
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    padding_mode: str = ZEROS,
    first: Literal["zeros", "replicate"] = "zeros",
    activation: str = IDENTITY,
    residual: Tensor | None = None,
    reproducible: bool = False,
    accuracy: str | Policy = BF16,
    backend: str | Backend | None = None,
    machine: str | None = None,
    cores: int | None = None,
) -> tuple[Tensor, Cache]:
    """A chunk x [N, C_in, T, H, W] of a video -> (y, the cache for the next chunk).

    Without a cache, x starts the video: before it are zeros, or copies of its first frame
    (`first`). `padding` and `padding_mode` are of rows and columns; frames are never padded
    behind. Chunks of any length give the frames that the whole video would; with a temporal
    stride, a chunk must end where a step ends.
    """
    asked = asked_for(backend, machine, cores)
    steps, dilations = _triple(stride), _triple(dilation)
    rows, columns = _pair(padding)
    held: Cache = () if cache is None else cache
    _require_alike(x, (weight, bias, residual), held)
    _require_whole_steps(x.shape[2], steps[0])
    reach = dilations[0] * (weight.shape[2] - 1) + 1
    context = max(0, reach - steps[0])
    missing = _missing(first, context, sum(piece.shape[2] for piece in held))
    spec = ConvSpec(
        stride=steps,
        before=(missing, rows, columns),
        after=(0, rows, columns),
        dilation=dilations,
        groups=groups,
        modes=(REPLICATE if first == "replicate" else ZEROS, padding_mode, padding_mode),
        activation=activation,
        reproducible=reproducible,
        accuracy=policy_of(accuracy).text(),
    )
    unread = max(0, steps[0] - reach)  # frames of each step before the kernel begins
    pieces = [*(piece for piece in held if piece.shape[2]), x[:, :, unread:]]
    if wants_gradient(*pieces, weight, bias, residual):
        require_no_order(reproducible=reproducible)
        y = _with_gradients(pieces, (weight, bias, residual), spec, asked)
    else:
        y = fused_convolution(pieces, weight, bias, spec, residual, asked)
    return y, next_cache(pieces, context)


def _with_gradients(
    pieces: Sequence[Tensor],
    others: tuple[Tensor, Tensor | None, Tensor | None],
    spec: ConvSpec,
    backend: str,
) -> Tensor:
    """The same by operators that have gradients: joined, padded in time, then convolved."""
    weight, bias, residual = others
    joined = torch.cat(list(pieces), dim=2)
    sides = [0, 0, 0, 0, spec.before[0], 0]
    named = "constant" if spec.modes[0] == ZEROS else spec.modes[0]
    padded = torch.nn.functional.pad(joined, sides, mode=named)
    return functional.conv3d(
        padded,
        weight,
        bias,
        spec.stride,
        (0, *spec.before[1:]),
        spec.dilation,
        spec.groups,
        padding_mode=spec.modes[1],
        activation=spec.activation,
        residual=residual,
        backend=backend,
    )


def next_cache(pieces: Sequence[Tensor], context: int) -> Cache:
    """The last `context` frames of all pieces, in memory of their own."""
    kept: list[Tensor] = []
    for piece in reversed(pieces):
        if context <= 0:
            break
        frames = piece.shape[2]
        kept.append(piece[:, :, max(0, frames - context) :].clone())
        context -= frames
    return tuple(reversed(kept))


def _require_alike(
    x: Tensor, others: tuple[Tensor, Tensor | None, Tensor | None], cache: Cache
) -> None:
    """Videos of one size and type, and weight, bias and residual for them."""
    if not isinstance(cache, tuple):
        raise ShapeError("a cache is a tuple of tensors: what the call before returned, or None.")
    for name, tensor in (("x", x), ("weight", others[0])):
        if tensor.dim() != 5:
            raise ShapeError(f"{name} {list(tensor.shape)}: 5 dimensions are needed.")
    wanted = (*x.shape[:2], *x.shape[3:])
    for piece in cache:
        if piece.dim() != 5 or (*piece.shape[:2], *piece.shape[3:]) != wanted:
            raise ShapeError(
                f"a cache with frames {list(piece.shape)} for a chunk {list(x.shape)}: only the"
                " number of frames may differ. Start a new video with cache=None."
            )
    types = [tensor.dtype for tensor in (x, *others, *cache) if tensor is not None]
    if len(set(types)) > 1:
        named = ", ".join(str(kind) for kind in types)
        raise ShapeError(f"x, its filters and its cache are of {named}: one type is needed.")


def _require_whole_steps(frames: int, step: int) -> None:
    if frames < 1 or frames % step:
        raise ShapeError(
            f"a chunk of {frames} frames with a temporal stride of {step}: chunks must be"
            f" multiples of {step} frames, and have at least one step."
        )


def _missing(first: str, context: int, known: int) -> int:
    """Frames of context to make up: at the start of a video only."""
    if first not in ("zeros", "replicate"):
        raise ShapeError(f"first={first!r}: what is before the first frame is zeros or replicate.")
    if known > context:
        raise ShapeError(f"a cache of {known} frames: this convolution reads {context}.")
    return context - known  # copies are of the oldest cached frame: the video's first


def _triple(value: Axes) -> Triple:
    listed = (value,) * 3 if isinstance(value, int) else tuple(value)
    if len(listed) != 3:
        raise ShapeError(f"{value}: one number, or one for each of 3 axes.")
    return (listed[0], listed[1], listed[2])


def _pair(value: Axes) -> tuple[int, int]:
    listed = (value,) * 2 if isinstance(value, int) else tuple(value)
    if len(listed) != 2:
        raise ShapeError(f"padding={value}: one number, or one for rows and one for columns.")
    return (listed[0], listed[1])
