"""The blocks of a weight gradient: which positions go to which partition, and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from trnconv.plan.weight_gradient import DEPTH, HEIGHT, WIDTH, WeightGradientPlan
from trnconv.plan.weight_gradient_recipe import Block, Fill, Frame, Transposed, View, Window

Spans = tuple[tuple[int, int], ...]  # first and count


@dataclass(frozen=True)
class Turn:
    """Blocks that are computed together: rows of output frames of one image."""

    image: int
    frames: tuple[int, ...]
    rows: Spans
    columns: tuple[int, int]


@dataclass(frozen=True)
class _Run:
    """Positions that follow each other in HBM; the first one goes to `position` of a block."""

    position: int
    count: int
    offset: int


def turns(plan: WeightGradientPlan) -> Iterator[Turn]:
    """Every position of the output, once."""
    frames, spans = range(plan.shape.out_size(DEPTH)), plan.row_spans()
    for image in range(plan.shape.batch):
        for columns in plan.column_spans():
            for first in range(0, len(spans), plan.turn_spans):
                rows = spans[first : first + plan.turn_spans]
                for frame in range(0, len(frames), plan.turn_frames):
                    taken = frames[frame : frame + plan.turn_frames]
                    yield Turn(image, tuple(taken), rows, columns)


def origin(plan: WeightGradientPlan, turn: Turn) -> tuple[int, int]:
    """Elements of x and dy before the first position of a turn, as if there were no padding."""
    stride, size, out = plan.shape.stride, plan.shape.size, plan.shape.out_sizes()
    frame, row, column = turn.frames[0], turn.rows[0][0], turn.columns[0]
    image = _image(plan, turn)
    x = (frame * stride[DEPTH] * size[HEIGHT] + row * stride[HEIGHT]) * size[WIDTH]
    dy = (frame * out[HEIGHT] + row) * out[WIDTH]
    return image[0] + x + column * stride[WIDTH], image[1] + dy + column


def appearance(plan: WeightGradientPlan, turn: Turn) -> tuple[object, ...]:
    """What decides how a turn's blocks look: turns that agree differ in their place only."""
    shape = plan.shape
    first, last = turn.rows[0][0], turn.rows[-1][0] + turn.rows[-1][1]
    at = (first, turn.columns[0])
    end = (shape.out_size(HEIGHT) - last, shape.out_size(WIDTH) - sum(turn.columns))
    edges = []
    for axis, before, after in zip((HEIGHT, WIDTH), at, end, strict=True):
        reach = shape.dilation[axis] * shape.kernel[axis]
        margin = max(shape.pad_before[axis], shape.pad_after[axis]) + reach + 1
        edges.append((min(before, margin), min(after, margin)))
    present = tuple(tuple(at >= 0 for at in plan.frames_read(frame)) for frame in turn.frames)
    counts = tuple(count for _, count in turn.rows)
    return (present, counts, turn.columns[1], *edges)


def blocks_of(plan: WeightGradientPlan, turn: Turn) -> tuple[Block, ...]:
    """The blocks of a turn; offsets count from its origin."""
    numbers: dict[tuple[int, int], int] = {}
    blocks = []
    for span in turn.rows:
        for frame in turn.frames:
            blocks.append(_block(plan, turn, (span, frame), numbers))
    return tuple(blocks)


def _block(
    plan: WeightGradientPlan,
    turn: Turn,
    place: tuple[tuple[int, int], int],
    numbers: dict[tuple[int, int], int],
) -> Block:
    (row, rows), frame = place
    start = origin(plan, turn)
    frames = []
    for at in plan.frames_read(frame):
        if at < 0:
            frames.append(Frame(-1, (), None))
            continue
        number = numbers.setdefault((at, row), len(numbers))
        base = _in_frame(plan.shape.size, at) - start[0] + _image(plan, turn)[0]
        if plan.by_dma:
            frames.append(Frame(number, _x_fills(plan, turn, (row, rows), base), None))
        else:
            frames.append(Frame(number, (), _x_window(plan, turn, (row, rows), base)))
    sizes = _tiles(plan, rows, turn.columns[1])
    base = _in_frame(plan.shape.out_sizes(), frame) - start[1] + _image(plan, turn)[1]
    if plan.by_dma:
        fill = _dy_fill(plan, turn, (row, rows), base)
        return Block(sizes, fill, None, (), (), tuple(frames))
    window = _dy_window(plan, turn, (row, rows), base)
    views, x_views = _views(plan, rows, turn.columns[1])
    return Block(sizes, None, window, views, x_views, tuple(frames))


def _image(plan: WeightGradientPlan, turn: Turn) -> tuple[int, int]:
    shape = plan.shape
    out = shape.positions()
    size = shape.size[0] * shape.size[1] * shape.size[2]
    return turn.image * shape.c_in * size, turn.image * shape.c_out * out


def _in_frame(size: tuple[int, int, int], frame: int) -> int:
    return frame * size[HEIGHT] * size[WIDTH]


@lru_cache(maxsize=256)
def _tiles(plan: WeightGradientPlan, rows: int, columns: int) -> tuple[int, ...]:
    """Positions of each tile of a block."""
    if plan.by_dma:
        positions, each = (rows - 1) * plan.pitch + columns, plan.target.partitions
    else:
        positions, each = rows * columns, plan.rows_of_tile * columns
    return tuple(min(each, positions - at) for at in range(0, positions, each))


def _dy_fill(plan: WeightGradientPlan, turn: Turn, span: tuple[int, int], base: int) -> Fill:
    row, rows = span
    width = plan.shape.out_size(WIDTH)
    column, columns = turn.columns
    sizes = _tiles(plan, rows, columns)
    if plan.pitch == columns:
        return _fill(plan, [_Run(0, rows * columns, base + row * width + column)], sizes)
    runs = [
        _Run(at * plan.pitch, columns, base + (row + at) * width + column) for at in range(rows)
    ]
    return _fill(plan, runs, sizes)


def _x_fills(
    plan: WeightGradientPlan, turn: Turn, span: tuple[int, int], base: int
) -> tuple[Fill, ...]:
    """By column tap, then row tap."""
    shape = plan.shape
    sizes = _tiles(plan, span[1], turn.columns[1])
    fills = []
    for column_tap in range(shape.kernel[WIDTH]):
        column = shape.in_position(WIDTH, turn.columns[0], column_tap)
        for row_tap in range(shape.kernel[HEIGHT]):
            row = shape.in_position(HEIGHT, span[0], row_tap)
            first = row * shape.size[WIDTH]
            limits = (0, shape.size[HEIGHT] * shape.size[WIDTH])
            if not plan.is_flat:
                limits = (first, first + shape.size[WIDTH]) if _inside(plan, row) else (0, 0)
            run = _clipped(first + column, sum(sizes), limits)
            runs = [_Run(run[0], run[1], base + first + column + run[0])] if run[1] > 0 else []
            fills.append(_fill(plan, runs, sizes))
    return tuple(fills)


def _inside(plan: WeightGradientPlan, row: int) -> bool:
    return 0 <= row < plan.shape.size[HEIGHT]


def _clipped(first: int, count: int, limits: tuple[int, int]) -> tuple[int, int]:
    """First and number of the positions from `first` on that lie within the limits."""
    begin = max(0, limits[0] - first)
    return begin, min(count, limits[1] - first) - begin


def _fill(plan: WeightGradientPlan, runs: list[_Run], sizes: tuple[int, ...]) -> Fill:
    """Runs cut at the ends of tiles; whole tiles that follow each other are one DMA."""
    covered = [0] * len(sizes)
    loads: list[Transposed] = []
    for piece in _pieces(plan, runs):
        covered[piece.tile] += piece.lines
        last = loads[-1] if loads else None
        if last is not None and _continues(plan, last, piece):
            whole = Transposed(0, last.lines, last.tile, last.tiles + 1, last.offset)
            loads[-1] = whole
        else:
            loads.append(piece)
    pairs = zip(range(len(sizes)), covered, sizes, strict=True)
    return Fill(tuple(tile for tile, has, size in pairs if has < size), tuple(loads))


def _continues(plan: WeightGradientPlan, last: Transposed, piece: Transposed) -> bool:
    whole = plan.target.partitions
    return (
        last.lines == piece.lines == whole
        and last.tile + last.tiles == piece.tile
        and last.offset + last.tiles * whole == piece.offset
    )


def _pieces(plan: WeightGradientPlan, runs: Iterable[_Run]) -> Iterator[Transposed]:
    whole = plan.target.partitions
    for run in runs:
        at = run.position
        while at < run.position + run.count:
            tile, line = divmod(at, whole)
            lines = min(whole - line, run.position + run.count - at)
            yield Transposed(line, lines, tile, 1, run.offset + at - run.position)
            at += lines


def _x_window(plan: WeightGradientPlan, turn: Turn, span: tuple[int, int], base: int) -> Window:
    shape = plan.shape
    sizes, firsts, counts, at = [], [], [], []
    for axis, (out, outs) in ((HEIGHT, span), (WIDTH, turn.columns)):
        begin = shape.in_position(axis, out, 0)
        size = window_size(plan, axis, outs)
        first, count = _clipped(begin, size, (0, shape.size[axis]))
        sizes.append(size)
        firsts.append(first if count > 0 else 0)
        counts.append(max(0, count))
        at.append(begin + firsts[-1])
    return Window(
        rows=sizes[0],
        columns=sizes[1],
        clear=counts != sizes,
        row=firsts[0],
        row_count=counts[0] if counts[1] else 0,
        column=firsts[1],
        column_count=counts[1],
        offset=base + at[0] * shape.size[WIDTH] + at[1],
    )


def window_size(plan: WeightGradientPlan, axis: int, outs: int) -> int:
    """Input positions that so many outputs reach along an axis, padding included."""
    shape = plan.shape
    reach = shape.dilation[axis] * (shape.kernel[axis] - 1) + 1
    return (outs - 1) * shape.stride[axis] + reach


def _dy_window(plan: WeightGradientPlan, turn: Turn, span: tuple[int, int], base: int) -> Window:
    (row, rows), (column, columns) = span, turn.columns
    offset = base + row * plan.shape.out_size(WIDTH) + column
    return Window(rows, columns, False, 0, rows, 0, columns, offset)  # noqa: FBT003


@lru_cache(maxsize=256)
def _views(
    plan: WeightGradientPlan, rows: int, columns: int
) -> tuple[tuple[View, ...], tuple[tuple[View, ...], ...]]:
    """Where each tile is in a window of dy, and for each tap in a window of x."""
    shape, each = plan.shape, plan.rows_of_tile
    cut = [(row, min(each, rows - row)) for row in range(0, rows, each)]
    views = tuple(View(row, count, 0, columns) for row, count in cut)
    x_views = []
    for column_tap in range(shape.kernel[WIDTH]):
        for row_tap in range(shape.kernel[HEIGHT]):
            shift = row_tap * shape.dilation[HEIGHT], column_tap * shape.dilation[WIDTH]
            x_views.append(
                tuple(
                    View(row * shape.stride[HEIGHT] + shift[0], count, shift[1], columns)
                    for row, count in cut
                )
            )
    return views, tuple(x_views)
