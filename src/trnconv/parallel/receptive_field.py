"""Which rows a rank's outputs read, whoever holds them. Integers only, one axis at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import CIRCULAR, REFLECT, ZEROS
from trnconv.parallel.bands import Bands, Interval
from trnconv.parallel.grid import BandGrid

_KEPT = 4096  # convolutions of a process that differ


@dataclass(frozen=True)
class Sliding:
    """A convolution along the axis that is cut: of rows repeated `upsample` times, then padded."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    upsample: int = 1
    mode: str = ZEROS

    @property
    def reach(self) -> int:
        """Rows under the kernel."""
        return self.dilation * (self.kernel - 1) + 1

    def out_size(self, rows: int) -> int:
        """Output rows for so many rows of input."""
        return (rows * self.upsample + self.before + self.after - self.reach) // self.stride + 1


@dataclass(frozen=True)
class ReceptiveField:
    """What one rank's outputs read: rows `start` .. `stop` - 1 as they lie, and how.

    Of the repeated rows, `skip` are left out at the front; `before` and `after` are padding at
    true borders, `after` negative where repeated rows are left out at the end. With `order`, the
    rows are wanted in that order (counted from `start`), and padding is among them.
    """

    start: int
    stop: int
    before: int = 0
    after: int = 0
    skip: int = 0
    order: tuple[int, ...] = ()

    @property
    def rows(self) -> Interval:
        """As an interval."""
        return self.start, self.stop

    @property
    def count(self) -> int:
        """Rows that a convolution gets."""
        return len(self.order) or self.stop - self.start


def out_bands(bands: Bands, sliding: Sliding) -> Bands:
    """Bands of the output: a bound b goes to ceil(b * upsample / stride)."""
    total = sliding.out_size(bands.total)
    inner = [-(-bound * sliding.upsample // sliding.stride) for bound in bands.bounds[1:-1]]
    bounds = (0, *(min(bound, total) for bound in inner), total)
    if any(stop <= start for start, stop in pairwise(bounds)):
        raise ShapeError(
            f"a convolution with stride {sliding.stride} of bands of {bands.sizes()} rows: a rank"
            f" would get none of the {total} rows of its output. Use fewer ranks, or larger bands."
        )
    return Bands(bounds)


def receptive_field(bands: Bands, sliding: Sliding, rank: int) -> ReceptiveField:
    """What the outputs of a rank read."""
    return field_of(out_bands(bands, sliding).of(rank), sliding, bands.total)


@lru_cache(_KEPT)
def receptive_fields(
    grid: BandGrid, slidings: tuple[Sliding, ...]
) -> tuple[tuple[ReceptiveField, ...], ...]:
    """What the outputs of each rank read, along each axis that is cut."""
    along = [
        [receptive_field(bands, sliding, at) for at in range(bands.ranks)]
        for bands, sliding in zip(grid.bands, slidings, strict=True)
    ]
    return tuple(product(*along))


def field_of(outputs: Interval, sliding: Sliding, rows: int) -> ReceptiveField:
    """What some outputs read, of so many rows."""
    first, last = outputs
    begin = first * sliding.stride - sliding.before
    end = (last - 1) * sliding.stride + sliding.reach - sliding.before  # exclusive
    if sliding.mode == CIRCULAR and (sliding.before or sliding.after):
        raise UnsupportedError(
            "circular padding along the axis that is cut into bands: zeros, replicate or reflect."
            " Cut the other axis."
        )
    if sliding.mode == REFLECT:
        return _reflected(begin, end, rows)
    times, total = sliding.upsample, rows * sliding.upsample
    start, stop = max(begin, 0) // times, -(-min(end, total) // times)
    if start >= stop:
        raise ShapeError(
            f"padding of {sliding.before} and {sliding.after} rows, and a kernel that reaches over"
            f" {sliding.reach}: outputs {first} to {last - 1} are of padding alone. Pad less, or"
            " cut the other axis."
        )
    behind = end - total if end > total else end - stop * times
    return ReceptiveField(start, stop, max(0, -begin), behind, max(begin, 0) - start * times)


def _reflected(begin: int, end: int, total: int) -> ReceptiveField:
    """Mirrored rows may lie beyond a thin band's own halo, so they are fetched like any other."""
    mirrored = [_mirror(row, total) for row in range(begin, end)]
    start, stop = min(mirrored), max(mirrored) + 1
    if mirrored == list(range(start, stop)):
        return ReceptiveField(start, stop)
    return ReceptiveField(start, stop, order=tuple(row - start for row in mirrored))


def _mirror(row: int, total: int) -> int:
    inside = abs(row)
    return inside if inside < total else 2 * (total - 1) - inside
