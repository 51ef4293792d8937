"""The layers of stage 2: small convolutions, each with something a kernel does only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import ml_dtypes
import numpy as np

from nkisim.machine import PARTITIONS, Machine
from trnconv.algorithms.algorithm import Plan
from trnconv.bringup.probes.probe import Arrays, integers
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape, TransposedShape, conv_shape, transposed_shape
from trnconv.planner.best import is_searched, offers_of, only
from trnconv.planner.table import algorithm_named
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import (
    AFTER,
    BEFORE,
    ELU,
    NO_RESIDUAL,
    RELU,
    NormEpilogue,
    epilogue_of,
    leaky_relu,
    slope_of,
)
from trnconv.problem.policy import BF16, FAST, Policy
from trnconv.problem.prologue import FACTORS, prologue_of
from trnconv.reference import forward, transposed, weight_gradient
from trnconv.runtime.launch import LaunchOperands
from trnconv.runtime.plans import plans_for

_DTYPES: Final = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float16": np.float16}
_BUDGETS: Final = (60, 80, 100, 130, 160, 200, 250, 300, 400, 600, 900, 1400)  # static instructions
_WIDE: Final = epilogue_of("identity", "none", "float32")


@dataclass(frozen=True)
class LadderLayer:
    """A convolution, and what of the kernels it is there for."""

    name: str
    asks: str
    problem: Callable[[Machine], ConvProblem]
    planned: Callable[[ConvProblem, int], tuple[Plan, ...]] = plans_for
    most: int = 1  # of the integers that go in: results that bfloat16 holds


def operands_of(problem: ConvProblem, seed: int, most: int) -> LaunchOperands:
    """Integers for all that a problem asks for."""
    shape, dtype = problem.shape, _DTYPES[problem.dtype]
    x = integers(seed, shape.batch, shape.c_in, *shape.size, dtype=dtype, most=most)
    y_shape = (shape.batch, shape.c_out, *shape.out_sizes())
    if problem.direction == WEIGHT_GRADIENT:
        return LaunchOperands((x, integers(seed + 1, *y_shape, dtype=dtype, most=most)))
    ins = shape.c_in // shape.groups
    w = integers(seed + 2, shape.c_out, ins, *shape.kernel, dtype=dtype, most=most)
    bias = integers(seed + 3, shape.c_out, most=most)
    added = problem.epilogue.residual != "none"
    residual = integers(seed + 4, *y_shape, dtype=dtype, most=most) if added else None
    sizes = (shape.c_in, FACTORS)
    scaled = problem.prologue.scaled
    factors = integers(seed + 5, *sizes, dtype=np.float32, most=most) if scaled else None
    drawn = LaunchOperands((x,), w, bias, residual, factors)
    return drawn if problem.epilogue.norm is None else _alike(drawn, seed + 6)


def _alike(drawn: LaunchOperands, seed: int) -> LaunchOperands:
    """The first filter for all channels, with a sign for each: values of a position are alike.

    A norm over channels leaves their signs. Scales are whole after it: it divides by the root of
    the number of channels.
    """
    channels = len(drawn.w)
    signs = np.where(integers(seed, channels, most=1) < 0, -1, 1)
    w = (signs[:, None, None, None, None] * drawn.w[:1]).astype(drawn.w.dtype)
    bias = (signs * drawn.bias[:1]).astype(drawn.bias.dtype)
    scales = np.zeros((channels, FACTORS), np.float32)
    scales[:, 0] = integers(seed + 1, channels) * np.sqrt(channels)
    return replace(drawn, w=w, bias=bias, scales=scales)


def expected_of(problem: ConvProblem, operands: LaunchOperands) -> Arrays:
    """The definition in float64, rounded once: exact, because everything is an integer."""
    shape, x = problem.shape, operands.inputs[0]
    out = _DTYPES[problem.epilogue.dtype or problem.dtype]
    if problem.direction == WEIGHT_GRADIENT:
        assert isinstance(shape, ConvShape)
        return (weight_gradient(x, operands.inputs[1], shape).astype(out),)
    if isinstance(shape, TransposedShape):
        filters = np.swapaxes(operands.w, 0, 1)
        sums = transposed(x, filters, operands.bias, shape)
    else:
        sums = forward(_started(x, operands.factors), operands.w, operands.bias, shape)
    y = _ended(sums, problem, operands.residual).astype(out)
    if problem.epilogue.norm is None:
        return (y,)
    root = np.sqrt(problem.shape.c_out)
    return (y, (np.sign(y) * operands.scales[None, :, :1, None, None] / root).astype(out))


def _started(x: Any, factors: Any) -> Any:
    """The start that the ladder asks for: relu."""
    if factors is None:
        return x
    scale, shift = (factors[:, n].astype(np.float64)[None, :, None, None, None] for n in range(2))
    return np.maximum(scale * x.astype(np.float64) + shift, 0)


def _ended(sums: Any, problem: ConvProblem, residual: Any) -> Any:
    epilogue = problem.epilogue
    if epilogue.residual == BEFORE:
        sums = sums + residual.astype(np.float64)
    sums = _activated(sums, epilogue.activation)
    return sums + residual.astype(np.float64) if epilogue.residual == AFTER else sums


def _activated(z: Any, activation: str) -> Any:
    """The activations that the ladder asks for.

    exp(z) - 1 of integers is far from where bfloat16 rounds the other way.
    """
    if slope := slope_of(activation):
        return np.where(z < 0, slope * z, z)
    if activation == ELU:
        return np.where(z < 0, np.expm1(np.minimum(z, 0)), z)
    return np.maximum(z, 0) if activation == RELU else z


def _asked(*sizes: Any, **options: Any) -> Callable[[Machine], ConvProblem]:
    """A problem by sizes of x and w and what conv_shape takes; the rest is the problem's."""
    moves = {
        name: options.pop(name)
        for name in ("stride", "padding", "groups", "upsample")
        if name in options
    }
    shape = conv_shape(*sizes, **moves)

    def problem(machine: Machine) -> ConvProblem:
        return ConvProblem(shape, machine, **options)

    return problem


def _looped(problem: ConvProblem, cores: int) -> tuple[Plan, ...]:
    """Plans with a hardware loop, because little else is short enough; unrolled without loops.

    If each core's share has none of a few lengths, both do all of it, in a loop.
    """
    if not problem.machine.accepts.loops:
        return plans_for(problem, cores)
    for budget in _BUDGETS:
        try:
            plans = plans_for(replace(problem, budget=budget), cores)
        except PlanError:
            continue
        if all(plan.is_looped for plan in plans):
            return plans
    algorithm = algorithm_named("direct")
    for offer in offers_of(replace(problem, algorithms=(algorithm.name,))):
        for priced in algorithm.looped(algorithm, problem, offer.family, offer.plans):
            return (priced.plan,) * cores
    raise PlanError(f"no plan of {problem.shape} has a loop. Report it.")


def _ahead(problem: ConvProblem, cores: int) -> tuple[Plan, ...]:
    """Plans that load ahead of stores; without, if the machine does not take that."""
    if not problem.machine.accepts.loads_ahead:
        return plans_for(problem, cores)
    return _having(replace(problem, algorithms=("direct",)), cores, ahead=1)


def _by_dma(problem: ConvProblem, cores: int) -> tuple[Plan, ...]:
    """Gradients whose tiles DMA transposes; by the Tensor engine, if DMA is not taken for that."""
    if not problem.machine.accepts.dma_transposes:
        return plans_for(problem, cores)
    return _having(problem, cores, by_dma=1)


def _having(problem: ConvProblem, cores: int, **least: int) -> tuple[Plan, ...]:
    """The fastest plan of a family whose decisions are at least these; the same for every core."""
    for offer in offers_of(problem):
        for priced in offer.plans:
            if all(getattr(priced.plan, name) >= least[name] for name in least):
                return (priced.plan,) * cores
    raise PlanError(f"no plan of {problem.shape} has {' and '.join(least)}. Report it.")


def _deciding(**least: int) -> Callable[[ConvProblem, int], tuple[Plan, ...]]:
    """By a Winograd plan whose decisions are at least these; else by what is taken instead."""

    def planned(problem: ConvProblem, cores: int) -> tuple[Plan, ...]:
        winograd_only = only(problem, "winograd")
        if not is_searched(winograd_only):
            return plans_for(problem, cores)
        return _having(winograd_only, cores, **least)

    return planned


def _by(algorithm: str) -> Callable[[ConvProblem, int], tuple[Plan, ...]]:
    """By an algorithm, if the machine takes what it needs; else by what is taken instead."""

    def planned(problem: ConvProblem, cores: int) -> tuple[Plan, ...]:
        try:
            return plans_for(replace(problem, algorithms=(algorithm,)), cores)
        except PlanError:
            return plans_for(problem, cores)

    return planned


def _transposed_problem(machine: Machine) -> ConvProblem:
    shape = transposed_shape(
        (1, 16, 1, 5, 6), (16, 24, 1, 4, 4), stride=(1, 2, 2), padding=(0, 1, 1)
    )
    return ConvProblem(shape, machine)


def _fast_problem(machine: Machine) -> ConvProblem:
    """What the Winograd algorithm computes, if the machine takes what that needs."""
    policy = Policy(FAST, x_max=4.0, least_macs=0)
    shape = conv_shape((1, 64, 3, 8, 32), (64, 64, 3, 3, 3), padding=(0, 1, 1))
    return ConvProblem(shape, machine, policy=policy)


def _wide_problem(machine: Machine) -> ConvProblem:
    """So many channels that weights do not stay in SBUF."""
    return _exact_problem(machine, 4 * PARTITIONS, 4 * PARTITIONS, frames=4)


def _pairs_problem(machine: Machine) -> ConvProblem:
    """Two tiles of output channels, for which frames are computed in pairs."""
    return _exact_problem(machine, PARTITIONS, 2 * PARTITIONS, frames=6)


def _columns_problem(machine: Machine) -> ConvProblem:
    """A quarter of a tile of output channels more than a tile."""
    return _exact_problem(machine, 64, PARTITIONS + PARTITIONS // 4, frames=3)


def _exact_problem(machine: Machine, c_in: int, c_out: int, frames: int) -> ConvProblem:
    """By F(2,3), which is exact for integers."""
    policy = Policy(BF16, x_max=4.0, least_macs=0)
    shape = conv_shape((1, c_in, frames, 8, 32), (c_out, c_in, 3, 3, 3), padding=(0, 1, 1))
    return ConvProblem(shape, machine, policy=policy)


def _added_problem(machine: Machine) -> ConvProblem:
    """The same with a residual."""
    return replace(_fast_problem(machine), epilogue=epilogue_of(RELU, BEFORE, ""))


def _scaled_problem(machine: Machine) -> ConvProblem:
    """A prologue, where the algorithm that has one is not refused; else without."""
    plain = _fast_problem(machine)
    scaled = replace(plain, prologue=prologue_of(RELU))
    return scaled if is_searched(only(scaled, "winograd")) else plain


def _normed_problem(machine: Machine) -> ConvProblem:
    """A norm in the epilogue, where the algorithm that has one is not refused; else without."""
    plain = _fast_problem(machine)
    normed = replace(plain, epilogue=replace(plain.epilogue, norm=NormEpilogue(2.0**-40)))
    return normed if is_searched(only(normed, "winograd")) else plain


def _elu_problem(machine: Machine) -> ConvProblem:
    """ELU, where sums may be replaced in PSUM; else relu."""
    epilogue = epilogue_of(ELU if machine.accepts.psum_in_place else RELU, NO_RESIDUAL, "")
    shape = conv_shape((1, 16, 200), (24, 16, 7), padding=9, dilation=3)
    return ConvProblem(shape, machine, epilogue=epilogue)


LAYERS: Final = (
    LadderLayer("pointwise", "a matrix product", _asked((1, 96, 3, 5, 7), (64, 96, 1, 1, 1))),
    LadderLayer(
        "image",
        "nine taps of 3 channels, stacked on partitions",
        _asked((1, 3, 1, 9, 11), (48, 3, 1, 3, 3), padding=(0, 1, 1)),
    ),
    LadderLayer(
        "video",
        "27 taps, two cores if a logical core has them",
        _asked((1, 48, 4, 6, 10), (56, 48, 3, 3, 3), padding=(0, 1, 1)),
    ),
    LadderLayer(
        "residual-before",
        "a residual, then an activation, on the way out of PSUM",
        _asked(
            (1, 16, 3, 6, 10),
            (24, 16, 3, 3, 3),
            padding=(0, 1, 1),
            epilogue=epilogue_of(RELU, BEFORE, ""),
        ),
    ),
    LadderLayer(
        "residual-after",
        "an activation, then a residual",
        _asked(
            (1, 16, 3, 6, 10),
            (24, 16, 3, 3, 3),
            padding=(0, 1, 1),
            epilogue=epilogue_of(RELU, AFTER, ""),
        ),
    ),
    LadderLayer(
        "leaky-relu",
        "an activation of two instructions, one on each engine",
        _asked(
            (1, 16, 200),
            (24, 16, 3),
            padding=1,
            epilogue=epilogue_of(leaky_relu(0.5), NO_RESIDUAL, ""),
        ),
    ),
    LadderLayer(
        "elu",
        "an exponential in the place of sums in PSUM, and what is made of it",
        _elu_problem,
    ),
    LadderLayer(
        "ahead",
        "windows of the next block are loaded before this one is stored",
        _asked((1, PARTITIONS, 2, 24, 160), (PARTITIONS, PARTITIONS, 1, 1, 1)),
        _ahead,
    ),
    LadderLayer(
        "looped",
        "a hardware loop over blocks",
        _asked((1, 64, 3, 24, 320), (64, 64, 3, 3, 3), padding=(0, 1, 1)),
        _looped,
    ),
    LadderLayer(
        "transposed",
        "phases of a transposed convolution, evicted with a step",
        _transposed_problem,
    ),
    LadderLayer(
        "depthwise",
        "a filter for each channel, without the Tensor engine",
        _asked((1, 32, 1, 12, 14), (32, 1, 1, 3, 3), padding=(0, 1, 1), groups=32),
        _by("depthwise"),
    ),
    LadderLayer(
        "winograd", "the Winograd algorithm with fp16 transforms", _fast_problem, _by("winograd")
    ),
    LadderLayer(
        "gpsimd",
        "inputs subtracted and a residual added by the GpSimd engine, beside the Vector engine",
        _added_problem,
        _deciding(gpsimd_residual=1, gpsimd_steps=1),
    ),
    LadderLayer(
        "streamed",
        "tiles of inputs and weights that are loaded into the place of others while those are used",
        _wide_problem,
        _deciding(x_tiles=1, shares_sums=1),
    ),
    LadderLayer(
        "pairs",
        "two frames at once, by sums and differences of frames that sums in SBUF are added to",
        _pairs_problem,
        _deciding(frame_pairs=1),
    ),
    LadderLayer(
        "columns",
        "four columns of 32 output channels in one matmul, taken out of PSUM one by one",
        _columns_problem,
        _deciding(stacked_columns=4),
    ),
    LadderLayer(
        "winograd_upsample",
        "an upsampled input by differences of neighbours, outputs woven into rows and columns",
        _asked((1, 64, 2, 6, 16), (64, 64, 1, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)),
        _by("winograd_upsample"),
    ),
    LadderLayer(
        "scaled",
        "inputs scaled and activated where they were loaded, in place",
        _scaled_problem,
        _by("winograd"),
    ),
    LadderLayer(
        "normed",
        "outputs normed over channels while the next are computed",
        _normed_problem,
        _by("winograd"),
    ),
    LadderLayer(
        "weight-gradient",
        "the gradient of filters, with transposed tiles",
        _asked(
            (1, 32, 1, 12, 32),
            (48, 32, 1, 3, 3),
            padding=(0, 1, 1),
            direction=WEIGHT_GRADIENT,
            epilogue=_WIDE,
        ),
        _by_dma,
    ),
)
