"""Kernels between convolutions, for stage 2: on data whose results are integers.

Norms of values with the same magnitude are signs; attention by equal weights is an average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from nkisim.machine import Machine
from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, Finding
from trnconv.bringup.probes.probe import Array, Arrays, integers
from trnconv.bringup.stage1 import SEEDS, difference
from trnconv.fused_ops.attention import problem as attention
from trnconv.fused_ops.group_norm import problem as group_norm
from trnconv.fused_ops.group_norm_gradient import problem as group_norm_gradient
from trnconv.fused_ops.launch import FusedOpLaunch
from trnconv.fused_ops.modulation import problem as modulation
from trnconv.fused_ops.rms_norm import problem as rms_norm
from trnconv.fused_ops.rms_norm_gradient import problem as rms_norm_gradient
from trnconv.problem.epilogue import IDENTITY

_BF16: Final = ml_dtypes.bfloat16
_RMS_NORM: Final = rms_norm.RmsNorm(96, 2500, activation=IDENTITY)
_GRADIENT: Final = rms_norm_gradient.RmsNormGradient(
    rms_norm.RmsNorm(64, 2500, activation=IDENTITY)
)
_GROUP_NORM: Final = group_norm.GroupNorm(1, 64, 32, 1200, activation=IDENTITY, frames=3)
_GROUP_GRADIENT: Final = group_norm_gradient.GroupNormGradient(160, 2500, activation=IDENTITY)
_ATTENTION: Final = attention.Attention(1, 3 * 160, 64, frame_tokens=160)
_MODULATION: Final = modulation.Modulation(64, 8, 24, 2, (0, 1, 1), activation=IDENTITY)

Call = Callable[[FusedOpLaunch, Arrays], Array]


@dataclass(frozen=True)
class FusedOpLayer:
    """A kernel, and what of it is asked; `run` returns what was found and what has to be."""

    name: str
    asks: str
    problem: Any
    run: Callable[[Machine, int, int, Call], tuple[Array, Array]]


def _rms_norm(machine: Machine, cores: int, seed: int, call: Call) -> tuple[Array, Array]:
    """Every value of a position has the same magnitude: what is left is its sign, by gamma."""
    problem = _RMS_NORM
    shape = (1, problem.channels, problem.positions)
    signs = np.where(integers(seed, *shape, most=1) < 0, -1.0, 1.0)
    x = signs * 2.0 ** integers(seed + 1, 1, 1, problem.positions)
    gamma = integers(seed + 2, problem.channels)
    launch = rms_norm.launch_of(problem, gamma, None, machine, cores)
    return call(launch, (x.astype(_BF16),)), signs * gamma[None, :, None]


def _gradient(machine: Machine, cores: int, seed: int, call: Call) -> tuple[Array, Array]:
    """Values of a position have the same magnitude, and few have a gradient: eighths at most."""
    norm = _GRADIENT.norm
    shape = (1, norm.channels, norm.positions)
    signs = np.where(integers(seed, *shape, most=1) < 0, -1.0, 1.0)
    sizes = 2.0 ** integers(seed + 1, 1, 1, norm.positions)
    dy = np.zeros(shape, np.float32)
    dy[:, :8] = integers(seed + 2, 1, 8, norm.positions, most=1)
    gamma = integers(seed + 3, norm.channels, most=2)
    packed = rms_norm_gradient.pack(norm, gamma, None, machine)
    launch = rms_norm_gradient.launch_of(_GRADIENT, packed, machine, cores)
    result = call(launch, ((signs * sizes).astype(_BF16), dy.astype(_BF16)))
    scaled = gamma[None, :, None] * dy
    spread = (scaled * signs).sum(axis=1, keepdims=True) / norm.channels
    return result, (scaled - signs * spread) / sizes


def _group_norm(machine: Machine, cores: int, seed: int, call: Call) -> tuple[Array, Array]:
    """Half of the values are 1 above their frame's mean and half below; no result is near 0."""
    problem = _GROUP_NORM
    shape = (1, problem.channels, problem.frames, problem.positions)
    signs = np.broadcast_to(np.where(np.arange(problem.positions) % 2, -1.0, 1.0), shape)
    x = signs + integers(seed, 1, 1, problem.frames, 1)
    gamma, beta = integers(seed + 1, problem.channels), 8 + integers(seed + 2, problem.channels)
    whole = (1, problem.channels, problem.frames * problem.positions)
    rounded = x.reshape(whole).astype(_BF16)
    counted = group_norm.statistics_launch(problem, machine, cores)
    launch = group_norm.apply_launch(problem, gamma, beta, machine, cores)
    result = call(launch, (rounded, call(counted, (rounded,))))
    return result, signs.reshape(whole) * gamma[None, :, None] + beta[None, :, None]


def _group_gradient(machine: Machine, cores: int, seed: int, call: Call) -> tuple[Array, Array]:
    """Few positions have a gradient, so sums are small; they are numbers of the second launch."""
    problem = _GROUP_GRADIENT
    shape = (1, problem.channels, problem.positions)
    x, dy = integers(seed, *shape, most=2), np.zeros(shape, np.float32)
    dy[:, :, ::350] = integers(seed + 1, *dy[:, :, ::350].shape, most=1)
    tensors = (x.astype(_BF16), dy.astype(_BF16))
    ones, zeros = np.ones(problem.channels), np.zeros(problem.channels)
    numbers = group_norm_gradient.pack(np.stack([ones, zeros, ones, zeros], 1), machine)
    parts = call(group_norm_gradient.sums_launch(problem, numbers, machine, cores), tensors)
    sums = parts.sum(axis=0)
    second = np.stack([ones, zeros, 2 * ones, sums[:, 0], sums[:, 1]], 1)
    launch = group_norm_gradient.input_launch(
        problem, group_norm_gradient.pack(second, machine), machine, cores
    )
    along, shift = (dy * x).sum(axis=2)[..., None], dy.sum(axis=2)[..., None]
    return call(launch, tensors), 2 * dy + along * x + shift


def _attention(machine: Machine, cores: int, seed: int, call: Call) -> tuple[Array, Array]:
    """Queries of 0 weigh all keys that they see alike: averages over frames up to their own."""
    problem, frame = _ATTENTION, _ATTENTION.frame_tokens or 1
    shape = (1, problem.tokens, problem.head_dim)
    scale = integers(seed, problem.head_dim)
    numbers = np.arange(problem.tokens) // frame
    v = 2.0 * numbers[None, :, None] * scale
    q, k = np.zeros(shape), integers(seed + 1, *shape)
    launch = attention.launch_of(problem, machine, cores)
    result = call(launch, (q.astype(_BF16), k.astype(_BF16), v.astype(_BF16)))
    return result, v / 2


def _modulation(machine: Machine, cores: int, seed: int, call: Call) -> tuple[Array, Array]:
    """Integers, with coefficients."""
    problem, factor = _MODULATION, _MODULATION.factor
    high = (problem.channels, len(problem.frame_map), problem.rows, problem.columns)
    low = (problem.channels, problem.low_frames, problem.rows // factor, problem.columns // factor)
    x, scale, shift = (
        integers(seed + n, *size, dtype=_BF16, most=2) for n, size in enumerate((high, low, low))
    )
    coefficients = integers(seed + 3, problem.channels, 2, most=2)
    launch = modulation.launch_of(problem, machine, cores)
    result = call(launch, (x, scale, shift, coefficients))
    wide = [array.astype(np.float32)[:, list(problem.frame_map)] for array in (scale, shift)]
    scales, shifts = (array.repeat(factor, axis=2).repeat(factor, axis=3) for array in wide)
    a, b = coefficients.T[:, :, None, None, None]
    return result, (a * x.astype(np.float32) + b) * scales + shifts


FUSED_OP_LAYERS: Final = (
    FusedOpLayer("rms-norm", "sums over partitions by ones", _RMS_NORM, _rms_norm),
    FusedOpLayer("rms-norm-gradient", "two sums and two outputs", _GRADIENT, _gradient),
    FusedOpLayer("group-norm", "bn_stats, and averages by a matmul", _GROUP_NORM, _group_norm),
    FusedOpLayer("group-norm-gradient", "sums, then dx", _GROUP_GRADIENT, _group_gradient),
    FusedOpLayer("attention", "exp with its sum, weights turned around", _ATTENTION, _attention),
    FusedOpLayer("modulation", "views with a step of 0", _MODULATION, _modulation),
)


def run(layer: FusedOpLayer, bench: Bench) -> Finding:
    """A kernel on data of three seeds, against the definition."""
    why = layer.problem.refuses(bench.machine, bench.cores)
    if why:
        return Finding(OFF, why)

    def call(launch: FusedOpLaunch, tensors: Arrays) -> Array:
        return np.asarray(bench.runner.call(launch.kernel, (*tensors, *launch.arguments))[0])

    for seed in SEEDS:
        result, exact = layer.run(bench.machine, bench.cores, 10 * seed, call)
        wrong = difference((result,), (exact.astype(_BF16),))
        if wrong:
            return Finding(RED, f"run {seed}: {wrong}")
    return Finding(GREEN, f"{len(SEEDS)} runs equal, {bench.cores} cores")
