"""How a direct kernel starts and ends: what the Tensor engine waits for, and what follows it."""

from __future__ import annotations

from nkisim.machine import Timing
from trnconv.algorithms.direct.accumulations import grouped_accumulations
from trnconv.algorithms.direct.block_types import block_extents, frame_kinds
from trnconv.algorithms.direct.blocks import bank_tile_count
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.algorithms.direct.traffic import (
    BlockExtent,
    load_order,
    loaded_windows,
    store_transfer,
    window_transfer,
)
from trnconv.algorithms.dma import issue_ns, latency_ns

CELLS = 2  # loads of places in each iteration of a hardware loop


def last_pass_rectangle(plan: DirectPlan, extent: BlockExtent) -> tuple[int, int]:
    """Rows and columns of positions that the last pass sums for a block."""
    packing = plan.passes[-1]
    return -(-extent.rows // packing.rows), -(-extent.columns // packing.columns)


def ramp_ns(plan: DirectPlan, timing: Timing, tensor_ns: float) -> tuple[float, float]:
    """What the Tensor engine waits at the start, while blocks come in; and what follows it."""
    blocks = _first_blocks(plan)
    kind = next(iter(frame_kinds(plan.reduced, plan.frames)))
    accumulations = grouped_accumulations(plan.reduced, plan.passes, kind.outputs, kind.present)
    windows, order = (
        loaded_windows(accumulations, plan.slots),
        load_order(accumulations, plan.slots),
    )
    bank = plan.machine.psum_bank_fp32_elems
    issue, latency = issue_ns(timing, looped=plan.looped), latency_ns(timing, looped=plan.looped)
    per_position = tensor_ns / plan.reduced.images / _positions_of(plan)
    loaded = latency + issue
    done = 0.0
    idle = 0.0
    for number, extent in enumerate(blocks):
        loads = [window_transfer(plan, window, extent) for window in windows]
        kinds = [max(load.ns, load.dmas * issue) for load in loads]
        each = [kinds[kind] for kind in order]
        compute = per_position * extent.rows * extent.columns * plan.frames
        if number == 0:
            tiles = bank_tile_count(*last_pass_rectangle(plan, extent), bank) * len(accumulations)
            tile = compute / tiles
            start = _first_tile_ns(loaded, each, tile) - tile
        else:
            start = max(done, loaded + sum(each))
        idle += start - done
        loaded += sum(each)
        done = max(start + compute, loaded)
        idle += max(0.0, loaded - start - compute)
    store = sum(
        store_transfer(plan, group.accumulation, blocks[0]).ns for group in accumulations[-1:]
    )
    return idle + _cold_ns(timing, tensor_ns), _last_tile_ns(plan, timing) + latency + store


def _last_tile_ns(plan: DirectPlan, timing: Timing) -> float:
    """From the last matmul to the store: its sums are seen, and one more tile is evicted."""
    seen = timing.pe_latency_cycles / timing.pe_columns_per_ns
    evicted = plan.machine.psum_bank_fp32_elems + timing.vector_latency_cycles
    return seen + evicted / timing.vector_ghz + 2 * timing.semaphore_ns


def _first_tile_ns(loaded_ns: float, loads_ns: list[float], tile_ns: float) -> float:
    """When the first tile is summed: it meets every window, in the order they are loaded."""
    done = 0.0
    for load_ns in loads_ns:
        loaded_ns += load_ns
        done = max(done, loaded_ns) + tile_ns / len(loads_ns)
    return done


def _cold_ns(timing: Timing, tensor_ns: float) -> float:
    """What the array loses until it is warm, or done."""
    slow_ns = min(timing.pe_warm_ns, tensor_ns / timing.pe_cold_rate)
    return slow_ns * (1 - timing.pe_cold_rate)


def places_ns(timing: Timing) -> float:
    """What an iteration of a hardware loop waits for the places it loads from and stores to."""
    return (CELLS - 1) * issue_ns(timing, looped=True) + latency_ns(timing, looped=True)


def _first_blocks(plan: DirectPlan) -> list[BlockExtent]:
    cut = block_extents(plan)
    return [BlockExtent(*sizes) for sizes in cut[: len(plan.lead) + 1]]


def _positions_of(plan: DirectPlan) -> int:
    return plan.reduced.out[0] * plan.frame_area
