"""One convolution, from arrays to an array, in nkisim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import nkisim
from nkisim import Run
from nkisim.machine import find_machine
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.geometry import ZEROS, Axes, ConvShape, Padding, TransposedShape, conv_shape
from trnconv.kernels.forward import forward_of_pieces, forward_on_two_cores
from trnconv.packing import forward_filters, pack_bias, pack_places, pack_weights
from trnconv.plan.accuracy import DEFAULT_POLICY, Policy
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.ends import ITEM_BYTES, NO_RESIDUAL, PLAIN_END, End
from trnconv.plan.fast_choose import sums_alike
from trnconv.plan.fast_plan import FastPlan
from trnconv.plan.launches import Launch, launches
from trnconv.plan.orders import keeps_orders
from trnconv.plan.parts import planned_parts
from trnconv.plan.problem import Problem, fold
from trnconv.plan.question import Plan, Question, Shape, best_plan
from trnconv.plan.shares import share
from trnconv.plan.work_out import work_out
from trnconv.runtime.allowance import our_kernel
from trnconv.runtime.fast_kernel import run_fast

Array = np.ndarray[Any, Any]
_MOST_CORES = 2
_DIMENSIONS = 5


@dataclass(frozen=True)
class LaunchOptions:
    """Where and how to run, and how to end.

    `exact` keeps an Inf or NaN of x to the outputs whose taps meet it; without it, zeros of packed
    filters spread it to neighbours. `plans` replace the planner's choice, one for each core.

    `reproducible` gives every output the same bits however the input is cut: into chunks of frames
    or rows (with the halo they need), pieces, batches or shares of cores. Plans are then slower.

    `policy` says what may be given for speed (plan/accuracy.py): by default, large convolutions may
    be computed by F(2,3) in fp16, which is as accurate as bf16. Two cores are always direct.
    """

    target: str = "trn2"
    cores: int = 1
    exact: bool = False
    plans: tuple[Plan, ...] | None = None
    end: End = PLAIN_END  # what is fused into the way out of PSUM
    residual: Array | None = None  # of the output's shape, added where `end` says
    reproducible: bool = False
    policy: Policy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        """Refuse plans that contradict the other options."""
        if self.reproducible and not all(_sums_alike(plan) for plan in self.plans or ()):
            raise UnsupportedError(
                "reproducible=True with plans that sum outputs in different orders: plan with"
                " reproducible=True, or drop one of the two."
            )


DEFAULT_LAUNCH = LaunchOptions()


@dataclass(frozen=True)
class Convolved:
    """An output, and for each launch the plans that made it (one a core) and what nkisim saw."""

    y: Array
    plans: tuple[tuple[Plan, ...], ...]
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
    hidden = 5 - x.ndim
    _require_residual(launch, (*x.shape[:1], shape.c_out, *shape.out_sizes()[hidden:]))
    x5 = x.reshape(shape.batch, shape.c_in, *shape.size)
    w5 = w.reshape(shape.c_out, shape.c_in // groups, *shape.kernel)
    done = convolve_shape((x5,), w5, bias, shape, _in_five_dimensions(launch, shape))
    y = done.y.reshape(shape.batch, shape.c_out, *shape.out_sizes()[hidden:])
    return replace(done, y=y)


def _in_five_dimensions(launch: LaunchOptions, shape: ConvShape) -> LaunchOptions:
    if launch.residual is None:
        return launch
    sizes = (shape.batch, shape.c_out, *shape.out_sizes())
    return replace(launch, residual=launch.residual.reshape(sizes))


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
    frames = sum(piece.shape[2] for piece in pieces)
    first = pieces[0].shape
    whole = (*first[:2], frames, *first[3:])
    shape = conv_shape(whole, w.shape, stride=stride, padding=padding, dilation=dilation)
    return convolve_shape(pieces, w, bias, shape, launch)


def convolve_shape(
    pieces: Sequence[Array],
    w: Array,
    bias: Array | None,
    shape: ConvShape,
    launch: LaunchOptions = DEFAULT_LAUNCH,
) -> Convolved:
    """Any convolution that a ConvShape describes: its modes, groups, upsampling and all.

    The input is [N, C_in, D, H, W], in one array or in several, one after the other along the
    frames; padding and taps reach across them. w is [C_out, C_in / groups, KD, KH, KW].
    """
    x = _pieces_of(pieces, shape)
    require_shape("weight", w, (shape.c_out, shape.c_in // shape.groups, *shape.kernel))
    require_bias(bias, shape.c_out)
    sizes = (shape.batch, shape.c_out, *shape.out_sizes())
    _require_residual(launch, sizes)
    if len(x) > 1:
        return _convolve_in_one_launch(x, (w, bias), shape, launch)
    y = np.empty(sizes, _out_dtype(x[0], launch))
    done = []
    for part, mine in planned_launches(shape, str(x[0].dtype), launch):
        added = None if launch.residual is None else part.output_of(launch.residual)
        own_bias = None if bias is None else part.channels_of(bias)
        arrays = _Arrays((part.input_of(x[0]),), part.channels_of(w), own_bias, added)
        run = _launch(arrays, mine, part.shape)
        part.output_of(y)[...] = _cropped(run, part.shape)
        done.append((mine, run))
    return Convolved(y, tuple(mine for mine, _ in done), tuple(run for _, run in done))


def _convolve_in_one_launch(
    x: tuple[Array, ...],
    filters: tuple[Array, Array | None],
    shape: ConvShape,
    launch: LaunchOptions,
) -> Convolved:
    """Several pieces: parts of a convolution would have to cut them."""
    frames = tuple(piece.shape[2] for piece in x)
    if len(launches(shape)) > 1:
        raise _too_large(frames, "offsets into its tensors do not fit 32 bits.")
    try:
        mine = launch.plans or plan_for(shape, str(x[0].dtype), launch, frames)
    except PlanError as error:
        raise _too_large(frames, str(error)) from error
    run = _launch(_Arrays(x, *filters, launch.residual), mine, shape)
    return Convolved(_cropped(run, shape), (mine,), (run,))


def _too_large(frames: tuple[int, ...], why: str) -> UnsupportedError:
    return UnsupportedError(
        f"an input in pieces of {frames} frames that needs several launches: {why} Only one piece"
        " can be split. Concatenate first."
    )


def _pieces_of(pieces: Sequence[Array], shape: ConvShape) -> tuple[Array, ...]:
    """The pieces that have frames; together they have to be the input."""
    kept = tuple(piece for piece in pieces if piece.ndim != _DIMENSIONS or piece.shape[2])
    for piece in kept:
        frames = piece.shape[2] if piece.ndim == _DIMENSIONS else shape.size[0]
        sizes = (shape.batch, shape.c_in, frames, *shape.size[1:])
        require_shape("a piece of the input", piece, sizes)
        if piece.dtype != kept[0].dtype:
            raise ShapeError(
                f"pieces of {kept[0].dtype} and of {piece.dtype}: one type is needed. Cast them."
            )
    total = sum(piece.shape[2] for piece in kept)
    if total != shape.size[0]:
        raise ShapeError(f"pieces with {total} frames in all: {shape.size[0]} are needed.")
    return kept


def _cropped(run: Run, shape: Shape) -> Array:
    """The output without what was computed to make phases whole."""
    depth, height, width = shape.out_sizes()
    return _only(run.outputs)[:, :, :depth, :height, :width]


def _unsized(shape: ConvShape) -> Problem:
    return fold(shape, every_tap=True)


def planned_launches(
    shape: ConvShape, dtype: str, launch: LaunchOptions = DEFAULT_LAUNCH
) -> Iterator[tuple[Launch, tuple[Plan, ...]]]:
    """The parts of a convolution with their plans, one for each core; mostly it is one part."""

    def plan(part: ConvShape) -> tuple[Plan, ...]:
        if launch.reproducible and not keeps_orders(_unsized(part), _unsized(shape)):
            raise UnsupportedError(
                f"reproducible=True for {shape}, which needs several launches, one with"
                f" {part.c_out} output channels: they would be summed in another order. Split the"
                " input."
            )
        return launch.plans or plan_for(part, dtype, launch)

    return planned_parts(shape, plan)


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
    return Convolved(_cropped(run, shape), (mine,), (run,))


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
    shape: Shape,
    dtype: str,
    launch: LaunchOptions = DEFAULT_LAUNCH,
    pieces: tuple[int, ...] = (),
) -> tuple[Plan, ...]:
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
    question = Question(
        shape=shape,
        machine=machine,
        dtype=dtype,
        pieces=pieces,
        end=launch.end,
        reproducible=launch.reproducible,
        policy=launch.policy,
        exact=launch.exact,
    )
    if launch.cores == 1:
        return (best_plan(question).plan,)
    one, two = share(question.direct())
    return (one.taken.plan, two.taken.plan)


def _sums_alike(plan: Plan) -> bool:
    """Whether a plan sums outputs in an order that does not depend on how the input is cut."""
    return sums_alike(plan) if isinstance(plan, FastPlan) else plan.sums_alike


@dataclass(frozen=True)
class _Arrays:
    pieces: tuple[Array, ...]
    w: Array
    bias: Array | None
    residual: Array | None


def _launch(arrays: _Arrays, plans: tuple[Plan, ...], shape: Shape) -> Run:
    first, *others = plans
    summation = "fixed" if all(_sums_alike(plan) for plan in plans) else "fast"
    if isinstance(first, FastPlan):
        if others or first.shape != shape:
            raise PlanError(f"{first}: a fast plan is for one core, and for its own shape.")
        filters = (arrays.w, arrays.bias, arrays.residual)
        return run_fast(first, arrays.pieces, *filters, summation=summation)
    direct = [plan for plan in plans if isinstance(plan, ConvPlan)]
    if len(direct) < len(plans):
        raise PlanError(f"plans of different kinds: {plans}.")
    return _launch_direct(arrays, direct, shape, summation)


def _launch_direct(arrays: _Arrays, plans: Sequence[ConvPlan], shape: Shape, summation: str) -> Run:
    works = [work_out(plan, shape) for plan in plans]
    if arrays.residual is not None and works[0].recipe.y_shape != arrays.residual.shape:
        raise UnsupportedError(
            f"a residual of {arrays.residual.shape} where whole phases of {works[0].recipe.y_shape}"
            " are computed and cropped: add it afterwards."
        )
    w = arrays.w.astype(arrays.pieces[0].dtype)
    images = tuple(
        pack_weights(w, plan.problem, work) for plan, work in zip(plans, works, strict=True)
    )
    biases = tuple(pack_bias(arrays.bias, work) for work in works)
    places = tuple(pack_places(work) for work in works)
    recipes = tuple(work.recipe for work in works)
    residual, target = arrays.residual, plans[0].machine
    run = partial(nkisim.run, target=target, summation=summation)
    if len(plans) == 1:
        packed = (images[0], biases[0], places[0])
        return run(our_kernel(forward_of_pieces), arrays.pieces, *packed, residual, recipes[0])
    pair = our_kernel(forward_on_two_cores)[_MOST_CORES]
    return run(pair, arrays.pieces, images, biases, places, residual, recipes)


def _out_dtype(x: Array, launch: LaunchOptions) -> Any:
    return np.dtype(launch.end.dtype) if launch.end.dtype else x.dtype
