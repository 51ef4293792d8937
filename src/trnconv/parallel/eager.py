"""Bands with gradients: torch's own tensors, and every exchange an operation of autograd.

Nothing is noted and put off here. Padding along the cut takes rows of other ranks where they have
them, and is padding at the border only; so a padded band is a window of the padded whole, and a
convolution of it gives the band of the whole's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trnconv.errors import UnsupportedError
from trnconv.geometry import CIRCULAR, REFLECT, REPLICATE, ZEROS
from trnconv.parallel.banded_model import BandedModel
from trnconv.parallel.differentiable import fetched
from trnconv.parallel.grid import NAMES, BandGrid
from trnconv.parallel.receptive_field import Sliding, out_bands, receptive_fields
from trnconv.parallel.row_functions import handled
from trnconv.pytorch import functional
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.patching.methods import ATTRIBUTE

Tensor = torch.Tensor
_MARK = "_trnconv_padded"
_MODES = {"constant": ZEROS, "replicate": REPLICATE, "reflect": REFLECT, "circular": CIRCULAR}


@dataclass(frozen=True)
class Padded:
    """What a padded band is a window of."""

    grid: BandGrid
    sides: tuple[tuple[int, int], ...]  # along each axis that is cut


class EagerBands(TorchFunctionMode):
    """While a model in bands runs with gradients: functions that look at several rows pass here."""

    def __init__(self, spread: BandedModel) -> None:
        super().__init__()
        self._spread = spread

    def __enter__(self) -> EagerBands:  # noqa: PYI034 (typing.Self arrives with Python 3.11)
        self._spread.eager = True
        self._spread.enter()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *details: object) -> None:
        self._spread.eager = False
        super().__exit__(*details)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Merge, exchange, refuse, or let every rank do its own part."""
        keywords = kwargs or {}
        del types
        if self._spread.axes:
            if getattr(func, "__name__", "") == "pad":
                return _pad(self._spread, func, *args, **keywords)
            result = handled(self._spread, func, args, keywords)
            if result is not NotImplemented:
                return result
        return func(*args, **keywords)


def _pad(
    spread: BandedModel,
    func: Callable[..., Any],
    x: Tensor,
    pads: Any,
    mode: str = "constant",
    value: float | None = None,
) -> Tensor:
    """torch.nn.functional.pad: across bands by exchange, the rest by torch."""
    places = [2 * (2 - axis) for axis in spread.cut.axes]  # torch counts from the last axis
    across = tuple(tuple(pads[at : at + 2]) or (0, 0) for at in places)
    if not any(map(any, across)) or x.dim() < 4:
        padded: Tensor = func(x, pads, mode=mode, value=value)
        return padded
    if value or min(map(min, across)) < 0 or hasattr(x, _MARK):
        raise UnsupportedError(
            f"padding of {spread.cut.names} by {across} with {value}, of a video in bands: zeros,"
            " replicate or reflect, once, and no cropping."
        )
    inside = {at + side for at in places for side in (0, 1)}
    rest = [0 if place in inside else n for place, n in enumerate(pads)]
    wide = padded_band(spread, x, across, _MODES[mode])
    if any(rest):
        mark = getattr(wide, _MARK)
        wide = func(wide, rest, mode=mode, value=value)
        setattr(wide, _MARK, mark)
    return wide


def padded_band(
    spread: BandedModel, x: Tensor, sides: tuple[tuple[int, int], ...], mode: str
) -> Tensor:
    """The band and so many rows more on each side: another rank's, or padding at a border."""
    axes, grid = spread.cut.axes, spread.grid(x.shape)
    spread.first(x.shape, x.shape[2], x.dtype)
    all_of_it = tuple(
        Sliding(before + after + 1, before=before, after=after, mode=mode)
        for before, after in sides
    )
    every = receptive_fields(grid, all_of_it)
    wanted = tuple(tuple(reads.rows for reads in fields) for fields in every)
    spread.comm.module = spread.stats.module
    rows = fetched(x, spread.comm, spread.cut.dims(x.dim()), grid, wanted)
    edges = [0, 0] * (x.dim() - 2)
    for axis, field in zip(axes, every[spread.comm.rank], strict=True):
        if field.order:
            order = torch.tensor(field.order, device=rows.device)
            rows = rows.index_select(x.dim() + axis - 3, order)
        edges[2 * (2 - axis) : 2 * (3 - axis)] = field.before, field.after
    if any(edges):
        named = {ZEROS: "constant"}.get(mode, mode)
        rows = _unseen(torch.nn.functional.pad, rows, edges, mode=named)
    setattr(rows, _MARK, Padded(grid, sides))
    return rows


def _unseen(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of torch as it is."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001 (torch's own name for it)
        return func(*args, **kwargs)


def convolved_with_gradients(
    spread: BandedModel, module: Any, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """A convolution of a band, on tensors, in one graph with its exchange."""
    rank = weight.dim() - 2
    own_mode = "zeros" if module.padding_mode == "constant" else module.padding_mode
    filters = Filters(weight, bias, module.stride, module.padding, module.dilation, module.groups)
    window = filters.window()
    pads = [window.padding[axis] for axis in range(3 - rank, 3)]
    axes = spread.axes
    if rank > 1 and not all(window.is_pointwise(axis) for axis in axes):
        marked: Padded | None = getattr(x, _MARK, None)
        padding = tuple(window.padding[axis] for axis in axes)
        if marked is None:
            x = padded_band(spread, x, padding, own_mode)
            marked = getattr(x, _MARK)
            for axis in axes:
                pads[axis - (3 - rank)] = (0, 0)
        elif any(map(any, padding)):
            raise UnsupportedError(
                f"{spread.stats.module}: {spread.cut.names} padded twice, with gradients, in bands."
            )
        for at in range(len(axes)):
            _require_aligned(spread, marked, window, at)
    if any(before != after for before, after in pads):
        raise UnsupportedError(f"{spread.stats.module}: unequal padding {pads}, with gradients.")
    convolve = getattr(functional, f"conv{rank}d")
    y: Tensor = convolve(
        x,
        weight,
        bias,
        module.stride,
        tuple(before for before, _ in pads),
        module.dilation,
        module.groups,
        padding_mode=module.padding_mode,
        backend=module.__dict__[ATTRIBUTE].context.backend,
    )
    return y


def _require_aligned(spread: BandedModel, marked: Padded, window: Any, at: int) -> None:
    """The window must start where the outputs of this rank do, and be as long as they need."""
    axis, bands, (before, after) = spread.cut.axes[at], marked.grid.bands[at], marked.sides[at]
    sliding = Sliding(
        kernel=window.kernel[axis],
        stride=window.stride[axis],
        dilation=window.dilation[axis],
        before=before,
        after=after,
    )
    made = out_bands(bands, sliding)
    spread.levels[at].add(made)
    for rank in range(bands.ranks):
        start, stop = bands.of(rank)
        rows_in = stop - start + before + after
        outputs = (rows_in - sliding.reach) // sliding.stride + 1
        if made.of(rank)[0] * sliding.stride != start or outputs != made.size(rank):
            raise UnsupportedError(
                f"{spread.stats.module}: a convolution with stride {sliding.stride} of bands of"
                f" {bands.sizes()} {NAMES[axis]}, with gradients: bands must be multiples of the"
                " stride, and padding as long as the kernel reaches. Use split(..., unit=...)."
            )
