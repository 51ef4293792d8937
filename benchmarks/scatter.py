"""The scatter baseline: every tap's view of the input is copied into a dense tile, then multiplied.

It stands for the design nki-library publishes for conv3d, in code of our own, so that the kernels
of trnconv are compared with it on one machine model, in one reading:

- windows of input rows come from HBM, with zeros around the image, ahead of their use;
- one copy inside SBUF per tap and tile, three on the Vector engine for one on the Scalar engine;
- taps share the partitions only where a tile of input channels fills half of them or less;
- one matmul per (shared) tap, tile of input channels and tile of output channels, summed in PSUM;
- tiles are several whole rows, or a row cut into a PSUM bank and the rest; all loops are unrolled.
"""
# ruff: noqa: PERF401 (kernels append in loops: NKI has no comprehensions)

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import nkisim
from benchmarks.scatter_tiles import (
    RESULTS_IN_FLIGHT,
    Block,
    Channels,
    Cut,
    Span,
    Tile,
    batch_sizes,
    ceil_div,
    channel_tiles,
    cut_of,
    frames_of,
    reach,
    span_of,
    spans,
    step_count,
    step_reads_image,
    tap_position,
    taps_of_step,
)
from nkisim.machine import Machine, Reading
from nkisim.timing import schedule
from trnconv._nki import nisa, nl
from trnconv.geometry import ConvShape

Array = np.ndarray[Any, Any]

SCALAR_ENGINE_ITERATION = 4  # the first of every four copies
LONGEST_RUN = 60_000  # instructions that `scatter_ns` simulates as they are
LONGEST_CROP = 15_000


@dataclass(frozen=True)
class Step(nl.NKIObject):
    """A scattered step: its place in the weight image, and the moving operand [K, positions]."""

    number: int
    moving: nl.NkiTensor


class Ring(nl.NKIObject):
    """Equal tiles, used in turn."""

    def __init__(self, count: int, shape: tuple[int, ...], dtype: str, buffer: Any) -> None:
        self.tiles = []
        self.taken = 0
        for _ in range(count):
            self.tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))

    def take(self) -> nl.NkiTensor:
        """The tile that was taken longest ago."""
        tile = self.tiles[self.taken % len(self.tiles)]
        self.taken = self.taken + 1
        return tile


class Buffers(nl.NKIObject):
    """All that is in SBUF and PSUM but for the weights."""

    def __init__(self, problem: ConvShape, cut: Cut, dtype: str) -> None:
        side, bank = nl.tile_size.pmax, nl.tile_size.psum_fmax
        rows = reach(problem, 1, cut.rows * cut.tiles)
        cols = reach(problem, 2, cut.cols)
        plain, stacked = batch_sizes(problem, cut.batch)
        window = (side, problem.kernel[0], rows, cols)
        self.windows = Ring(cut.windows, window, dtype, nl.sbuf)
        self.plain = Ring(2 * plain, (side, bank), dtype, nl.sbuf)
        self.stacked = Ring(2 * stacked, (side, bank), dtype, nl.sbuf)
        self.results = Ring(RESULTS_IN_FLIGHT, (side, bank), dtype, nl.sbuf)
        self.sums = Ring(nl.tile_size.psum_num_banks, (side, bank), nl.float32, nl.psum)
        for tile in self.stacked.tiles:
            nisa.memset(tile, 0.0)  # the gaps between stacked taps stay zero


class Filters(nl.NKIObject):
    """Weights and biases of some output channels; a step's weights are loaded when first used."""

    def __init__(self, image: nl.NkiTensor, bias: nl.NkiTensor, resident: nl.NkiTensor) -> None:
        side = nl.tile_size.pmax
        self.image = image  # in HBM: [steps, K, these channels]
        self.resident = resident  # in SBUF: [K, steps, channels]
        self.loaded = [False] * image.shape[0]
        self.outputs = spans(image.shape[2], side)
        self.bias = nl.ndarray((side, len(self.outputs)), dtype=nl.float32)
        for output in range(len(self.outputs)):
            first, size = self.outputs[output]
            nisa.dma_copy(self.bias[0:size, nl.ds(output, 1)], bias[nl.ds(first, size)])

    def load(self, step: int) -> None:
        """Bring in the weights of a step, unless they are there."""
        if not self.loaded[step]:
            self.loaded[step] = True
            nisa.dma_copy(self.resident[:, step, 0 : self.image.shape[2]], self.image[step, :, :])

    def stationary(self, step: Step, output: int) -> nl.NkiTensor:
        """[K, M] of a step and a tile of output channels."""
        first, size = self.outputs[output]
        return self.resident[0 : step.moving.shape[0], step.number, nl.ds(first, size)]


@dataclass(frozen=True)
class Job(nl.NKIObject):
    """A pass over the input, for some output channels."""

    problem: ConvShape
    cut: Cut
    buffers: Buffers
    filters: Filters
    x: nl.NkiTensor
    out: nl.NkiTensor


def scatter_forward(
    x: nl.NkiTensor, weights: nl.NkiTensor, bias: nl.NkiTensor, problem: ConvShape
) -> nl.NkiTensor:
    """x [N, C_in, D, H, W], weights by `pack_weights`, bias [C_out] in fp32 -> [N, C_out, ...].

    x may have any float type; weights and result have the same.
    """
    item_bytes = 4 if x.dtype == nl.float32 else 2
    cut = cut_of(problem, item_bytes, nl.tile_size.sbuf_fmax_bytes)
    depth, height, width = problem.out_sizes()
    out_shape = (problem.batch, problem.c_out, depth, height, width)
    out = nl.ndarray(out_shape, dtype=x.dtype, buffer=nl.shared_hbm)
    buffers = Buffers(problem, cut, x.dtype)
    columns = min(problem.c_out, cut.filters * nl.tile_size.pmax)
    resident = nl.ndarray((nl.tile_size.pmax, weights.shape[0], columns), dtype=x.dtype)
    for channels in spans(problem.c_out, columns):
        here = nl.ds(channels[0], channels[1])
        filters = Filters(weights[:, :, here], bias[here], resident)
        job = Job(problem, cut, buffers, filters, x, out[:, here, :, :, :])
        for frame in range(problem.batch * depth):
            for rows in spans(height, cut.rows * cut.tiles):
                for cols in spans(width, cut.cols):
                    block = Block(frame, rows, cols)
                    for tile_rows in spans(block.rows, cut.rows):
                        convolve_tile(job, Tile(block, tile_rows[0], tile_rows[1]))
    return out


def convolve_tile(job: Job, tile: Tile) -> None:
    """Copy a batch of steps, multiply it by the filters of each output tile; store what is done."""
    batches = batches_of(job, tile)
    sums = []
    for channels_out in job.filters.outputs:
        sums.append(job.buffers.sums.take()[0 : channels_out[1], 0 : tile.positions()])
    copies = 0
    for number in range(len(batches)):
        channels, wanted = batches[number]
        steps = []
        for step in wanted:
            job.filters.load(channels.first_step + step)
            steps.append(scatter_step(job, tile, channels, step, copies))
            copies += len(taps_of_step(job.problem, channels, step))
        for output in range(len(sums)):
            multiply(job.filters, sums[output], steps, output, number)
            if number == len(batches) - 1:
                store(job, tile, sums[output], output)
    if len(batches) == 0:
        for output in range(len(sums)):
            nisa.memset(sums[output], 0.0)
            store(job, tile, sums[output], output)


def scatter_step(job: Job, tile: Tile, channels: Channels, step: int, copies: int) -> Step:
    """The views of a step's taps, one below the other on the partitions of a dense tile."""
    window = window_of(job, tile.block, channels)
    ring = job.buffers.plain if channels.stack == 1 else job.buffers.stacked
    dense = ring.take()
    taps = taps_of_step(job.problem, channels, step)
    pitch = nl.tile_size.pmax // channels.stack
    for place in range(len(taps)):
        view = tap_view(job.problem, window, tile, taps[place])
        machine = dense[nl.ds(place * pitch, channels.size), 0 : tile.positions()]
        on_scalar = (copies + place) % SCALAR_ENGINE_ITERATION == 0
        engine = nisa.scalar_engine if on_scalar else nisa.vector_engine
        nisa.tensor_copy(machine, view[0 : channels.size, :, :], engine=engine)
    deep = (len(taps) - 1) * pitch + channels.size
    return Step(channels.first_step + step, dense[0:deep, 0 : tile.positions()])


def multiply(
    filters: Filters, total: nl.NkiTensor, steps: list[Step], output: int, batch: int
) -> None:
    """Add the products of a batch of steps to the sums of one output tile; batch 0 is the first."""
    for number in range(len(steps)):
        step = steps[number]
        stationary = filters.stationary(step, output)
        nisa.nc_matmul(total, stationary, step.moving, accumulate=batch + number > 0)


def store(job: Job, tile: Tile, total: nl.NkiTensor, output: int) -> None:
    """Sums and bias, to HBM."""
    first, size = job.filters.outputs[output]
    image, frame = divmod(tile.block.frame, job.problem.out_size(0))
    result = job.buffers.results.take()[0:size, 0 : tile.positions()]
    bias = job.filters.bias[0:size, nl.ds(output, 1)]
    nisa.tensor_scalar(result, total, op0=nl.add, operand0=bias)
    rows = nl.ds(tile.block.row + tile.top, tile.rows)
    cols = nl.ds(tile.block.col, tile.block.cols)
    nisa.dma_copy(job.out[image, nl.ds(first, size), frame, rows, cols], result)


def window_of(job: Job, block: Block, channels: Channels) -> nl.NkiTensor:
    """The inputs of a block, [C_in tile, taps in depth, rows, cols]; loaded when first asked for.

    Where there are fewer windows than tiles of input channels, blocks have one tile each: a window
    is overwritten only after all that asks for it.
    """
    if channels.number == len(block.windows):
        problem = job.problem
        image, frame = divmod(block.frame, problem.out_size(0))
        rows = span_of(problem, 1, block.row, block.rows)
        cols = span_of(problem, 2, block.col, block.cols)
        window = job.buffers.windows.take()
        view = window[0 : channels.size, :, 0 : rows.extent, 0 : cols.extent]
        source = job.x[image, nl.ds(channels.first, channels.size), :, :, :]
        fill(view, source, (frames_of(problem, frame), rows, cols))
        block.windows.append(window)
    return block.windows[channels.number]


def fill(view: nl.NkiTensor, source: nl.NkiTensor, axes: tuple[Span, Span, Span]) -> None:
    """Zeros outside of the image, an axis at a time; the inside by one DMA."""
    inside = view
    for axis in range(3):
        span, dim = axes[axis], axis + 1
        clear(inside, dim, 0, span.low)
        clear(inside, dim, span.high, span.extent)
        if span.low == span.high:
            return
        inside = inside.slice(dim, span.low, span.high)
        first = span.start + span.low * span.step
        last = span.start + (span.high - 1) * span.step
        source = source.slice(dim, first, last + 1, span.step)
    nisa.dma_copy(inside, source)


def clear(view: nl.NkiTensor, dim: int, start: int, stop: int) -> None:
    """Zero a part of a view, which may be empty."""
    if start < stop:
        nisa.memset(view.slice(dim, start, stop), 0.0, engine=nisa.gpsimd_engine)


def tap_view(problem: ConvShape, window: nl.NkiTensor, tile: Tile, tap: int) -> nl.NkiTensor:
    """What one tap reads for a tile, [C_in tile, rows, cols]."""
    in_depth, in_height, in_width = tap_position(problem, tap)
    row = tile.top * problem.stride[1] + in_height * problem.dilation[1]
    col = in_width * problem.dilation[2]
    frame = window[:, in_depth, :, :]
    rows = frame.slice(1, row, row + (tile.rows - 1) * problem.stride[1] + 1, problem.stride[1])
    stop = col + (tile.block.cols - 1) * problem.stride[2] + 1
    return rows.slice(2, col, stop, problem.stride[2])


def batches_of(job: Job, tile: Tile) -> list[tuple[Channels, list[int]]]:
    """The steps of a tile that read the image, by tile of input channels, a few at a time."""
    batches = []
    for channels in channel_tiles(job.problem):
        wanted = []
        for step in range(channels.steps):
            if step_reads_image(job.problem, tile, channels, step):
                wanted.append(step)
        for batch in spans(len(wanted), job.cut.batch):
            batches.append((channels, wanted[batch[0] : batch[0] + batch[1]]))
    return batches


def pack_weights(w: Array, shape: ConvShape, dtype: Any) -> Array:
    """w [C_out, C_in, KD, KH, KW] as the kernel reads it: [steps, partitions, C_out] in `dtype`.

    A step holds the filters of its taps one below the other, as `scatter_step` lays the inputs.
    """
    side = nl.tile_size.pmax
    image = np.zeros((step_count(shape), side, shape.c_out), dtype)
    by_tap = w.reshape(shape.c_out, shape.c_in, shape.taps()).transpose(2, 1, 0)
    for channels in channel_tiles(shape):
        inputs = slice(channels.first, channels.first + channels.size)
        for step in range(channels.steps):
            for place, tap in enumerate(taps_of_step(shape, channels, step)):
                start = place * side // channels.stack
                rows = image[channels.first_step + step, start : start + channels.size]
                rows[...] = by_tap[tap, inputs].astype(dtype)
    return image


def time_scatter(
    shape: ConvShape, machine: Machine, reading: Reading, dtype: str = "bfloat16"
) -> float:
    """Modelled ns of the whole problem, without the launch; nothing is cropped."""
    run = nkisim.run(
        scatter_forward,
        nkisim.Spec((shape.batch, shape.c_in, *shape.size), dtype),
        nkisim.Spec((step_count(shape), machine.partitions, shape.c_out), dtype),
        nkisim.Spec((shape.c_out,), "float32"),
        shape,
        machine=machine,
        values=False,
    )
    return schedule(run.trace, run.machine, reading, memory=run.memory).makespan_ns


def scatter_ns(shape: ConvShape, machine: Machine, reading: Reading) -> float:
    """Modelled ns of a bf16 problem of any length, without the launch.

    A problem of more than about 60,000 instructions is not simulated whole. Two crops from the
    inside of the image are, one with twice the outputs of the other: whole frames if two of them
    are short enough or a row high, else rows of one frame, always of full width. Their times are
    extended linearly in output rows and frames, each counted by its taps inside the image.
    """
    if instruction_count(shape, machine) <= LONGEST_RUN:
        return time_scatter(shape, machine, reading)
    crops = crops_of(shape, machine)
    times = [time_scatter(crop, machine, reading) for crop in crops]
    work = [rows_read(crop) for crop in crops]
    slope = (times[1] - times[0]) / (work[1] - work[0])
    return times[0] + slope * (rows_read(shape) - work[0])


def crops_of(shape: ConvShape, machine: Machine) -> tuple[ConvShape, ConvShape]:
    """The two crops that stand for a long problem."""
    _, height, _ = shape.out_sizes()
    half = LONGEST_CROP // 2
    frame = instruction_count(crop_of(shape, 1, height), machine)
    if frame <= half or height == 1:
        frames = max(1, half // frame)
        return crop_of(shape, frames, height), crop_of(shape, 2 * frames, height)
    cut = cut_of(shape, 2, machine.sbuf_usable_bytes_per_partition)
    step = min(height // 2, cut.rows * cut.tiles)
    rows = step * max(1, half * height // (frame * step))
    return crop_of(shape, 1, rows), crop_of(shape, 1, 2 * rows)


def crop_of(shape: ConvShape, frames: int, rows: int) -> ConvShape:
    """An image with so many output frames and rows; padded in height only if no row is missing."""
    whole = rows == shape.out_size(1)
    height = shape.size[1] if whole else reach(shape, 1, rows)
    return replace(
        shape,
        batch=1,
        size=(reach(shape, 0, frames), height, shape.size[2]),
        pad_before=(0, shape.pad_before[1] if whole else 0, shape.pad_before[2]),
        pad_after=(0, shape.pad_after[1] if whole else 0, shape.pad_after[2]),
    )


def rows_read(shape: ConvShape) -> int:
    """Rows of input that the taps of all output rows read, those in the padding left out."""
    total = shape.batch
    for axis in (0, 1):
        positions = [
            shape.in_position(axis, out, tap)
            for out in range(shape.out_size(axis))
            for tap in range(shape.kernel[axis])
        ]
        total *= sum(0 <= position < shape.size[axis] for position in positions)
    return total


def instruction_count(shape: ConvShape, machine: Machine) -> int:
    """About how many instructions the kernel has; taps in the padding are counted too."""
    cut = cut_of(shape, 2, machine.sbuf_usable_bytes_per_partition)
    parts = len(channel_tiles(shape))
    depth, height, width = shape.out_sizes()
    tiles = shape.batch * depth * ceil_div(height, cut.rows) * ceil_div(width, cut.cols)
    outputs = len(spans(shape.c_out, nl.tile_size.pmax))
    copies = ceil_div(outputs, cut.filters) * parts * (shape.taps() + 1)
    return tiles * (outputs * (step_count(shape) + 2) + copies)
