"""Blocks of a plan by differences: which inputs each has, and what of the output it stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnconv.algorithms.winograd_upsample.plan import DEPTH, HEIGHT, WIDTH, UpsamplePlan
from trnconv.algorithms.winograd_upsample.terms import TIMES
from trnconv.geometry import ConvShape


@dataclass(frozen=True)
class PairSpan:
    """Neighbouring input rows or columns of a block, and the outputs of them that are stored."""

    first: int
    count: int
    before: int  # 1: the axis begins here, and what lies before is padding
    after: int
    cut: int  # outputs before the first that is stored
    stored: int
    out: int  # the first output that is stored

    @property
    def look(self) -> tuple[int, ...]:
        """What blocks of one kind have in common."""
        return (self.count, self.before, self.after, self.cut, self.stored)


FrameReads = tuple[tuple[int, tuple[int, ...]], ...]  # input frames, and taps that meet each


@lru_cache(maxsize=256)
def frame_reads(shape: ConvShape) -> tuple[FrameReads, ...]:
    """For every output frame the input frames it meets, with the taps that meet each."""
    reads = []
    for out in range(shape.out_size(DEPTH)):
        met: dict[int, tuple[int, ...]] = {}
        for tap in range(shape.kernel[DEPTH]):
            frame = shape.source(DEPTH, shape.in_position(DEPTH, out, tap))
            if frame >= 0:
                met[frame] = (*met.get(frame, ()), tap)
        reads.append(tuple(met.items()))
    return tuple(reads)


@lru_cache(maxsize=256)
def tap_sets(shape: ConvShape) -> tuple[tuple[int, ...], ...]:
    """Taps along frames that meet the same frame, each set once."""
    every = (taps for reads in frame_reads(shape) for _, taps in reads)
    return tuple(dict.fromkeys(every))


def row_spans(plan: UpsamplePlan) -> tuple[PairSpan, ...]:
    """Blocks along rows. What is left over stands at the border that a core has alone.

    So both cores have as many spans that look alike: the same loop.
    """
    first, end = plan.row_span
    is_upper = plan.rows_of is not None and end < plan.shape.out_size(HEIGHT)
    return _spans(plan.shape, HEIGHT, (first, end), plan.rows, rest_first=is_upper)


def column_spans(plan: UpsamplePlan) -> tuple[PairSpan, ...]:
    """Blocks along columns."""
    return _spans(plan.shape, WIDTH, (0, plan.shape.out_size(WIDTH)), plan.columns)


@lru_cache(maxsize=4096)
def _spans(
    shape: ConvShape,
    axis: int,
    outputs: tuple[int, int],
    most: int,
    *,
    rest_first: bool = False,
) -> tuple[PairSpan, ...]:
    missing = 1 - shape.pad_before[axis]  # outputs that whole pairs would have before the first
    low, high = outputs[0] + missing, outputs[1] + missing
    first, end = low // TIMES, -(-high // TIMES)
    rest = (end - first) % most
    bounds = list(range(first, end, most))
    if rest_first and rest:
        bounds = [first, *range(first + rest, end, most)]
    spans = []
    for begin, stop in zip(bounds, [*bounds[1:], end], strict=True):
        wanted = max(low, TIMES * begin)
        spans.append(
            PairSpan(
                first=begin,
                count=stop - begin,
                before=int(begin == 0),
                after=int(stop == shape.size[axis]),
                cut=wanted - TIMES * begin,
                stored=min(high, TIMES * stop) - wanted,
                out=wanted - missing,
            )
        )
    return tuple(spans)


@dataclass(frozen=True)
class SpanCounts:
    """Spans of all images: those of the most frequent look, which a loop goes through, and all."""

    alike: int
    every: int


def span_counts(plan: UpsamplePlan) -> SpanCounts:
    """Of a plan."""
    looks = [span.look for span in row_spans(plan)]
    most = max(looks.count(look) for look in set(looks))
    return SpanCounts(plan.shape.batch * most, plan.shape.batch * len(looks))


def iterations_of(plan: UpsamplePlan) -> int:
    """Iterations of the hardware loop; 0 if everything is unrolled."""
    if not plan.is_looped:
        return 0
    iterations = span_counts(plan).alike // plan.iteration_spans
    return iterations if iterations > 1 else 0
