"""Tensor engine: a matmul streams the moving operand, one column a cycle (I26, A1, KO)."""

from __future__ import annotations

from typing import NamedTuple

from nkisim.enums import matmul_perf_mode
from nkisim.machine import Machine
from nkisim.memory.layout import Layout
from nkisim.timing.costs.cost import Cost, cost_rule, innermost_stride_bytes
from nkisim.trace import Access, Instruction

_PARTS = 4  # a side of the array, in the smallest tiles
CELLS = _PARTS**2  # of the array


class _Part(NamedTuple):
    """What of the array a matmul uses: the share of its cells, and its tile if it is one."""

    share: float
    cells: tuple[int, ...]


@cost_rule("nc_matmul")
def matmul(instruction: Instruction, machine: Machine) -> Cost:
    """max(N, 64) cycles for 1- and 2-byte types, four times that for fp32: two passes of two.

    `double_row` has two rows of K on every partition and takes the time of one.
    """
    timing = machine.timing
    stationary, moving = instruction.reads[0].layout, instruction.reads[1].layout
    doubled = 2 if instruction.option("perf_mode") is matmul_perf_mode.double_row else 1
    columns = moving.elems // doubled
    column_cycles = _moving_factor(instruction.reads[1], machine)
    flops = 2 * stationary.partitions * stationary.elems * columns
    part = _Part(_share(stationary, doubled, machine), _cells(instruction, machine))
    load = timing.weight_load_cycles * stationary.elems / doubled / machine.stationary_max_elems
    if instruction.option("transpose"):
        column_cycles *= _transpose_passes(stationary, machine)
        return _pe_cost(machine, _stream(columns, column_cycles, machine), load, 0, part)
    if not _is_fp32(stationary) and not _is_fp32(moving):
        return _pe_cost(machine, _stream(columns, column_cycles, machine), load, flops, part)
    column_cycles *= timing.pe_fp32_cycles_per_column
    load = timing.weight_load_fp32_cycles * stationary.elems / machine.stationary_max_elems
    passes = 1 if instruction.option("onezero") else timing.pe_fp32_passes
    one_pass = _stream(columns, column_cycles, machine)
    # Between two passes of one fp32 matmul lies another weight load, hidden or not.
    before_last = (passes - 1) * max(one_pass + timing.pe_gap_cycles, load)
    return _pe_cost(machine, one_pass, load, flops, part, before_last)


@cost_rule("nc_matmul_mx")
def matmul_mx(instruction: Instruction, machine: Machine) -> Cost:
    """As a 2-byte matmul of the same columns, with four times the depth (A3)."""
    stationary, moving = instruction.reads[0].layout, instruction.reads[1].layout
    stream = _stream(moving.elems, _moving_factor(instruction.reads[1], machine), machine)
    load = machine.timing.weight_load_cycles * stationary.elems / machine.stationary_max_elems
    flops = 2 * 4 * stationary.partitions * stationary.elems * moving.elems
    part = _Part(_share(stationary, 1, machine), _cells(instruction, machine))
    return _pe_cost(machine, stream, load, flops, part)


def transpose(instruction: Instruction, machine: Machine) -> Cost:
    """max(P, min(64, F)) cycles (I26); fp32 takes more passes."""
    timing = machine.timing
    data = instruction.reads[0].layout
    stream = float(max(data.partitions, min(timing.pe_min_cycles, data.elems)))
    stream *= _transpose_passes(data, machine)
    load = timing.weight_load_cycles * data.elems / machine.stationary_max_elems
    return _pe_cost(machine, stream, load, 0, _Part(_share(data, 1, machine), ()))


def _stream(columns: int, column_cycles: float, machine: Machine) -> float:
    return max(columns, machine.timing.pe_min_cycles) * column_cycles


def _moving_factor(moving: Access, machine: Machine) -> float:
    """Cycles a column: more than one if the moving operand's stride is too wide."""
    wide = innermost_stride_bytes(moving) > machine.timing.wide_stride_bytes
    return machine.timing.pe_wide_stride_cycles if wide else 1.0


def _share(stationary: Layout, doubled: int, machine: Machine) -> float:
    """The part of the array that holds a stationary operand."""
    columns = stationary.elems / doubled
    return stationary.partitions * columns / machine.partitions / machine.stationary_max_elems


def _is_fp32(layout: Layout) -> bool:
    return layout.dtype == "float32"


def _transpose_passes(data: Layout, machine: Machine) -> int:
    return machine.timing.fp32_transpose_passes if data.itemsize_bytes == 4 else 1


def _pe_cost(
    machine: Machine,
    last_pass: float,
    load: float,
    flops: int,
    part: _Part,
    before_last: float = 0.0,
) -> Cost:
    """Cycles as a cost; `before_last` are those of earlier passes."""
    ns = 1.0 / machine.timing.pe_columns_per_ns
    busy = before_last + last_pass
    return Cost(
        busy_ns=busy * ns,
        latency_ns=(busy + machine.timing.pe_latency_cycles) * ns,
        weight_load_ns=load * ns,
        weight_slot_ns=before_last * ns,
        gap_ns=machine.timing.pe_gap_cycles * ns,
        array_share=part.share,
        cells=part.cells,
        flops=flops,
    )


def _cells(instruction: Instruction, machine: Machine) -> tuple[int, ...]:
    """The sixteenths of the array that a tile occupies; none for the whole array.

    A tile takes all rows, or all columns, where tiles of that kind are read not to run in parallel.
    """
    size = instruction.option("tile_size")
    if not size:
        return ()
    position = instruction.option("tile_position")
    timing = machine.timing
    together = (timing.row_tiles_parallel, timing.column_tiles_parallel)
    unit = machine.partitions // _PARTS
    rows, columns = (
        range(start // unit, (start + extent) // unit) if parallel else range(_PARTS)
        for extent, start, parallel in zip(size, position, together, strict=True)
    )
    if len(rows) == len(columns) == _PARTS:
        return ()
    return tuple(_PARTS * row + column for row in rows for column in columns)
