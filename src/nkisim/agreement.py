"""compare: whether a kernel's result is right within a derived bound, and where it is not.

An element that is made of n operations in float32, each rounded once, and written in a type of unit
roundoff u is off by at most

    g m + u (|want| + g m) + s,    g = (1 + v) / (1 - n 2^-24) - 1 for n 2^-24 < 1

where m is the sum of the absolute values of its terms, v the unit roundoff of the type that every
term passed through on the way (0: none did), and s half of the least positive number of the
result's type. That is the usual first bound of a sum (Higham, Accuracy and Stability, section 3.1),
for any order of summation. Integers have to be equal. `want` counts as exact: compute it in
float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import ml_dtypes
import numpy as np

from nkisim.errors import refuse
from nkisim.machine import TRN2
from nkisim.numerics import dtypes
from nkisim.running.host_arrays import to_numpy

Array = np.ndarray[Any, Any]
Slices = tuple[tuple[int, int], ...]

_FLOAT32_ROUNDOFF: Final = 2.0**-24
_SHOWN_RANGES: Final = 6


@dataclass(frozen=True)
class WrongTile:
    """The first tile with a wrong element; `slices` and places count in the whole array."""

    slices: Slices
    wrong: int
    elements: int
    partitions: tuple[int, ...]  # those with a wrong element, counted in the tile
    free: Slices  # the least box around them in the tile's free axes
    worst: tuple[int, ...]
    got: float
    want: float
    bound: float

    def __str__(self) -> str:
        count = f"{self.wrong:,} of {self.elements:,} elements"
        worst = f"{list(self.worst)}: got {self.got:.9g}, want {self.want:.9g}{self._off()}"
        return (
            f"first wrong tile: {_slices(self.slices)}, {count}\n"
            f"  partitions  {_ranges(self.partitions)}\n"
            f"  free        {_slices(self.free)}\n"
            f"  worst       {worst}"
        )

    def _off(self) -> str:
        error = abs(self.got - self.want)
        if not isfinite(error):
            return ""
        if not self.bound:
            return f", off by {error:.3g}, and nothing is allowed"
        return f", off by {error:.3g}, {error / self.bound:.3g} times its bound of {self.bound:.3g}"


@dataclass(frozen=True)
class Agreement:
    """What `compare` found; its text says where, `ok` whether all is right."""

    elements: int
    wrong: int
    tiles: int
    wrong_tiles: int
    worst_share: float  # of its bound, of the worst element that is right; 0 without any
    rule: str  # what the bound was made from
    first: WrongTile | None

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound."""
        return self.wrong == 0

    def __str__(self) -> str:
        if self.first is None:
            worst = f"the worst is at {100 * self.worst_share:.1f} % of its bound"
            return f"right: {self.elements:,} elements, {worst} ({self.rule})"
        where = f"in {self.wrong_tiles:,} of {self.tiles:,} tiles"
        head = f"wrong: {self.wrong:,} of {self.elements:,} elements, {where} ({self.rule})"
        return f"{head}\n{self.first}"


def compare(
    got: Any,
    want: Any,
    *,
    terms: int = 1,
    magnitudes: Any = None,
    through: str | None = None,
    tile: tuple[int, ...] | None = None,
) -> Agreement:
    """Hold a result against exact values, element by element, within a derived bound.

    `terms` is how many operations in float32 an element is made of: the terms of a sum, one for an
    operation on single elements. `magnitudes` has, for each element, the sum of the absolute values
    of its terms (for a product: `abs(a) @ abs(b)`); without it |want| is taken, which is right
    where all terms have one sign. `through` is a type that every term was rounded to on the way.
    `tile` has a size for each axis (default: 128 x 512 of the last two); its first axis that is
    longer than 1 counts as partitions. NaN equals NaN, and infinity itself.
    """
    found = np.atleast_1d(to_numpy(got))
    exact = np.atleast_1d(np.asarray(to_numpy(want), np.float64))
    if found.shape != exact.shape:
        refuse("compare", f"got {found.shape}, want {exact.shape}", "equal shapes", "reshape one")
    sizes = _tile_sizes(exact.shape, tile)
    dtype = dtypes.canonical(found.dtype)
    sums = np.abs(exact if magnitudes is None else np.asarray(to_numpy(magnitudes), np.float64))
    bound = np.broadcast_to(_bound(dtype, exact, sums, terms, through), exact.shape)
    values = found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(values - exact)
    same = (values == exact) | (np.isnan(values) & np.isnan(exact))
    wrong = ~(same | (error <= bound))
    right = (bound > 0) & ~wrong & ~same
    share = float((error[right] / bound[right]).max()) if right.any() else 0.0
    plural = "" if terms == 1 else "s"
    rule = f"{dtype}, {terms:,} term{plural}{f' through {through}' if through else ''}"
    grid = tuple(-(-length // size) for length, size in zip(exact.shape, sizes, strict=True))
    first, bad = _first_tile(wrong, (values, exact, bound), sizes, grid)
    tiles = int(np.prod(grid, dtype=np.int64))
    return Agreement(exact.size, int(wrong.sum()), tiles, bad, share, rule, first)


def _tile_sizes(shape: tuple[int, ...], tile: tuple[int, ...] | None) -> tuple[int, ...]:
    if tile is None:
        columns = TRN2.psum_bank_bytes_per_partition // dtypes.itemsize_bytes("float32")
        tile = (*[1] * len(shape), TRN2.partitions, columns)[-len(shape) :]
    if len(tile) != len(shape) or any(size < 1 for size in tile):
        limit = f"a positive size for each of the {len(shape)} axes"
        refuse("compare", f"tile={tile}", limit, f"pass {len(shape)} numbers, or leave it out")
    return tuple(tile)


def _bound(dtype: str, exact: Array, sums: Array, terms: int, through: str | None) -> Array:
    most = int(1 / _FLOAT32_ROUNDOFF)
    if not 0 <= terms < most:
        refuse("compare", f"terms={terms}", f"0 to {most - 1:,}", "count the terms of one element")
    if not dtypes.is_float(dtype):
        return np.zeros(())
    on_the_way = 0.0 if through is None else _roundoff(dtypes.canonical(through))[0]
    growth = (1 + on_the_way) / (1 - terms * _FLOAT32_ROUNDOFF) - 1
    last, least = _roundoff(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        summed = growth * sums
        bound: Array = summed + last * (np.abs(exact) + summed) + least / 2
    return np.where(np.isfinite(bound), bound, 0.0)


def _roundoff(dtype: str) -> tuple[float, float]:
    """The unit roundoff of a float type, and its least positive number."""
    if not dtypes.is_float(dtype):
        refuse("compare", f"through={dtype!r}", "a type of floats", "leave it out")
    info: Any = ml_dtypes.finfo(  # type: ignore[no-untyped-call]
        dtypes.to_host(np.zeros(1, np.float32), dtype).dtype
    )
    return float(info.eps) / 2, float(info.smallest_subnormal)


def _first_tile(
    wrong: Array, values: tuple[Array, Array, Array], sizes: tuple[int, ...], grid: tuple[int, ...]
) -> tuple[WrongTile | None, int]:
    """The first tile in row-major order that has a wrong element, and how many there are."""
    places = np.nonzero(wrong)
    if not wrong.any():
        return None, 0
    cells = tuple(place // size for place, size in zip(places, sizes, strict=True))
    numbers = np.ravel_multi_index(cells, grid)
    cell = np.unravel_index(int(numbers.min()), grid)
    starts = [int(place) * size for place, size in zip(cell, sizes, strict=True)]
    ends = [min(a + n, end) for a, n, end in zip(starts, sizes, wrong.shape, strict=True)]
    box = tuple(slice(*pair) for pair in zip(starts, ends, strict=True))
    return _tile_at(wrong, values, box, sizes), len(np.unique(numbers))


def _tile_at(
    wrong: Array,
    values: tuple[Array, Array, Array],
    box: tuple[slice, ...],
    sizes: tuple[int, ...],
) -> WrongTile:
    inside = np.nonzero(wrong[box])
    got, want, bound = (array[box][inside] for array in values)
    with np.errstate(all="ignore"):
        excess = np.abs(got - want) / np.maximum(bound, np.finfo(np.float64).tiny)
    worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
    long = [axis for axis, size in enumerate(sizes) if size > 1] or [0]
    free = [axis for axis in range(len(sizes)) if axis > long[0]]
    return WrongTile(
        slices=tuple((cut.start, cut.stop) for cut in box),
        wrong=len(got),
        elements=wrong[box].size,
        partitions=tuple(np.unique(inside[long[0]]).tolist()),
        free=tuple((int(inside[a].min()), int(inside[a].max()) + 1) for a in free),
        worst=tuple(int(inside[a][worst]) + box[a].start for a in range(len(sizes))),
        got=float(got[worst]),
        want=float(want[worst]),
        bound=float(bound[worst]),
    )


def _slices(slices: Slices) -> str:
    parts = [f"{a}:{b}" if b > a + 1 else str(a) for a, b in slices]
    return f"[{', '.join(parts)}]"


def _ranges(numbers: tuple[int, ...]) -> str:
    """Numbers in order, neighbours as ranges: "0-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_SHOWN_RANGES]]
    more = f" ... ({len(numbers)} in all)" if len(runs) > _SHOWN_RANGES else ""
    return ", ".join(parts) + more
