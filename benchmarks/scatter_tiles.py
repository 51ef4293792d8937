"""How the scatter baseline cuts a convolution: input channels, windows, tiles and batches of taps.

Read by the kernel and by the packing of its weights.
"""
# ruff: noqa: PERF401, PERF402 (kernels append in loops: NKI has no comprehensions)

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import nl
from trnconv.geometry import ConvShape

MOST_STACKED = 4  # taps
# Both are chosen for the baseline's good: with 4 and 2 it waits for stores and loads.
RESULTS_IN_FLIGHT = 8
WINDOW_SETS = 3
LONGEST_BATCH = 32  # steps: a 3x3x3 kernel in one
FP32_BYTES = 4


@dataclass(frozen=True)
class Channels(nl.NKIObject):
    """A tile of input channels. `stack` taps of it lie on the partitions at once: a step."""

    number: int
    first: int
    size: int
    stack: int
    first_step: int
    steps: int


@dataclass(frozen=True)
class Cut(nl.NKIObject):
    """How a problem is cut into tiles, and how many buffers of a kind take turns."""

    rows: int  # of a tile
    cols: int  # of a tile
    tiles: int  # that share a window, one below the other
    windows: int
    batch: int  # steps that are copied before they are multiplied
    filters: int  # tiles of output channels whose weights are in SBUF together


@dataclass(frozen=True)
class Span(nl.NKIObject):
    """An axis of a window: `extent` positions from `start` on; low..high-1 are in the image."""

    start: int
    step: int
    extent: int
    low: int
    high: int


class Block(nl.NKIObject):
    """A rectangle of one output frame, and its windows: one per tile of input channels."""

    def __init__(self, frame: int, rows: tuple[int, int], cols: tuple[int, int]) -> None:
        self.frame = frame  # counted over all images
        self.row = rows[0]
        self.rows = rows[1]
        self.col = cols[0]
        self.cols = cols[1]
        self.windows: list[nl.NkiTensor] = []


@dataclass(frozen=True)
class Tile(nl.NKIObject):
    """Some rows of a block: what one PSUM bank sums."""

    block: Block
    top: int  # its first row, counted in the block
    rows: int

    def positions(self) -> int:
        """Columns of its matmuls."""
        return self.rows * self.block.cols


def cut_of(problem: ConvShape, item_bytes: int, sbuf_bytes: int) -> Cut:
    """The cut that keeps most weights in SBUF and leaves room to load ahead.

    Weights are kept for fewer output tiles to have one window more than a block reads. To have two
    windows at all, batches and at last tiles are made smaller.
    """
    rows, cols = bank_tile(problem)
    parts = len(channel_tiles(problem))
    window_bytes = window_elems(problem, rows, cols) * item_bytes
    filters = min(ceil_div(problem.c_out, nl.tile_size.pmax), nl.tile_size.psum_num_banks)
    batch = LONGEST_BATCH
    room = sbuf_bytes - bytes_beside_windows(problem, filters, batch, item_bytes)
    while room < max(3, parts + 1) * window_bytes and filters > 1:
        filters -= 1
        room = sbuf_bytes - bytes_beside_windows(problem, filters, batch, item_bytes)
    while room < 2 * window_bytes and batch > 1:
        batch = batch // 2
        room = sbuf_bytes - bytes_beside_windows(problem, filters, batch, item_bytes)
    rows, cols = smaller_tile(problem, (rows, cols), room // item_bytes)
    tiles = tiles_per_window(problem, (rows, cols), room // item_bytes)
    window_bytes = window_elems(problem, rows * tiles, cols) * item_bytes
    windows = min(WINDOW_SETS * parts, room // window_bytes)
    return Cut(rows, cols, tiles, windows, batch, filters)


def bytes_beside_windows(problem: ConvShape, filters: int, batch: int, item_bytes: int) -> int:
    """Bytes per partition of the weights and biases, of dense tiles and of results."""
    side = nl.tile_size.pmax
    columns = min(problem.c_out, filters * side)
    plain, stacked = batch_sizes(problem, batch)
    tiles = 2 * (plain + stacked) + RESULTS_IN_FLIGHT
    biases = ceil_div(problem.c_out, side) * FP32_BYTES
    elems = step_count(problem) * columns + tiles * nl.tile_size.psum_fmax
    return elems * item_bytes + biases


def bank_tile(problem: ConvShape) -> tuple[int, int]:
    """Rows and columns of a tile that fills a PSUM bank, as far as whole rows do."""
    cols = min(problem.out_size(2), nl.tile_size.psum_fmax)
    return min(problem.out_size(1), nl.tile_size.psum_fmax // cols), cols


def smaller_tile(problem: ConvShape, tile: tuple[int, int], most_elems: int) -> tuple[int, int]:
    """The tile, halved until two windows fit."""
    rows, cols = tile
    while 2 * window_elems(problem, rows, cols) > most_elems and rows * cols > 1:
        if rows > 1:
            rows = ceil_div(rows, 2)
        else:
            cols = ceil_div(cols, 2)
    needed = 2 * window_elems(problem, rows, cols)
    assert needed <= most_elems, (
        f"two windows of a single output take {needed} elements per partition: the weights of"
        f" {problem.c_in} input channels, {problem.taps()} taps and one tile of output channels"
        f" leave room for {most_elems}; use fewer input channels or taps"
    )
    return rows, cols


def tiles_per_window(problem: ConvShape, tile: tuple[int, int], most_elems: int) -> int:
    """As many rows as the kernel is high share a window, if tiles have whole rows and it fits."""
    rows, cols = tile
    tiles = ceil_div(min(problem.out_size(1), problem.kernel[1]), rows)
    elems = 2 * len(channel_tiles(problem)) * window_elems(problem, rows * tiles, cols)
    return tiles if cols == problem.out_size(2) and elems <= most_elems else 1


def window_elems(problem: ConvShape, rows: int, cols: int) -> int:
    """Elements per partition of a window for rows x cols outputs."""
    return problem.kernel[0] * reach(problem, 1, rows) * reach(problem, 2, cols)


def batch_sizes(problem: ConvShape, batch: int) -> tuple[int, int]:
    """Steps of the largest batch of plain and of stacked tiles."""
    plain, stacked = 0, 0
    for channels in channel_tiles(problem):
        if channels.stack == 1:
            plain = max(plain, min(batch, channels.steps))
        else:
            stacked = max(stacked, min(batch, channels.steps))
    return plain, stacked


def step_count(problem: ConvShape) -> int:
    """Steps of all tiles of input channels."""
    last = channel_tiles(problem)[-1]
    return last.first_step + last.steps


def ceil_div(value: int, by: int) -> int:
    """value / by, rounded up."""
    return -(-value // by)


def step_reads_image(problem: ConvShape, tile: Tile, channels: Channels, step: int) -> bool:
    """Whether one of its taps does; the others copy zeros."""
    block = tile.block
    firsts = (block.frame % problem.out_size(0), block.row + tile.top, block.col)
    counts = (1, tile.rows, block.cols)
    for tap in taps_of_step(problem, channels, step):
        position = tap_position(problem, tap)
        reads = True
        for axis in range(3):
            low = problem.in_position(axis, firsts[axis], position[axis])
            high = problem.in_position(axis, firsts[axis] + counts[axis] - 1, position[axis])
            reads = reads and high >= 0 and low < problem.size[axis]
        if reads:
            return True
    return False


def taps_of_step(problem: ConvShape, channels: Channels, step: int) -> list[int]:
    """The taps that a step stacks."""
    taps = []
    for tap in range(step * channels.stack, min(problem.taps(), (step + 1) * channels.stack)):
        taps.append(tap)
    return taps


def tap_position(problem: ConvShape, tap: int) -> tuple[int, int, int]:
    """A tap by its (depth, height, width)."""
    in_depth, rest = divmod(tap, problem.kernel[1] * problem.kernel[2])
    in_height, in_width = divmod(rest, problem.kernel[2])
    return in_depth, in_height, in_width


def span_of(problem: ConvShape, axis: int, first: int, count: int) -> Span:
    """The rows or columns that `count` outputs from `first` on read."""
    start = problem.in_position(axis, first, 0)
    extent = reach(problem, axis, count)
    low = min(extent, max(0, -start))
    return Span(start, 1, extent, low, max(low, min(extent, problem.size[axis] - start)))


def frames_of(problem: ConvShape, frame: int) -> Span:
    """The frames that one output frame reads, one per tap in depth."""
    start, step, taps = problem.in_position(0, frame, 0), problem.dilation[0], problem.kernel[0]
    low = min(taps, max(0, -(start // step)))
    high = min(taps, (problem.size[0] - 1 - start) // step + 1)
    return Span(start, step, taps, low, max(low, high))


def reach(problem: ConvShape, axis: int, count: int) -> int:
    """Input positions from the first to the last that `count` outputs read."""
    taps = problem.dilation[axis] * (problem.kernel[axis] - 1)
    return (count - 1) * problem.stride[axis] + taps + 1


def channel_tiles(problem: ConvShape) -> list[Channels]:
    """C_in in tiles of all partitions and the rest."""
    side, taps = nl.tile_size.pmax, problem.taps()
    tiles: list[Channels] = []
    first_step = 0
    for part in spans(problem.c_in, side):
        stack = 1
        while stack < MOST_STACKED and 2 * stack * part[1] <= side:
            stack = 2 * stack
        steps = ceil_div(taps, stack)
        tiles.append(Channels(len(tiles), part[0], part[1], stack, first_step, steps))
        first_step += steps
    return tiles


def spans(total: int, size: int) -> list[tuple[int, int]]:
    """`total` in parts of `size` and the rest, as (first, size)."""
    parts = []
    for first in range(0, total, size):
        parts.append((first, min(size, total - first)))
    return parts
