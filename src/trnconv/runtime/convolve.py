"""Convolutions of NumPy arrays, in nkisim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nkisim import Run
from nkisim.machine import find_machine
from trnconv.algorithms.algorithm import Plan
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import ZEROS, Axes, ConvShape, Padding, TransposedShape, conv_shape
from trnconv.problem.conv_problem import ConvProblem, Shape, flipped_filters, with_plain_shape
from trnconv.problem.epilogue import NO_RESIDUAL, PLAIN_EPILOGUE, Epilogue
from trnconv.problem.policy import DEFAULT_POLICY, Policy
from trnconv.problem.prologue import PLAIN_PROLOGUE, Prologue
from trnconv.runtime import compute
from trnconv.runtime.compute import require_shape
from trnconv.runtime.launch import LaunchOperands
from trnconv.runtime.plans import plans_for
from trnconv.runtime.simulator import SimulatedDevice

Array = np.ndarray[Any, Any]
_DIMENSIONS = 5


@dataclass(frozen=True)
class LaunchOptions:
    """Where and how to run, and how to end.

    `exact` keeps an Inf or NaN of x to the outputs whose taps meet it; without it, zeros of packed
    filters spread it to neighbours. `plans` replace the planner's choice, one for each core.

    `reproducible` gives every output the same bits however the input is cut: into chunks of frames
    or rows (with the halo they need), pieces, batches or shares of cores. Plans are then slower.

    `policy` says what may be given for speed (ask/policy.py): by default, large convolutions may
    be computed by F(2,3) in fp16, which is as accurate as bf16.
    `algorithms` are the names of those that may compute it; empty: any.
    """

    machine: str = "trn2"
    cores: int | None = None  # of a launch; None: as many as the machine's has
    exact: bool = False
    plans: tuple[Plan, ...] | None = None
    epilogue: Epilogue = PLAIN_EPILOGUE  # what is fused into the way out of PSUM
    residual: Array | None = None  # of the output's shape, added where `end` says
    prologue: Prologue = PLAIN_PROLOGUE  # what is done to the input where it is loaded
    factors: Array | None = None  # of the prologue: [C_in, 2 x pieces], scale and shift of each
    reproducible: bool = False
    policy: Policy = DEFAULT_POLICY
    algorithms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse plans that contradict the other options."""
        if self.reproducible and not all(plan.is_reproducible for plan in self.plans or ()):
            raise UnsupportedError(
                "reproducible=True with plans that sum outputs in different orders: plan with"
                " reproducible=True, or drop one of the two."
            )

    def problem(self, shape: Shape, dtype: str, pieces: tuple[int, ...] = ()) -> ConvProblem:
        """What is asked of the planner."""
        return ConvProblem(
            shape=shape,
            machine=find_machine(self.machine),
            dtype=dtype,
            pieces=pieces,
            epilogue=self.epilogue,
            prologue=self.prologue,
            reproducible=self.reproducible,
            policy=self.policy,
            exact=self.exact,
            algorithms=self.algorithms,
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


def convolve_pieces(
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
    _require_residual(launch, (shape.batch, shape.c_out, *shape.out_sizes()))
    frames = tuple(piece.shape[2] for piece in x) if len(x) > 1 else ()
    _require_factors(launch)
    operands = LaunchOperands(x, w, bias, launch.residual, launch.factors)
    return _computed(shape, frames, operands, launch)


def convolve_transposed(
    x: Array,
    w: Array,
    bias: Array | None,
    shape: TransposedShape,
    launch: LaunchOptions = DEFAULT_LAUNCH,
) -> Convolved:
    """A transposed convolution of x [N, C_in, D, H, W] and w [C_in, C_out / groups, KD, KH, KW]."""
    require_shape("input", x, (shape.batch, shape.c_in, *shape.size))
    require_shape("weight", w, (shape.c_in, shape.c_out // shape.groups, *shape.kernel))
    if launch.prologue.scaled or launch.factors is not None:
        raise UnsupportedError("a transposed convolution of a scaled input: scale it before.")
    if launch.residual is not None or launch.epilogue.residual != NO_RESIDUAL:
        raise UnsupportedError("a residual of a transposed convolution: add it afterwards.")
    return _computed(
        shape, (), LaunchOperands((x,), forward_filters(w, shape.groups), bias), launch
    )


def forward_filters(w: Any, groups: int) -> Any:
    """w [C_in, C_out / groups, ...] of a transposed convolution as [C_out, C_in / groups, ...]."""
    by_group = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    return by_group.reshape(groups * w.shape[1], -1, *w.shape[2:])


def _computed(
    shape: Shape, pieces: tuple[int, ...], operands: LaunchOperands, launch: LaunchOptions
) -> Convolved:
    device = SimulatedDevice(launch.cores, launch.plans or ())
    problem = launch.problem(shape, str(operands.inputs[0].dtype), pieces)
    if not launch.plans and with_plain_shape(problem) != problem:
        problem = with_plain_shape(problem)
        operands = replace(operands, w=flipped_filters(operands.w))
    y = compute.convolution(problem, operands, device)
    plans, runs = zip(*device.launched, strict=True)
    return Convolved(y, plans, runs)


def plan_for(
    shape: Shape,
    dtype: str,
    launch: LaunchOptions = DEFAULT_LAUNCH,
    pieces: tuple[int, ...] = (),
) -> tuple[Plan, ...]:
    """The planner's choice for one launch, one plan for each core; `pieces` as in a problem."""
    return plans_for(launch.problem(shape, dtype, pieces), launch.cores)


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


def _require_factors(launch: LaunchOptions) -> None:
    wanted, factors = launch.prologue.scaled, launch.factors
    if wanted != (factors is not None):
        words = "asked for, but none given" if wanted else "given, but the prologue has none"
        raise ShapeError(f"factors {words}: say both, or neither.")
    if factors is not None and factors.dtype != np.float32:
        raise ShapeError(f"factors of {factors.dtype}: float32 is needed.")


def _require_residual(launch: LaunchOptions, expected: tuple[int, ...]) -> None:
    wanted, residual = launch.epilogue.residual != NO_RESIDUAL, launch.residual
    if wanted != (residual is not None):
        words = "asked for, but none given" if wanted else "given, but the epilogue adds none"
        raise ShapeError(f"residual {words}: say both, or neither.")
    if residual is not None:
        coarse = launch.epilogue.coarse
        require_shape("residual", residual, coarse.sizes(expected) if coarse else expected)
