"""What a model does at a size that was not traced, from one that was.

Rows and columns: every plane of a model is a fixed part of its frames, unless the class cuts frames
into tiles, so planes scale. Frames: a model that takes a latent frame at a time does more of the
same steady chunk; one that takes all frames at once has m * (latent frames - 1) + 1 of them, one
more, or m times as many, as frames of a video, as images, or one call each. Where a size does not
come out whole, or none of these holds, there is no answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from trnconv.geometry import ConvShape, TransposedShape
from trnconv.models import ModelEntry, Size, latent_size
from trnconv.problem.conv_problem import Shape
from trnconv.traces.graphs import graphs_of
from trnconv.traces.model_trace import ModelTrace, Moved, TracedConv
from trnconv.traces.operation import Operation

_CACHED, _WHOLE = "cached", "whole"  # ModelEntry.in_time
_FIRST_CHUNKS = 2  # that do other work than the steady one
_MOST = 8  # times as many frames as latents
_VIDEO_AXES, _FRAMES = 5, 2  # [N, C, T, H, W]
_MOST_PADDING = 2  # rows that a padded plane has more than another
Plane = tuple[int, int]
Counts = tuple[tuple[Operation, int], ...]


@dataclass(frozen=True)
class _Change:
    """From a size that was traced to another."""

    rows: Fraction
    columns: Fraction
    latents: tuple[int, int]  # frames of the latent: traced, asked
    frames: tuple[int, int]
    chunked: bool  # a latent frame at a time
    planes: frozenset[Plane]  # of all tensors that were traced
    lengths: frozenset[int]  # frames of all of them

    @property
    def area(self) -> Fraction:
        return self.rows * self.columns

    @property
    def volume(self) -> Fraction:
        """Of tensors that are alive at once."""
        longer = 1 if self.chunked else Fraction(self.latents[1], self.latents[0])
        return self.area * longer

    def plane(self, rows: int, columns: int) -> Plane:
        return _whole(rows * self.rows), _whole(columns * self.columns)

    def time(self, frames: int) -> int:
        """Frames of a tensor that had so many."""
        before, after = self.latents
        if before == after or self.chunked:
            pairs = (self.latents, self.frames)
            return next((new for old, new in pairs if frames == old), frames)
        for step, first in ((1, 1), (0, 0), (1, 2)):  # all but the first, all, the first one twice
            for factor in range(1, _MOST + 1):
                if frames == factor * (before - step) + first:
                    return factor * (after - step) + first
        if frames == 1:
            return 1
        raise ArithmeticError

    def times(self, calls: int, *, of_one_frame: bool = False) -> int:
        """How often what ran so often runs.

        A steady chunk has more or fewer of it; where all frames are there at once, what is done
        with one of them may be done with each.
        """
        before, after = self.latents
        if before == after:
            return calls
        if self.chunked:
            each = calls // (before - _FIRST_CHUNKS)
            return calls + each * (after - before)
        return self.time(calls) if of_one_frame and calls in self.lengths else calls

    def images(self, batch: int, frames: int) -> int:
        """Of a convolution that takes a batch of so many frames each: all frames, or clips."""
        return self.time(batch) if frames == 1 and batch in self.lengths else batch

    def sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of a shape: planes by their two sizes or their area, frames before a plane."""
        scaled = list(sizes)
        at = self._place_of_plane(sizes)
        if at is None:
            return tuple(self._one(size) for size in sizes)
        step, pad = self._plane_at(sizes, at) or (1, 0)
        rows, columns = self.plane(sizes[at] - pad, sizes[at + step] - pad)
        scaled[at], scaled[at + step] = rows + pad, columns + pad
        for place in self._time_places(sizes, at):
            scaled[place] = self._frames(sizes[place])
        return tuple(scaled)

    def is_of_one_frame(self, sizes: tuple[int, ...]) -> bool:
        """Whether a shape with a plane has no frames beside it."""
        at = self._place_of_plane(sizes)
        return at is not None and sizes[0] == 1 and not self._time_places(sizes, at)

    def _place_of_plane(self, sizes: tuple[int, ...]) -> int | None:
        return next((at for at in range(len(sizes)) if self._plane_at(sizes, at)), None)

    def _time_places(self, sizes: tuple[int, ...], at: int) -> tuple[int, ...]:
        """Where frames stand, of a plane that stands there: [N, C, T, ...], [N, T, ...], images."""
        is_video = len(sizes) >= _VIDEO_AXES
        for places in (tuple(range(_FRAMES, at)), (1,) if is_video else (), (0,)):
            if any(place < at and self._frames_known(sizes[place]) for place in places):
                return places
        return ()

    def _frames_known(self, size: int) -> bool:
        """Whether it is a number of frames, padded or not."""
        padded = range(_MOST_PADDING + 1)
        return any(size - pad > 1 and size - pad in self.lengths for pad in padded)

    def _frames(self, size: int) -> int:
        """Of a tensor, padded or not; any other number as it is."""
        for pad in range(_MOST_PADDING + 1):
            if size - pad in self.lengths:
                return self.time(size - pad) + pad
        return size

    def _plane_at(self, sizes: tuple[int, ...], at: int) -> tuple[int, int] | None:
        """How far columns are behind rows that stand there, and how many of each are padding."""
        for step in (1, 2):
            for pad in range(_MOST_PADDING + 1):
                rows, columns = sizes[at], sizes[at + step] if at + step < len(sizes) else 0
                if (rows - pad, columns - pad) in self.planes:
                    return step, pad
        repeated = sizes[at + 1 : at + 3]
        is_upsampled = len(repeated) == 2 and (sizes[at], prod(repeated)) in self.planes
        return (1, 0) if is_upsampled else None  # each column as often as the last axis says

    def _one(self, size: int) -> int:
        """All positions of some frames; any other number as it is."""
        areas = [rows * columns for rows, columns in self.planes if size % (rows * columns) == 0]
        if not areas:
            return size
        frames = size // max(areas)
        length = max(length for length in {1, *self.lengths} if frames % length == 0)
        return _whole(max(areas) * self.area) * self.time(length) * (frames // length)


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise ArithmeticError
    return value.numerator


def at_size(trace: ModelTrace, entry: ModelEntry, size: Size) -> ModelTrace | None:
    """The same model and phase at another size; None if what it does there is not known."""
    change = _change(trace, entry, size)
    if change is None:
        return None
    try:
        return _changed(trace, size, change)
    except ArithmeticError:
        return None


def _change(trace: ModelTrace, entry: ModelEntry, size: Size) -> _Change | None:
    planes = frozenset(plane for work, _ in trace.works for plane in _planes(work.shape))
    rows = {Fraction(trace.height, height) for height, _ in planes}
    columns = {Fraction(trace.width, width) for _, width in planes}
    if rows != columns or any(part.denominator != 1 for part in rows):
        return None  # tiles of a size of their own
    before = Size("", trace.frames, trace.height, trace.width)
    latents = latent_size(entry, before).frames, latent_size(entry, size).frames
    same = latents[0] == latents[1]
    chunked = entry.in_time == _CACHED and _chunks(trace) == latents[0]
    if not same and not (chunked or entry.in_time == _WHOLE):
        return None
    if chunked and min(latents) <= _FIRST_CHUNKS:
        return None
    return _Change(
        Fraction(size.height, trace.height),
        Fraction(size.width, trace.width),
        latents,
        (trace.frames, size.frames),
        chunked,
        planes | {(trace.height, trace.width)},  # of the video, which no convolution may see
        frozenset([trace.frames, latents[0]]).union(
            *(_lengths(work.shape) for work, _ in trace.works)
        ),
    )


def _lengths(shape: Shape) -> tuple[int, ...]:
    """Frames of a convolution, before and after it, or as images."""
    frames = (shape.size[0], shape.out_sizes()[0])
    return (*frames, shape.batch) if frames == (1, 1) else frames


def _planes(shape: Shape) -> tuple[Plane, Plane]:
    _, *before = shape.size
    _, *after = shape.out_sizes()
    return (before[0], before[1]), (after[0], after[1])


def _chunks(trace: ModelTrace) -> int:
    """How many times the modules of a model are called."""
    return sum(graph.launches for graph in graphs_of(trace.works) if "around" not in graph.name)


def _changed(trace: ModelTrace, size: Size, change: _Change) -> ModelTrace:
    return replace(
        trace,
        frames=size.frames,
        height=size.height,
        width=size.width,
        works=tuple(
            (_work(work, change), _calls(work, calls, change)) for work, calls in trace.works
        ),
        moved=tuple(_moved(moved, change) for moved in trace.moved),
        peak_bytes=round(trace.peak_bytes * change.volume),
        largest_bytes=round(trace.largest_bytes * change.volume),
        largest_shape=change.sizes(trace.largest_shape),
        source=f"{trace.source}, scaled from {trace.height}x{trace.width}x{trace.frames}",
        operations=_operations(trace.operations, change),
        operations_unfused=_operations(trace.operations_unfused, change),
        operations_as_is=_operations(trace.operations_as_is, change),
    )


def _calls(work: TracedConv, calls: int, change: _Change) -> int:
    one = (work.shape.batch, work.shape.size[0]) == (1, 1)
    return change.times(calls, of_one_frame=one)


def _work(work: TracedConv, change: _Change) -> TracedConv:
    original = work.instead_of
    return replace(
        work,
        shape=_shape(work.shape, change),
        pieces=_pieces(work, change),
        instead_of=None if original is None else _conv_shape(original, change),
    )


def _pieces(work: TracedConv, change: _Change) -> tuple[int, ...]:
    """Frames of each tensor that the input lies in: together as many as the input has."""
    before, after = work.shape.size[0], change.time(work.shape.size[0])
    if before == after:
        return work.pieces
    if set(work.pieces) == {1}:
        return (1,) * after  # one of each chunk
    *caches, last = work.pieces or (before,)
    return (*caches, last + after - before) if work.pieces else ()


def _shape(shape: Shape, change: _Change) -> Shape:
    if isinstance(shape, ConvShape):
        return _conv_shape(shape, change)
    return _transposed_shape(shape, change)


def _conv_shape(shape: ConvShape, change: _Change) -> ConvShape:
    batch = change.images(shape.batch, shape.size[0])
    return replace(shape, batch=batch, size=_triple(shape.size, change))


def _transposed_shape(shape: TransposedShape, change: _Change) -> TransposedShape:
    batch = change.images(shape.batch, shape.size[0])
    size, out = _triple(shape.size, change), _triple(shape.out, change)
    return replace(shape, batch=batch, size=size, out=out)


def _triple(size: tuple[int, int, int], change: _Change) -> tuple[int, int, int]:
    frames, rows, columns = size
    return (change.time(frames), *change.plane(rows, columns))


def _moved(moved: Moved, change: _Change) -> Moved:
    times = change.times(moved.times)
    part = change.volume * Fraction(times, moved.times)
    return Moved(moved.kind, times, round(moved.moved_bytes * part))


def _operations(counted: Counts, change: _Change) -> Counts:
    """Every operation, as often as it runs there."""
    growing = _growing(counted) if change.chunked else frozenset()
    longer = Fraction(change.latents[1], change.latents[0])
    scaled: Counter[Operation] = Counter()
    for operation, calls in counted:
        changed = _operation(operation, change)
        if operation in growing:
            changed = _by(changed, longer**2, changed.shape, changed.sizes)
        scaled[changed] += change.times(calls, of_one_frame=change.is_of_one_frame(operation.shape))
    return tuple(scaled.items())


def _growing(counted: Counts) -> frozenset[Operation]:
    """Results that have a chunk more each time: all together, they go with the chunks squared."""
    by_kind: dict[tuple[object, ...], list[Operation]] = {}
    for operation, calls in counted:
        if calls == 1 and len(operation.shape) == _VIDEO_AXES:
            key = (operation.kind, operation.shape[:2], operation.shape[3:])
            by_kind.setdefault(key, []).append(operation)
    return frozenset(
        operation
        for same_kind in by_kind.values()
        if len(same_kind) > _FIRST_CHUNKS
        for operation in same_kind
    )


def _operation(operation: Operation, change: _Change) -> Operation:
    shape = change.sizes(operation.shape)
    part = Fraction(prod(shape), max(1, prod(operation.shape)))
    return _by(operation, part, shape, change.sizes(operation.sizes))


def _by(
    operation: Operation, part: Fraction, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> Operation:
    return replace(
        operation,
        shape=shape,
        sizes=sizes,
        read_bytes=round(operation.read_bytes * part),
        written_bytes=round(operation.written_bytes * part),
        step_bytes=round(operation.step_bytes * part),
    )
