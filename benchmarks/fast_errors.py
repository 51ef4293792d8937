"""Errors of fast convolutions against float64, over those of a direct one with the same output.

Bars are limits of the accuracy that an algorithm is offered under, or narrower ones.

Two kinds of data: white noise, and what a decoder feeds its convolutions: SiLU of a normalised
field that is correlated in space and time, with heavy-tailed weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.table import Column, aligned
from nkisim.machine import TRN2
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.plan import family_of
from trnconv.algorithms.winograd.transforms import OUTER, nested, transform_of
from trnconv.geometry import ConvShape, conv_shape
from trnconv.planner.table import algorithm_named
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import BF16, FAST, FASTEST, LIMITS
from trnconv.reference import forward
from trnconv.runtime.launch import LaunchOperands, prepare, run

Array = np.ndarray[Any, Any]
BFLOAT = np.dtype(ml_dtypes.bfloat16)
WHITE, DECODER = "white noise", "like a decoder's"
DIFFERENCES, PHASES = "differences", "phases"
_UPSAMPLED = {DIFFERENCES: ("winograd_upsample", "differences"), PHASES: ("direct", "direct")}
_ALONG = {0: "frames", 1: "rows"}
_SIZE = {96: (6, 12, 16), 192: (6, 8, 16), 384: (6, 8, 10), 1024: (6, 4, 6)}


F23, F43 = "F(2,3)", "F(4,3)"
CHANNELS = (96, 192, 384, 1024)


@dataclass(frozen=True)
class Errors:
    """RMS and largest error, over the floor: the exact output rounded to bf16."""

    transform: str
    along: str
    channels: int
    data: str
    rms: float
    largest: float


def shape_of(channels: int) -> ConvShape:
    """A small layer of so many channels."""
    size = _SIZE[channels]
    return conv_shape((1, channels, *size), (channels, channels, 3, 3, 3), padding=(0, 1, 1))


def arrays(shape: ConvShape, data: str, seed: int = 0) -> tuple[Array, Array]:
    """x and w in bf16."""
    rng = np.random.default_rng([shape.c_in, seed])
    x = rng.standard_normal((1, shape.c_in, *shape.size))
    spread = (shape.c_in * shape.taps()) ** -0.5
    w = rng.standard_normal((shape.c_out, shape.c_in, *shape.kernel)) * spread
    if data == DECODER:
        for axis in (2, 3, 4):
            x = x + 0.8 * np.roll(x, 1, axis) + 0.5 * np.roll(x, 2, axis)
        x = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True))
        x = x / (1 + np.exp(-x))
        w = rng.standard_t(4, w.shape) * spread
    return x.astype(BFLOAT), w.astype(BFLOAT)


def upsampled_shape_of(channels: int) -> ConvShape:
    """A small layer of so many channels that reads its input twice as large."""
    size = _SIZE[channels]
    return conv_shape(
        (1, channels, *size), (channels, channels, 1, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)
    )


def measure(transform: str, axis: int, channels: int, data: str) -> Errors:
    """One layer by F(m, 3) along an axis, simulated."""
    family = family_of(transform, axis)
    rms, largest = _over_floor("winograd", family, shape_of(channels), data)
    return Errors(transform, _ALONG[axis], channels, data, rms, largest)


def measure_pairs(transform: str, channels: int, data: str) -> Errors:
    """One layer by F(2,3) along frames around F(m, 3) along rows, simulated."""
    family = family_of(transform, 1, pairs=True)
    rms, largest = _over_floor("winograd", family, shape_of(channels), data)
    return Errors(pairs_of(transform), "both", channels, data, rms, largest)


def pairs_of(transform: str) -> str:
    """The name of a transform whose frames are paired."""
    return nested(OUTER, transform_of(transform)).name


def measure_upsampled(family: str, channels: int, data: str) -> Errors:
    """One upsampled layer by a family of an algorithm, simulated."""
    algorithm, searched = _UPSAMPLED[family]
    rms, largest = _over_floor(algorithm, searched, upsampled_shape_of(channels), data)
    return Errors(family, "both", channels, data, rms, largest)


def _over_floor(algorithm: str, family: str, shape: ConvShape, data: str) -> tuple[float, float]:
    """RMS and largest error of the best plan, over those of rounding the exact output."""
    x, w = arrays(shape, data)
    candidates = search(algorithm_named(algorithm), ConvProblem(shape, TRN2), family)
    done = run(prepare((candidates[0].plan,)), LaunchOperands((x,), w))
    y = np.asarray(done.outputs).astype(np.float64)
    exact = forward(x, w, None, shape)
    floor = np.abs(exact.astype(BFLOAT).astype(np.float64) - exact)
    error = np.abs(y - exact)
    rms = float(np.sqrt(np.square(error).mean() / np.square(floor).mean()))
    return rms, float(error.max() / floor.max())


RMS_BARS = {
    F23: 1.02,
    F43: LIMITS[FAST],
    DIFFERENCES: LIMITS[BF16],
    pairs_of(F23): LIMITS[BF16],
    pairs_of(F43): LIMITS[FASTEST],
}
LARGEST_BARS = dict.fromkeys((F23, F43, DIFFERENCES, pairs_of(F23)), 1.3)


def error_table(errors: Sequence[Errors]) -> str:
    """Measured in the simulator, which rounds as the machine is documented to."""
    columns = [Column("transform", "<"), Column("along", "<"), Column("channels")]
    columns += [Column("data", "<"), Column("RMS over\nfloor"), Column("bar")]
    columns += [Column("largest\nover floor"), Column("bar"), Column("met", "<")]
    rows = [
        [
            error.transform,
            error.along,
            f"{error.channels}",
            error.data,
            f"{error.rms:.3f}",
            f"{RMS_BARS[error.transform]}" if has_bar(error) else "-",
            f"{error.largest:.2f}",
            f"{LARGEST_BARS.get(error.transform, '-')}",
            ("met" if errors_met(error) else "missed") if has_bar(error) else "",
        ]
        for error in errors
    ]
    return aligned(columns, rows)


def has_bar(errors: Errors) -> bool:
    """Whether an algorithm promises errors: phases are what the others are compared with."""
    return errors.transform in RMS_BARS


def errors_met(errors: Errors) -> bool:
    """Whether both errors are within their bars."""
    largest = LARGEST_BARS.get(errors.transform, inf)
    return errors.rms <= RMS_BARS[errors.transform] and errors.largest <= largest


def all_errors() -> list[Errors]:
    """Both transforms and kinds of data, by frames; by rows once; rows of frames in pairs.

    Upsampled layers in both ways.

    Phases are direct convolutions of merged taps, which are rounded to bf16: no bar is theirs.
    """
    errors = [
        measure(transform, 0, channels, data)
        for transform in (F23, F43)
        for channels in CHANNELS
        for data in (DECODER, WHITE)
    ]
    errors += [measure(transform, 1, CHANNELS[0], DECODER) for transform in (F23, F43)]
    errors += [
        measure_pairs(transform, channels, data)
        for transform in (F23, F43)
        for channels in CHANNELS
        for data in (DECODER, WHITE)
    ]
    return errors + [
        measure_upsampled(family, channels, data)
        for family in (DIFFERENCES, PHASES)
        for channels in CHANNELS
        for data in (DECODER, WHITE)
    ]
