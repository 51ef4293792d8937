"""Strips: the outputs of a band that read rows of others. Integers only."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.geometry import REFLECT
from trnconv.parallel.bands import Bands
from trnconv.parallel.rows_read import Reading, Sliding, out_bands, read_by


@dataclass(frozen=True)
class EdgeStrip:
    """Outputs at one edge of a band, and what they read."""

    first: int  # counted from the band's first output
    count: int
    reading: Reading

    @property
    def window(self) -> tuple[int, int, int, int, int]:
        """Strips that are alike in this can be images of one convolution."""
        read = self.reading
        return self.count, read.stop - read.start, read.before, read.after, read.skip


def strips(bands: Bands, sliding: Sliding, rank: int) -> tuple[EdgeStrip, ...] | None:
    """What a convolution of the band alone, padded like the whole, gets wrong at its edges.

    None where it gets everything wrong: its outputs are not in step with those of the whole, the
    band is so thin that every output reads a row of another, or a strip reads mirrored rows.
    """
    (start, stop), (first, last) = bands.of(rank), out_bands(bands, sliding).of(rank)
    count, times = last - first, sliding.upsample
    in_step = first * sliding.stride == start * times and sliding.out_size(stop - start) == count
    thin = sliding.mode == REFLECT and stop - start <= max(sliding.before, sliding.after)
    if not in_step or thin:  # so thin that it cannot be mirrored
        return None
    front = -(-sliding.before // sliding.stride) if rank > 0 else 0
    whole = ((stop - start) * times + sliding.before - sliding.reach) // sliding.stride + 1
    back = count - whole if rank < bands.ranks - 1 else 0
    if front + back >= count:
        return None
    edges = [(0, front), (count - back, back)]
    found = tuple(
        EdgeStrip(at, size, read_by((first + at, first + at + size), sliding, bands.total))
        for at, size in edges
        if size > 0
    )
    return None if any(strip.reading.order for strip in found) else found


def alike(some: tuple[EdgeStrip, ...]) -> tuple[tuple[EdgeStrip, ...], ...]:
    """Strips in groups that one launch can compute."""
    windows = dict.fromkeys(strip.window for strip in some)
    return tuple(tuple(strip for strip in some if strip.window == window) for window in windows)
