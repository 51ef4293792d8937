"""A norm of torch tensors as ops and backends get it, and what it may be modulated by."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from trnconv.fused_ops.group_norm.problem import GroupNorm
from trnconv.fused_ops.modulation.problem import Modulation
from trnconv.fused_ops.rms_norm.problem import MEAN, NORM, RmsNorm
from trnconv.problem.epilogue import IDENTITY
from trnconv.pytorch.backends.arrays import Array

GROUPS = "groups"  # statistics of groups of channels, over all positions of an image
FRAME_GROUPS = "frame groups"  # the same of each frame
LENGTH, MEAN_SQUARE = NORM, MEAN  # over channels: eps is the least length, or is added to the mean
_CHANNELS = 1


@dataclass(frozen=True)
class NormCall:
    """act(factor * gamma_c * normed x + beta_c), for x [N, C, T, H, W]."""

    kind: str  # LENGTH, MEAN_SQUARE, GROUPS or FRAME_GROUPS
    eps: float = 0.0
    groups: int = 1
    factor: float = 1.0
    activation: str = IDENTITY
    first: int = 0  # frame of x, of a norm over channels
    frames: int = 0  # so many of them; 0: all

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        """Of the result, for x of a shape."""
        return (*x[:2], self.frames or x[2], *x[3:])

    def problem(self, shape: tuple[int, ...], dtype: str, *, has_beta: bool) -> RmsNorm | GroupNorm:
        """What a kernel is asked for x of a shape."""
        n, c, t, h, w = self.shape(shape)
        if self.kind in (GROUPS, FRAME_GROUPS):
            frames = t if self.kind == FRAME_GROUPS else 1
            positions = t * h * w // frames
            own = (self.activation, self.eps, frames)
            return GroupNorm(n, c, self.groups, positions, dtype, *own)
        return RmsNorm(
            c,
            t * h * w,
            dtype,
            self.activation,
            n,
            self.eps,
            self.kind,
            has_beta=has_beta,
            x_first=self.first * h * w,
            x_positions=shape[2] * h * w if self.frames else 0,
        )

    def factors(
        self, channels: int, gamma: Array | None, beta: Array | None
    ) -> tuple[Array, Array | None]:
        """gamma and beta as kernels take them, float32.

        The kernel of lengths multiplies by the root of the number of channels, torch does not.
        """
        own = np.ones(channels, np.float32) if gamma is None else gamma.reshape(-1)
        factor = self.factor / sqrt(channels) if self.kind == LENGTH else self.factor
        scaled = own.astype(np.float32) * np.float32(factor)
        if beta is None and self.kind in (GROUPS, FRAME_GROUPS):
            return scaled, np.zeros(channels, np.float32)
        return scaled, None if beta is None else beta.reshape(-1).astype(np.float32)

    def words(self) -> str:
        """As ops take it; `worded_norm` is the inverse."""
        numbers = (self.groups, self.eps.hex(), self.factor.hex(), self.first, self.frames)
        return ",".join((self.kind, self.activation, *map(str, numbers)))


def worded_norm(words: str) -> NormCall:
    """A call from what ops take."""
    kind, activation, groups, eps, factor, first, frames = words.split(",")
    numbers = (float.fromhex(eps), int(groups), float.fromhex(factor))
    return NormCall(kind, *numbers, activation, int(first), int(frames))


@dataclass(frozen=True)
class ModulationCall:
    """act((a_c x + b_c) * scale + shift) for x [1, C, T, H, W], scale and shift of less."""

    factor: int  # rows and columns of x for one of theirs
    frame_map: tuple[int, ...]  # which of their frames each frame of x has
    activation: str = IDENTITY

    def problem(self, shape: tuple[int, ...], dtype: str) -> Modulation:
        """What a kernel is asked for x of a shape."""
        c, _, h, w = shape[1:]
        return Modulation(c, h, w, self.factor, self.frame_map, dtype, self.activation)

    def words(self) -> str:
        """As ops take it; `worded_modulation` is the inverse."""
        return ",".join((self.activation, str(self.factor), *map(str, self.frame_map)))


def worded_modulation(words: str) -> ModulationCall:
    """A call from what ops take."""
    activation, factor, *frames = words.split(",")
    return ModulationCall(int(factor), tuple(map(int, frames)), activation)


def flat(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """[N, C, T, H, W] as kernels of norms see it: images, channels, positions."""
    return shape[0], shape[_CHANNELS], prod(shape[2:])
