"""Boundaries: the outputs of a band that read rows of others. Integers only."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.geometry import REFLECT
from trnconv.parallel.bands import Bands
from trnconv.parallel.receptive_field import ReceptiveField, Sliding, field_of, out_bands


@dataclass(frozen=True)
class Boundary:
    """Outputs at one edge of a band, and what they read."""

    first: int  # counted from the band's first output
    count: int
    field: ReceptiveField

    @property
    def window(self) -> tuple[int, int, int, int, int]:
        """Boundaries that are alike in this can be images of one convolution."""
        read = self.field
        return self.count, read.stop - read.start, read.before, read.after, read.skip


def boundaries(bands: Bands, sliding: Sliding, rank: int) -> tuple[Boundary, ...] | None:
    """What a convolution of the band alone, padded like the whole, gets wrong at its edges.

    None where it gets everything wrong: its outputs are not in step with those of the whole, the
    band is so thin that every output reads a row of another, or a boundary reads mirrored rows.
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
    edge_outputs = tuple(
        Boundary(at, size, field_of((first + at, first + at + size), sliding, bands.total))
        for at, size in edges
        if size > 0
    )
    return None if any(boundary.field.order for boundary in edge_outputs) else edge_outputs


def by_window(some: tuple[Boundary, ...]) -> tuple[tuple[Boundary, ...], ...]:
    """Boundaries in groups that one launch can compute."""
    windows = dict.fromkeys(boundary.window for boundary in some)
    return tuple(
        tuple(boundary for boundary in some if boundary.window == window) for window in windows
    )
