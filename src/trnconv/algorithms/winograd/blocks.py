"""Blocks of a fast convolution: which outputs each computes, and which inputs it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from trnconv.algorithms.recipe_parts import Place
from trnconv.algorithms.winograd.channels import out_channels, replicates
from trnconv.algorithms.winograd.plan import DEPTH, HEIGHT, LEAST, WIDTH, WinogradPlan
from trnconv.algorithms.winograd.recipe import InputFrame, Wanted
from trnconv.algorithms.winograd.stages import is_needed, stored_of
from trnconv.algorithms.winograd.transforms import OUTER
from trnconv.geometry import ConvShape


@dataclass(frozen=True)
class BlockSpan:
    """A block along rows or columns.

    `ins` positions of transformed inputs (or of inputs, if they are tiled along it) begin at input
    position `origin`, which may be padding; `first` .. `end` of them exist.
    """

    outs: int  # positions that are computed
    ins: int
    first: int
    end: int
    cut: int  # outputs computed but not stored, before those that are
    stored: int
    origin: int
    out: int  # the first output that is stored

    @property
    def look(self) -> tuple[int, ...]:
        """What blocks of one kind have in common."""
        return (self.outs, self.ins, self.first, self.end, self.cut, self.stored)


@dataclass(frozen=True)
class FrameSpan:
    """A block along frames: where its input frames lie, and what its units want."""

    frames: tuple[InputFrame, ...]
    units: tuple[Wanted, ...]
    bases: tuple[int, ...]  # the first frame it reads of each tensor
    out: int  # the first output frame


Kinds = tuple[tuple[BlockSpan, int], ...]  # one span of each look, and how many have it


def column_spans(plan: WinogradPlan) -> tuple[BlockSpan, ...]:
    """Blocks along columns."""
    return _plain_spans(plan.shape, _columns_of(plan))


def column_kinds(plan: WinogradPlan) -> Kinds:
    """Blocks along columns by their look."""
    return _plain_kinds(plan.shape, _columns_of(plan))


class _AxisCut(NamedTuple):
    """How an axis is cut into blocks: its outputs, first and end, and the size of a block.

    `stack` is how many outputs share a matmul at most, or a tile of outputs begins.
    """

    axis: int
    first: int
    end: int
    size: int
    stack: int
    from_end: bool = False

    def parts(self, end: int) -> list[tuple[int, int]]:
        """Where each block begins, up to `end`, and its outputs."""
        lack = -(end - self.first) % self.size if self.from_end else 0
        starts = range(self.first - lack, end, self.size)
        return [
            (max(self.first, at), min(at + self.size, end) - max(self.first, at)) for at in starts
        ]


def _columns_of(plan: WinogradPlan) -> _AxisCut:
    stack = max(tile.stack for tile in out_channels(plan))
    return _AxisCut(WIDTH, 0, plan.shape.out_size(WIDTH), plan.columns, stack)


def _rows_of(plan: WinogradPlan) -> _AxisCut:
    """If tiles are rows, the first one may begin before the first output."""
    first, end = plan.row_span
    if not plan.by_rows:
        return _AxisCut(HEIGHT, first, end, plan.rows, 1, plan.cut_from_end)
    first -= plan.phase if first == 0 else 0
    return _AxisCut(HEIGHT, first, end, plan.rows, plan.m, plan.cut_from_end)


@lru_cache(maxsize=4096)
def _plain_kinds(shape: ConvShape, cut: _AxisCut) -> Kinds:
    return _by_look(_plain_spans(shape, cut))


def _by_look(spans: tuple[BlockSpan, ...]) -> Kinds:
    one_of: dict[tuple[int, ...], BlockSpan] = {}
    counts: Counter[tuple[int, ...]] = Counter()
    for span in spans:
        counts[span.look] += 1
        one_of[span.look] = span
    return tuple((one_of[look], count) for look, count in counts.items())


@lru_cache(maxsize=4096)
def _plain_spans(shape: ConvShape, cut: _AxisCut) -> tuple[BlockSpan, ...]:
    return tuple(_span(shape, cut.axis, at, count, cut.stack) for at, count in cut.parts(cut.end))


def row_spans(plan: WinogradPlan) -> tuple[BlockSpan, ...]:
    """Blocks along rows; if tiles are rows, they begin and end with whole tiles."""
    spans = _tiled_spans if plan.by_rows else _plain_spans
    return spans(plan.shape, _rows_of(plan))


def row_kinds(plan: WinogradPlan) -> Kinds:
    """Blocks along rows by their look."""
    kinds = _tiled_kinds if plan.by_rows else _plain_kinds
    return kinds(plan.shape, _rows_of(plan))


@lru_cache(maxsize=4096)
def _tiled_kinds(shape: ConvShape, cut: _AxisCut) -> Kinds:
    return _by_look(_tiled_spans(shape, cut))


@lru_cache(maxsize=4096)
def _tiled_spans(shape: ConvShape, cut: _AxisCut) -> tuple[BlockSpan, ...]:
    end = cut.first + -(-(cut.end - cut.first) // cut.stack) * cut.stack
    return tuple(_tiled_span(shape, at, count) for at, count in cut.parts(end))


def _span(shape: ConvShape, axis: int, at: int, count: int, stack: int) -> BlockSpan:
    origin = at - shape.pad_before[axis]
    ins = -(-count // stack) * stack + shape.kernel[axis] - 1
    first, end = max(0, -origin), min(ins, shape.size[axis] - origin)
    return BlockSpan(count, ins, first, end, 0, count, origin, at)


def _tiled_span(shape: ConvShape, at: int, count: int) -> BlockSpan:
    origin = at - shape.pad_before[HEIGHT]
    ins = count + shape.kernel[HEIGHT] - 1
    first, end = max(0, -origin), min(ins, shape.size[HEIGHT] - origin)
    out = max(0, at)
    stored = min(at + count, shape.out_size(HEIGHT)) - out
    return BlockSpan(count, ins, first, end, out - at, stored, origin, out)


def frames_loaded(plan: WinogradPlan) -> int:
    """Input frames that are loaded for a block; those that units share count for each."""
    return (
        made_of_block(plan) // plan.v_frames * plan.tile_frames
        if plan.x_tiles
        else plan.block_frames
    )


def made_of_block(plan: WinogradPlan) -> int:
    """Transforms of a block: into a tile each, or a frame of one if tiles are rows."""
    if not plan.by_rows or plan.frame_pairs:
        return plan.units
    return plan.units * plan.v_frames if plan.shares_sums else plan.block_frames


def stored_units(plan: WinogradPlan) -> int:
    """Units of a block that complete outputs: of a stage's four, one for each frame."""
    if not plan.frame_pairs:
        return plan.units
    return min(plan.frames_of_units, plan.shape.out_size(DEPTH))


def frame_starts(plan: WinogradPlan) -> range:
    """The first output frame of each block; the first tile may begin before the first output."""
    if plan.by_rows:
        return range(0, plan.shape.out_size(DEPTH), plan.frames_of_units)
    return range(-plan.phase, plan.tiles * plan.m - plan.phase, plan.units * plan.m)


def frame_spans(plan: WinogradPlan) -> tuple[FrameSpan, ...]:
    """Blocks along frames."""
    return _frame_spans(_of_frames(plan))


def _of_frames(plan: WinogradPlan) -> WinogradPlan:
    """The same for plans that differ only in what their blocks along frames do not depend on."""
    return plan.but(rows=1, columns=1, rows_of=None, **LEAST)


@lru_cache(maxsize=1024)
def _frame_spans(plan: WinogradPlan) -> tuple[FrameSpan, ...]:
    return tuple(_frame_span(plan, at) for at in frame_starts(plan))


def most_frequent_frames(plan: WinogradPlan) -> FrameSpan:
    """Along frames, a block of the look that most have; of those, one that misses few frames."""
    spans = frame_spans(plan)
    looks = Counter((span.frames, span.units) for span in spans)
    return max(spans, key=lambda span: (looks[span.frames, span.units], _met(plan, span)))


class FrameLook(NamedTuple):
    """Blocks along frames that look alike: how many, and their products over the most frequent's.

    Products with frames of zeros are left out where tiles are rows and units one frame.
    """

    blocks: int
    share: float


def frame_looks(plan: WinogradPlan) -> tuple[FrameLook, ...]:
    """Those of a plan."""
    return _frame_looks(_of_frames(plan))


@lru_cache(maxsize=4096)
def _frame_looks(plan: WinogradPlan) -> tuple[FrameLook, ...]:
    spans = frame_spans(plan)
    looks = Counter((span.frames, span.units) for span in spans)
    one_of = {(span.frames, span.units): span for span in spans}
    most = _met(plan, most_frequent_frames(plan))
    return tuple(FrameLook(n, _met(plan, one_of[look]) / most) for look, n in looks.items())


def _met(plan: WinogradPlan, span: FrameSpan) -> float:
    """The share of a block's products that meet frames that exist, or make some."""
    if not plan.by_rows or plan.shares_sums:
        return 1.0
    if plan.frame_pairs:
        return sum(len(unit.outputs) > 0 for unit in span.units) / plan.units
    exist = [frame.piece >= 0 for frame in span.frames]
    reads = plan.read_frames
    return sum(sum(exist[n : n + reads]) for n in range(plan.units)) / (reads * plan.units)


def computed_share(plan: WinogradPlan) -> float:
    """The share of all products that is computed: tiles at the ends may be cut.

    Where tiles are rows and units one frame, products with frames of zeros are left out.
    """
    if plan.by_rows:
        if plan.frame_pairs:
            frames = plan.shape.out_size(DEPTH)
            units = range(-(-frames // OUTER.outputs) * plan.stages)
            return sum(is_needed(unit, frames) for unit in units) / len(units)
        return 1.0 if plan.shares_sums else frames_met(plan.shape)
    m, total = plan.m, plan.shape.out_size(DEPTH)
    starts = range(-plan.phase, plan.tiles * m - plan.phase, m)
    wanted = [tuple(n for n in range(m) if 0 <= at + n < total) for at in starts]
    count = sum(len(plan.transforms.products_for(outputs)) for outputs in wanted)
    return count / (plan.tiles * plan.transforms.products)


def frames_met(shape: ConvShape) -> float:
    """The share of an output's frame taps that do not meet zeros, on average."""
    if replicates(shape, DEPTH):
        return 1.0
    taps, outs = range(shape.kernel[DEPTH]), range(shape.out_size(DEPTH))
    met = sum(
        0 <= shape.in_position(DEPTH, out, tap) < shape.size[DEPTH] for out in outs for tap in taps
    )
    return met / (len(outs) * len(taps))


def _frame_span(plan: WinogradPlan, at: int) -> FrameSpan:
    shape = plan.shape
    origin = at - shape.pad_before[DEPTH]
    pieces = [_piece_of(plan, origin + n) for n in range(plan.block_frames)]
    bases = tuple(
        min((frame for which, frame in pieces if which == piece), default=0)
        for piece in range(len(plan.frames))
    )
    elems = shape.size[HEIGHT] * shape.size[WIDTH]
    frames = tuple(
        InputFrame(piece, (frame - bases[piece]) * elems) if piece >= 0 else InputFrame(-1, 0)
        for piece, frame in pieces
    )
    out = max(0, at)
    units = tuple(_wanted(plan, at, number, out) for number in range(plan.units))
    return FrameSpan(frames, units, bases, out)


def _piece_of(plan: WinogradPlan, frame: int) -> tuple[int, int]:
    """The tensor a frame lies in, and its number there; (-1, 0) for zeros.

    Frames beyond the padding belong to outputs that do not exist.
    """
    shape = plan.shape
    before, after = shape.pad_before[DEPTH], shape.pad_after[DEPTH]
    if replicates(shape, DEPTH) and -before <= frame < shape.size[DEPTH] + after:
        frame = min(max(frame, 0), shape.size[DEPTH] - 1)
    for piece, count in enumerate(plan.frames):
        if 0 <= frame < count:
            return piece, frame
        frame -= count
    return -1, 0


def _wanted(plan: WinogradPlan, at: int, number: int, out: int) -> Wanted:
    total = plan.shape.out_size(DEPTH)
    elems = plan.shape.out_size(HEIGHT) * plan.shape.out_size(WIDTH)
    if plan.by_rows:
        every, frames, first = tuple(range(plan.m)), plan.unit_frames, number * plan.unit_frames
        if plan.frame_pairs:
            first, frames = stored_of(number, total - out)
            every = every if is_needed(number, total - out) else ()
        products = plan.transforms.products_for(every)
        return Wanted(every, products, first * elems, frames, 0, 0)
    first = at + number * plan.m
    outputs = tuple(n for n in range(plan.m) if 0 <= first + n < total)
    products = plan.transforms.products_for(outputs)
    return Wanted(outputs, products, (first + outputs[0] - out) * elems, len(outputs), 0, 0)


@dataclass(frozen=True)
class BlockAt:
    """A block: its spans and its place."""

    row: BlockSpan
    column: BlockSpan
    frame: FrameSpan
    place: Place

    @property
    def look(self) -> tuple[object, ...]:
        """Blocks that are alike have the same."""
        return (self.row.look, self.column.look, self.frame.frames, self.frame.units)


def blocks(plan: WinogradPlan) -> Iterator[BlockAt]:
    """Every block, image after image, frames innermost."""
    spans = (row_spans(plan), column_spans(plan), frame_spans(plan))
    for image in range(plan.shape.batch):
        for row, column, frame in product(*spans):
            yield BlockAt(row, column, frame, _place(plan, image, (row, column, frame)))


def blocks_of_span(plan: WinogradPlan) -> int:
    """Blocks with the same rows of an image."""
    return sum(count for _, count in column_kinds(plan)) * len(frame_starts(plan))


def blocks_of(plan: WinogradPlan) -> int:
    """How many there are."""
    kinds = (row_kinds(plan), column_kinds(plan))
    rows, columns = (sum(count for _, count in spans) for spans in kinds)
    return plan.shape.batch * rows * columns * len(frame_starts(plan))


def _place(plan: WinogradPlan, image: int, spans: tuple[BlockSpan, BlockSpan, FrameSpan]) -> Place:
    row, column, frame = spans
    shape = plan.shape
    height, width = shape.size[HEIGHT:]
    inside = (row.origin + row.first) * width + column.origin + column.first
    starts = [
        (image * shape.c_in * frames + base) * height * width
        for frames, base in zip(plan.frames, frame.bases, strict=True)
    ]
    x = tuple(start + inside for start in starts)
    _, out_height, out_width = shape.out_sizes()
    y = image * shape.c_out * prod(shape.out_sizes())
    return Place(x, y + (frame.out * out_height + row.out) * out_width + column.out)
