"""What a weight gradient costs, by the cost model: the busy time of every engine, and the ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from nkisim.compiler_count import matmul_instructions
from nkisim.machine import Timing
from trnconv.algorithms.algorithm import Cost
from trnconv.algorithms.dma import descriptor_ns, issue_ns, latency_ns
from trnconv.algorithms.recipe_parts import loop_spans
from trnconv.algorithms.weight_gradient.blocks import window_size
from trnconv.algorithms.weight_gradient.engine_work import EngineWork
from trnconv.algorithms.weight_gradient.iterations import iterations_of_looks
from trnconv.algorithms.weight_gradient.pass_kinds import (
    PassKind,
    cut_ends,
    pass_kinds,
    rows_outside,
)
from trnconv.algorithms.weight_gradient.plan import (
    DEPTH,
    HEIGHT,
    WIDTH,
    GradientStrip,
    WeightGradientPlan,
)
from trnconv.algorithms.weight_gradient.sbuf import addresses
from trnconv.algorithms.weight_gradient.sheet_cost import (
    cleared,
    moved_dy_work,
    sheet_edge_work,
    sheet_work,
    sheets_of,
)

_FLOAT_BYTES = 4
_UNHIDDEN = 0.5  # of what sheets' DMAs take besides moving: the rest hides behind long ones
_ITERATION_INSTRUCTIONS = 1  # the row of the place table


def cost_of(plan: WeightGradientPlan) -> Cost:
    """The cost of a plan, legal or not."""
    timing = plan.timing
    total = EngineWork()
    static = 0.0
    for kind, work in _works(replace(plan, iteration_areas=1)):
        whole, once = _one_pass(plan, timing, kind, work)
        total.add(whole, kind.times)
        static += kind.times * once
    iterations = _iteration_count(plan) * _pass_count(plan) if plan.looped else 0
    latency = latency_ns(timing, looped=plan.looped)
    cold = timing.pe_warm_ns * (1 - timing.pe_cold_rate)
    busy = {
        "tensor": total.tensor / timing.pe_columns_per_ns,
        "vector": total.vector / timing.vector_ghz,
        "scalar": total.scalar / timing.scalar_ghz,
        "gpsimd": total.gpsimd / timing.gpsimd_ghz,
        "dma": total.dma / timing.dma_engines + _unhidden_ns(plan, total.unhidden, latency),
        "dma issue": total.dmas * issue_ns(timing, looped=plan.looped) / timing.dma_issue_queues,
        "dma latency": _block_count(plan) * latency,  # dy waits for the block before the last one
    }
    first = _first_ns(plan, max(busy["gpsimd"], busy["dma"]) / _block_count(plan))
    loops = iterations * (timing.loop_iteration_ns + latency + first + cold)
    begin = (
        2 * latency + cold + (first if plan.has_sheets or (plan.by_dma and plan.looped) else 0.0)
    )
    total_ns = max(busy.values()) + loops + _pass_count(plan) * begin
    return Cost(
        total_ns=total_ns,
        weighed_ns=total_ns,
        busy=tuple(busy.items()),
        hbm_bytes=int(total.hbm),
        sbuf_bytes=addresses(plan).end,
        instructions=int(static) + 2,
        loops_ns=loops,
        regions=_pass_count(plan) * _regions(plan) if plan.looped else 0,
    )


def _unhidden_ns(plan: WeightGradientPlan, issue: float, latency: float) -> float:
    """What DMAs of sheets wait for: the issue of short ones, and a free buffer for dy.

    Tiles of single taps are so many DMAs that another one is always under way.
    """
    return _UNHIDDEN * (issue + _block_count(plan) * latency) if plan.has_sheets else 0.0


def _first_ns(plan: WeightGradientPlan, block_ns: float) -> float:
    """Loads of a block before its first sum, of all that take so long: iterations start with none.

    That is dy and a sheet, a whole window, or dy and a strip. Strips of later blocks may be there
    already, those of the first one never are: so a strip is not its part of all loads.
    """
    if plan.has_sheets:
        return block_ns * 2 / (plan.shape.kernel[DEPTH] + 1)
    if not plan.by_dma:
        return block_ns
    timing, whole = plan.timing, next(iter(_extents(plan)))
    loads = _dy_cost(plan, timing, whole, min(plan.outs, plan.most_outs))
    loads.add(_x_cost(plan, timing, whole, plan.strips()[0]), 1)
    return loads.dma / timing.dma_engines


def _pass_count(plan: WeightGradientPlan) -> int:
    strips = -(-len(plan.strips()) // plan.pass_strips)
    return len(plan.own_packs) * strips * -(-plan.most_outs // plan.outs)


def _block_count(plan: WeightGradientPlan) -> int:
    """Blocks of all passes."""
    blocks = sum(_extents(plan).values()) * plan.shape.out_size(DEPTH)
    return blocks * _pass_count(plan)


def _regions(plan: WeightGradientPlan) -> int:
    """Hardware loops of a pass; an iteration that is alone is none."""
    iterations = iterations_of_looks(plan)
    return sum(len(loop_spans(count, plan.machine)) for count in iterations if count > 1)


def _iteration_count(plan: WeightGradientPlan) -> int:
    """Iterations of a pass."""
    areas = -(-len(plan.row_spans()) * len(plan.column_spans()) // plan.iteration_areas)
    frames = -(-plan.shape.out_size(DEPTH) // plan.iteration_frames)
    return len(plan.image_spans()) * areas * frames


@dataclass(frozen=True)
class _PassWork:
    """What a pass does between its ends, whether it is looped or not, and however."""

    blocks: EngineWork
    edges: EngineWork  # of one image
    block_count: int


@lru_cache(maxsize=16)
def _works(plan: WeightGradientPlan) -> list[tuple[PassKind, _PassWork]]:
    """Every kind of pass; for iterations of one area."""
    timing = plan.timing
    return [(kind, _pass_work(plan, timing, kind)) for kind in pass_kinds(plan)]


def _pass_work(plan: WeightGradientPlan, timing: Timing, kind: PassKind) -> _PassWork:
    total, edges = EngineWork(), EngineWork()
    reads = plan.all_frames_read()
    taps = {strip.frame_tap for strip, _ in kind.strips}
    met = {tap: sum(read[tap] >= 0 for read in reads) for tap in taps}
    loads = {tap: _loads(plan, reads, tap, kind.strips) for tap in taps}
    extents = _extents(plan)
    sheets = sheets_of(kind.strips) if plan.has_sheets else []
    for extent, times in extents.items():
        block = EngineWork()
        sizes = (extent.images, extent.rows)
        if plan.has_sheets:
            block.add(moved_dy_work(plan, timing, sizes, kind.outs), len(reads))
        else:
            block.add(_dy_cost(plan, timing, extent, kind.outs), len(reads))
        if kind.with_bias:
            block.add(_sum_cost(plan, timing, (extent.tiles, 1), kind.outs), len(reads))
        for strip, alike in kind.strips:
            sums = _sum_cost(plan, timing, (extent.tiles, strip.columns), kind.outs)
            block.add(sums, alike * met[strip.frame_tap])
            if not plan.has_sheets:
                block.add(_x_cost(plan, timing, extent, strip), alike * loads[strip.frame_tap])
        for frame_tap, channels in sheets:
            block.add(sheet_work(plan, timing, sizes, channels), loads[frame_tap])
        total.add(block, times)
    for frame_tap, channels in sheets:
        edges.add(sheet_edge_work(plan, timing, channels), loads[frame_tap])
    for strip, alike in kind.strips if plan.by_dma and not plan.has_sheets else ():
        edges.add(_edge_cost(plan, timing, strip), alike * loads[strip.frame_tap])
    return _PassWork(total, edges, sum(extents.values()) * len(reads))


def _one_pass(
    plan: WeightGradientPlan, timing: Timing, kind: PassKind, work: _PassWork
) -> tuple[EngineWork, float]:
    """Everything a pass does, and its static instructions."""
    ends = _ends_cost(plan, timing, kind)
    total = EngineWork()
    total.add(work.blocks, 1)
    total.add(work.edges, plan.shape.batch)
    total.add(ends, 1)
    if not plan.looped:
        return total, total.instructions
    each = work.blocks.instructions / work.block_count
    body = each * plan.iteration_areas * plan.iteration_frames + _ITERATION_INSTRUCTIONS
    return total, len(
        iterations_of_looks(plan)
    ) * body + work.edges.instructions + ends.instructions


@dataclass(frozen=True)
class _BlockSize:
    """The size of a block."""

    images: int
    rows: int
    columns: int
    tiles: int
    is_ragged: bool  # its last tiles are not full


def _extents(plan: WeightGradientPlan) -> dict[_BlockSize, int]:
    """Sizes of blocks of an output frame, and how many there are."""
    sizes = [
        Counter(count for _, count in spans)
        for spans in (plan.image_spans(), plan.row_spans(), plan.column_spans())
    ]
    counts: dict[_BlockSize, int] = {}
    for images, rows, columns in product(*sizes):
        tiles = plan.tile_count(rows, columns)
        ragged = tiles * plan.tile_lines > rows * columns
        one = _BlockSize(images, rows, columns, images * tiles, ragged)
        counts[one] = sizes[0][images] * sizes[1][rows] * sizes[2][columns]
    return counts


def _loads(
    plan: WeightGradientPlan,
    reads: tuple[tuple[int, ...], ...],
    frame_tap: int,
    strips: tuple[tuple[GradientStrip, int], ...],
) -> int:
    """How often a strip of x is loaded for an area of the frames.

    A frame that another frame tap read before is still there, if there are slots enough for the
    strips of all frame taps but one.
    """
    taps = {strip.frame_tap for strip, _ in strips}
    if plan.has_sheets:
        others = sum(tap != frame_tap for tap, _ in sheets_of(strips))
    else:
        others = sum(count for strip, count in strips if strip.frame_tap != frame_tap)
    shared = plan.slots > others + 1
    loads = 0
    for first in range(0, len(reads), plan.iteration_frames):
        seen: set[int] = set()
        for read in reads[first : first + plan.iteration_frames]:
            at = read[frame_tap]
            loads += at >= 0 and not (shared and at in seen)
            seen |= {read[tap] for tap in taps}
    return loads


def _matmul_cycles(plan: WeightGradientPlan, timing: Timing, columns: int) -> float:
    stream = float(max(columns, timing.pe_min_cycles))
    if plan.dtype != "float32":
        return stream + timing.pe_gap_cycles
    one_pass = stream * timing.pe_fp32_cycles_per_column + timing.pe_gap_cycles
    return timing.pe_fp32_passes * max(one_pass, timing.weight_load_fp32_cycles)


def _sum_cost(
    plan: WeightGradientPlan, timing: Timing, extent: tuple[int, int], outs: int
) -> EngineWork:
    """One strip of one block for all output channels of a pass."""
    tiles, columns = extent
    out_tiles = -(-outs // plan.machine.partitions)
    rate = timing.pe_rate(outs / out_tiles / plan.machine.partitions)
    return EngineWork(
        tensor=out_tiles * tiles * _matmul_cycles(plan, timing, columns) / rate,
        vector=out_tiles * (columns + timing.vector_startup_cycles),
        instructions=out_tiles * (matmul_instructions(plan.dtype) * tiles + 1),
    )


def _dy_cost(plan: WeightGradientPlan, timing: Timing, extent: _BlockSize, outs: int) -> EngineWork:
    """dy of a block on partitions, and its masked copies."""
    tiles = extent.tiles
    count = EngineWork()
    masked = len(plan.masks) * tiles
    count.scalar += masked * (outs + timing.scalar_startup_cycles)
    count.instructions += masked
    if plan.by_dma:
        gaps = plan.is_flat and plan.pitch > extent.columns
        pieces = extent.images * extent.rows + tiles if gaps else _pieces(extent)
        count.add(_transposed(plan, timing, tiles, outs, pieces), 1)
        if gaps:
            count.add(cleared(timing, 1, outs), tiles)
        return count
    count.add(_by_tensor(plan, timing, tiles, outs, 1), 1)
    elems = extent.images * extent.rows * extent.columns
    count.add(_window(plan, timing, (elems, extent.columns, extent.images), outs), 1)
    return count


def _pieces(extent: _BlockSize) -> int:
    """DMAs that transpose all tiles of a block: whole tiles of an image are one."""
    whole = extent.tiles > extent.images
    if not whole:
        return 1
    return extent.images * (2 if extent.is_ragged else 1)


def _x_cost(
    plan: WeightGradientPlan, timing: Timing, extent: _BlockSize, strip: GradientStrip
) -> EngineWork:
    """One strip of x of a block on partitions."""
    if plan.by_dma:
        count = EngineWork()
        cut = 0 if plan.is_flat else cut_ends(plan, strip.column_tap)
        pieces = _pieces(extent) + cut * extent.images
        count.add(_transposed(plan, timing, extent.tiles, strip.channels, pieces), strip.row_taps)
        count.add(cleared(timing, 1, strip.channels), strip.row_taps * cut * extent.images)
        return count
    count = _by_tensor(plan, timing, extent.tiles, strip.channels, strip.row_taps)
    first = strip.column_tap == 0 and strip.row_tap == 0
    if first or plan.windows == 1:
        height = extent.images * window_size(plan, HEIGHT, extent.rows)
        width = window_size(plan, WIDTH, extent.columns)
        size = (height * width, width, extent.images)
        count.add(_window(plan, timing, size, strip.channels), 1)
    return count


def _edge_cost(plan: WeightGradientPlan, timing: Timing, strip: GradientStrip) -> EngineWork:
    """Rows of a frame that a tap finds in the padding: tiles to clear, tiles loaded in parts."""
    count = EngineWork()
    for tap in range(strip.row_tap, strip.row_tap + strip.row_taps):
        outside = rows_outside(plan, tap)
        if outside:
            tiles = -(-outside * plan.pitch // plan.tile_lines) + 1
            blocks = -(-plan.shape.out_size(HEIGHT) // plan.rows)
            all_tiles = blocks * plan.tile_count(plan.rows, plan.columns)
            count.add(cleared(timing, 1, strip.channels), min(tiles, all_tiles))
            count.dmas += 1
            count.instructions += 1
    return count


def _transposed(
    plan: WeightGradientPlan, timing: Timing, tiles: int, channels: int, pieces: int
) -> EngineWork:
    """Tiles transposed on the way from HBM: a descriptor a partition of every DMA."""
    lines = plan.machine.partitions
    moved = tiles * channels * plan.item_bytes
    rate = timing.dma_transpose_rate
    if plan.item_bytes == _FLOAT_BYTES:
        rate *= timing.dma_transpose_4_byte_rate
    each = descriptor_ns(timing, moved / pieces, looped=plan.looped, rate=rate)
    return EngineWork(
        dma=pieces * lines * each, dmas=pieces, hbm=lines * moved, instructions=pieces
    )


def _by_tensor(
    plan: WeightGradientPlan, timing: Timing, tiles: int, channels: int, taps: int
) -> EngineWork:
    """Tiles transposed by the Tensor engine, and copied to SBUF by the Scalar engine."""
    lines, bank = plan.machine.partitions, plan.machine.psum_bank_fp32_elems
    in_parts = -(-channels // lines)
    transposes = taps * tiles * in_parts
    rate = timing.pe_rate(channels / in_parts / lines)
    passes = timing.fp32_transpose_passes if plan.item_bytes == _FLOAT_BYTES else 1
    stream = max(min(lines, channels), timing.pe_min_cycles)
    together = max(1, bank // (taps * channels))
    copies = -(-tiles // together) * -(-channels // bank)
    return EngineWork(
        tensor=transposes * (stream * passes / rate + timing.pe_gap_cycles),
        scalar=taps * tiles * channels + copies * timing.scalar_startup_cycles,
        instructions=matmul_instructions(plan.dtype, transposes=True) * transposes + copies,
    )


def _window(
    plan: WeightGradientPlan, timing: Timing, size: tuple[int, int, int], channels: int
) -> EngineWork:
    """Rows of some channels as they are in HBM: elements, those of a row, and images."""
    elems, run, images = size
    shape = plan.shape
    pads = [before + after for before, after in zip(shape.pad_before, shape.pad_after, strict=True)]
    zeros = any(pad and not shape.repeats(axis) for axis, pad in enumerate(pads))
    cleared = elems if zeros else 0
    copied = pads[WIDTH] if shape.repeats(WIDTH) else 0
    tiles = -(-channels // plan.machine.partitions)
    runs = channels * elems / run
    return EngineWork(
        dma=runs * descriptor_ns(timing, run * plan.item_bytes, looped=plan.looped),
        dmas=tiles * images,
        hbm=channels * elems * plan.item_bytes,
        gpsimd=tiles * (cleared + copied * elems // run) * timing.gpsimd_cycles_per_elem,
        instructions=tiles * (images + (cleared > 0) + copied),
    )


def _ends_cost(plan: WeightGradientPlan, timing: Timing, kind: PassKind) -> EngineWork:
    """Zeros at the start of a pass that is looped, stores at the end of every pass."""
    out_tiles = -(-kind.outs // plan.machine.partitions)
    zeros = out_tiles if plan.looped else 0
    count = EngineWork(instructions=out_tiles + 1)
    for strip, alike in kind.strips:
        moved = strip.columns * _FLOAT_BYTES
        count.dma += alike * kind.outs * descriptor_ns(timing, moved, looped=plan.looped)
        count.dmas += alike * out_tiles
        count.hbm += alike * kind.outs * moved
        count.vector += alike * zeros * (strip.columns + timing.vector_startup_cycles)
        count.instructions += alike * (zeros + out_tiles)
    return count
