"""One convolution, from arrays to an array, in nkisim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import nkisim
from nkisim import Kernel, Run
from nkisim.machine import find_machine
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import ZEROS, Axes, ConvShape, Padding, TransposedShape, conv_shape
from trnconv.kernels.forward import forward_of_pieces, forward_on_two_cores
from trnconv.packing import forward_filters, pack_bias, pack_places, pack_weights
from trnconv.plan.choose import choose, request_for
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.ends import ITEM_BYTES, NO_RESIDUAL, PLAIN_END, End
from trnconv.plan.launches import Launch
from trnconv.plan.parts import planned_parts
from trnconv.plan.problem import fold
from trnconv.plan.shares import share
from trnconv.plan.work_out import work_out

Array = np.ndarray[Any, Any]
_MOST_CORES = 2


@dataclass(frozen=True)
class LaunchOptions:
    """Where and how to run, and how to end.

    `exact` keeps an Inf or NaN of x to the outputs whose taps meet it; without it, zeros of packed
    filters spread it to neighbours. `plans` replace the planner's choice, one for each core.
    """

    target: str = "trn2"
    cores: int = 1
    exact: bool = False
    plans: tuple[ConvPlan, ...] | None = None
    end: End = PLAIN_END  # what is fused into the way out of PSUM
    residual: Array | None = None  # of the output's shape, added where `end` says


DEFAULT_LAUNCH = LaunchOptions()


@dataclass(frozen=True)
class Convolved:
    """An output, and for each launch the plans that made it (one a core) and what nkisim saw."""

    y: Array
    plans: tuple[tuple[ConvPlan, ...], ...]
    runs: tuple[Run, ...]


def convolve(  # noqa: PLR0913 (torch's own arguments, and where to run)
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    padding_mode: str | Sequence[str] = ZEROS,
    launch: LaunchOptions = DEFAULT_LAUNCH,
) -> Convolved:
    """torch's conv1d/2d/3d of x [N, C_in, ...] and w [C_out, C_in / groups, ...], simulated."""
    shape = conv_shape(
        x.shape,
        w.shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        padding_mode=padding_mode,
    )
    rank = len(x.shape) - 2
    require_bias(bias, shape.c_out)
    _require_residual(launch, (*x.shape[:1], shape.c_out, *shape.out_sizes()[3 - rank :]))
    x5 = x.reshape(shape.batch, shape.c_in, *shape.size)
    w5 = w.astype(x.dtype).reshape(shape.c_out, shape.c_in // groups, *shape.kernel)
    y5 = np.empty((shape.batch, shape.c_out, *shape.out_sizes()), _out_dtype(x, launch))
    residual = None if launch.residual is None else launch.residual.reshape(y5.shape)
    done = []
    for part, mine in planned_launches(shape, str(x.dtype), launch):
        added = None if residual is None else part.output_of(residual)
        own_bias = None if bias is None else part.channels_of(bias)
        arrays = _Arrays((part.input_of(x5),), part.channels_of(w5), own_bias, added)
        run = _launch(arrays, mine, part.shape)
        part.output_of(y5)[...] = _only(run.outputs)
        done.append((mine, run))
    y = y5.reshape(shape.batch, shape.c_out, *shape.out_sizes()[3 - rank :])
    return Convolved(y, tuple(mine for mine, _ in done), tuple(run for _, run in done))


def convolve_pieces(  # noqa: PLR0913 (torch's own arguments, and where to run)
    pieces: Sequence[Array],
    w: Array,
    bias: Array | None = None,
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    launch: LaunchOptions = DEFAULT_LAUNCH,
) -> Convolved:
    """conv3d of an input that lies in several tensors, one after the other along the frames.

    Nothing is concatenated: each window is loaded from where its frames are. That is what a causal
    cache needs.
    """
    frames = tuple(piece.shape[2] for piece in pieces)
    first = pieces[0].shape
    whole = (*first[:2], sum(frames), *first[3:])
    shape = conv_shape(whole, w.shape, stride=stride, padding=padding, dilation=dilation)
    require_bias(bias, shape.c_out)
    _require_residual(launch, (shape.batch, shape.c_out, *shape.out_sizes()))
    dtype = str(pieces[0].dtype)
    mine = launch.plans or plan_for(shape, dtype, launch, frames)
    arrays = _Arrays(tuple(pieces), w.astype(pieces[0].dtype), bias, launch.residual)
    run = _launch(arrays, mine, shape)
    return Convolved(_only(run.outputs), (mine,), (run,))


def planned_launches(
    shape: ConvShape, dtype: str, launch: LaunchOptions = DEFAULT_LAUNCH
) -> Iterator[tuple[Launch, tuple[ConvPlan, ...]]]:
    """The parts of a convolution with their plans, one for each core; mostly it is one part."""
    return planned_parts(shape, lambda part: launch.plans or plan_for(part, dtype, launch))


def convolve_transposed(
    x: Array,
    w: Array,
    bias: Array | None,
    shape: TransposedShape,
    launch: LaunchOptions = DEFAULT_LAUNCH,
) -> Convolved:
    """A transposed convolution of x [N, C_in, D, H, W] and w [C_in, C_out / groups, KD, KH, KW]."""
    groups = shape.groups
    require_shape("input", x, (shape.batch, shape.c_in, *shape.size))
    require_shape("weight", w, (shape.c_in, shape.c_out // groups, *shape.kernel))
    require_bias(bias, shape.c_out)
    if launch.residual is not None or launch.end.residual != NO_RESIDUAL:
        raise UnsupportedError("a residual of a transposed convolution: add it afterwards.")
    swapped = forward_filters(w.astype(x.dtype), groups)
    mine = launch.plans or plan_for(shape, str(x.dtype), launch)
    run = _launch(_Arrays((x,), swapped, bias, None), mine, shape)
    depth, height, width = shape.out
    y = _only(run.outputs)[:, :, :depth, :height, :width]
    return Convolved(y, (mine,), (run,))


def require_shape(name: str, array: Array, expected: tuple[int, ...]) -> None:
    """Refuse an array that would have to be reshaped to fit."""
    if tuple(array.shape) != expected:
        raise ShapeError(f"{name} {tuple(array.shape)}: {expected} is needed.")


def require_bias(bias: Array | None, channels: int) -> None:
    """Refuse a bias that is not one number for each output channel."""
    if bias is not None:
        require_shape("bias", bias, (channels,))


def _require_residual(launch: LaunchOptions, expected: tuple[int, ...]) -> None:
    asked, given = launch.end.residual != NO_RESIDUAL, launch.residual
    if asked != (given is not None):
        raise ShapeError(
            f"residual {'asked for, but none given' if asked else 'given, but the end adds none'}:"
            " say both, or neither."
        )
    if given is not None:
        require_shape("residual", given, expected)


def _only(outputs: Any) -> Array:
    return np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs)


def plan_for(
    shape: ConvShape | TransposedShape,
    dtype: str,
    launch: LaunchOptions = DEFAULT_LAUNCH,
    pieces: tuple[int, ...] = (),
) -> tuple[ConvPlan, ...]:
    """The planner's choice, one plan for each core; `pieces` as in `convolve_pieces`."""
    if dtype not in ITEM_BYTES:
        raise UnsupportedError(
            f"a convolution of {dtype}: the kernels take {', '.join(ITEM_BYTES)}. Cast the input."
        )
    machine = find_machine(launch.target)
    if launch.cores not in range(1, min(_MOST_CORES, machine.lnc_max) + 1):
        raise UnsupportedError(
            f"{launch.cores} cores on {machine.name}: a launch has 1 to {machine.lnc_max}."
            " Ask for fewer."
        )
    request = request_for(shape, machine, dtype, exact=launch.exact)
    request = replace(request, end=launch.end, problem=fold(shape, pieces))
    if launch.cores == 1:
        return (choose(request).taken.plan,)
    one, two = share(request)
    return (one.taken.plan, two.taken.plan)


@dataclass(frozen=True)
class _Arrays:
    pieces: tuple[Array, ...]
    w: Array
    bias: Array | None
    residual: Array | None


def _launch(
    arrays: _Arrays, plans: tuple[ConvPlan, ...], shape: ConvShape | TransposedShape
) -> Run:
    works = [work_out(plan, shape) for plan in plans]
    images = tuple(
        pack_weights(arrays.w, plan.problem, work) for plan, work in zip(plans, works, strict=True)
    )
    biases = tuple(pack_bias(arrays.bias, work) for work in works)
    places = tuple(pack_places(work) for work in works)
    recipes = tuple(work.recipe for work in works)
    residual, target = arrays.residual, plans[0].machine
    if len(plans) == 1:
        packed = (images[0], biases[0], places[0])
        return nkisim.run(
            Kernel(forward_of_pieces), arrays.pieces, *packed, residual, recipes[0], target=target
        )
    pair = Kernel(forward_on_two_cores)[_MOST_CORES]
    return nkisim.run(pair, arrays.pieces, images, biases, places, residual, recipes, target=target)


def _out_dtype(x: Array, launch: LaunchOptions) -> Any:
    return np.dtype(launch.end.dtype) if launch.end.dtype else x.dtype
