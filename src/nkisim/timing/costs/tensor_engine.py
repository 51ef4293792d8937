"""Tensor engine: a matmul streams the moving operand, one column a cycle (I26, A1, KO)."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs.cost import Cost, cost_rule
from nkisim.trace import Instruction

_FOUR_BYTE = 4
_QUADRANTS = 4


@cost_rule("nc_matmul")
def matmul(instruction: Instruction, machine: Machine) -> Cost:
    """max(N, 64) cycles for 1- and 2-byte types; fp32 is two passes of two cycles a column."""
    timing = machine.timing
    stationary, moving = instruction.reads[0].layout, instruction.reads[1].layout
    doubled = 2 if str(getattr(instruction.option("perf_mode"), "value", "")) == "double_row" else 1
    columns = moving.elems // doubled
    wide = moving.dtype == "float32" and not instruction.option("transpose")
    passes = timing.pe_fp32_passes if wide else 1
    if wide and instruction.option("onezero"):
        passes = 1
    per_column = timing.pe_fp32_cycles_per_column if wide else 1
    stream = passes * max(columns * per_column, timing.pe_min_cycles)
    load = timing.weight_load_fp32_cycles if wide else timing.weight_load_cycles
    load *= stationary.elems / doubled / machine.stationary_max_elems
    rows = stationary.partitions * doubled
    flops = 2 * rows * (stationary.elems // doubled) * columns
    # Between two passes of one fp32 matmul lies another weight load, hidden or not.
    inner_gaps = (passes - 1) * (timing.pe_gap_cycles + max(0.0, load - stream / passes))
    return _pe_cost(machine, stream + inner_gaps, load, flops, _tiles(instruction, machine))


@cost_rule("nc_matmul_mx")
def matmul_mx(instruction: Instruction, machine: Machine) -> Cost:
    """As a 2-byte matmul of the same columns, with four times the depth (A3)."""
    timing = machine.timing
    stationary, moving = instruction.reads[0].layout, instruction.reads[1].layout
    stream = max(moving.elems, timing.pe_min_cycles)
    load = timing.weight_load_cycles * stationary.elems / machine.stationary_max_elems
    flops = 2 * 4 * stationary.partitions * stationary.elems * moving.elems
    return _pe_cost(machine, stream, load, flops, _tiles(instruction, machine))


def transpose(instruction: Instruction, machine: Machine) -> Cost:
    """max(P, min(64, F)) cycles (I26); fp32 takes more passes."""
    timing = machine.timing
    data = instruction.reads[0].layout
    stream = float(max(data.partitions, min(timing.pe_min_cycles, data.elems)))
    if data.itemsize_bytes == _FOUR_BYTE:
        stream *= timing.fp32_transpose_passes
    load = timing.weight_load_cycles * data.elems / machine.stationary_max_elems
    return _pe_cost(machine, stream, load, 0, (0, 0))


def _pe_cost(
    machine: Machine, stream: float, load: float, flops: int, tiles: tuple[int, int]
) -> Cost:
    ns = 1.0 / machine.timing.pe_ghz
    return Cost(
        busy_ns=stream * ns,
        latency_ns=(stream + machine.timing.pe_latency_cycles) * ns,
        weight_load_ns=load * ns,
        gap_ns=machine.timing.pe_gap_cycles * ns,
        tiles=tiles,
        flops=flops,
    )


def _tiles(instruction: Instruction, machine: Machine) -> tuple[int, int]:
    """The quarters of the array a tiled matmul occupies; (0, 0) for the whole array.

    Row tiles and column tiles are both counted in quarters: a kernel tiles one way at a time.
    """
    size = instruction.option("tile_size") or ()
    if not size:
        return (0, 0)
    position = instruction.option("tile_position")
    timing = machine.timing
    for extent, start, parallel in zip(
        size, position, (timing.row_tiles_parallel, timing.column_tiles_parallel), strict=True
    ):
        if extent < machine.partitions and parallel:
            unit = machine.partitions // _QUADRANTS
            return (start // unit, (start + extent) // unit)
    return (0, 0)
