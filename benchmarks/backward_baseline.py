"""A model of nki-library's conv3d_bwd on true 3-D layers: the least its strategies do, in numbers.

Its planner (nki-library 2.33, design notes of `conv3d_bwd`) has tuned ways for 2-D layers; those
with taps along the depth get one pass for each gradient:

- dx by COL2IM: for each tap, tile of input channels and piece of up to a PSUM bank of positions,
  dy is multiplied by the tap's filters, and the Vector engine adds the bank to dx in SBUF;
- dw by GATHER_TRANSPOSE: for each tap, tiles of x are brought to [positions, channels] by the
  Tensor engine, or by DMA where columns are not strided, and multiplied by tiles of dy.

Every engine is taken to be busy without a break, beside all others, loads and stores of dx and
sums of dw to cost nothing, and the faster way to transpose to be the one chosen. On two cores it
splits the batch: that is taken to lose nothing either, although a batch of one leaves a core idle.
So the times are floors of that design.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from nkisim.machine import TRN2, Machine, Timing
from trnconv.geometry import ConvShape

_ITEM_BYTES = 2  # bf16


@dataclass(frozen=True)
class BackwardFloor:
    """Least times of both gradients on one core, in ns."""

    dx_ns: float
    dw_ns: float

    def on_cores(self, cores: int) -> float:
        """Both, one after the other, with the work shared evenly."""
        return (self.dx_ns + self.dw_ns) / cores


def backward_floor(shape: ConvShape, machine: Machine = TRN2) -> BackwardFloor:
    """Of a convolution without groups, in bf16."""
    assert shape.groups == 1, "conv3d_bwd has no groups"
    return BackwardFloor(_col2im_ns(shape, machine), _gather_transpose_ns(shape, machine))


def _col2im_ns(shape: ConvShape, machine: Machine) -> float:
    """Matmuls of K = output channels, N = positions; every bank is added to SBUF."""
    timing, lines, bank = machine.timing, machine.partitions, machine.psum_bank_fp32_elems
    positions = shape.batch * shape.positions()
    pieces = positions / bank
    each = shape.taps() * ceil(shape.c_in / lines)
    tensor = each * ceil(shape.c_out / lines) * pieces * (bank + timing.pe_gap_cycles)
    vector = each * pieces * (bank + timing.vector_startup_cycles)
    return max(tensor / timing.pe_columns_per_ns, vector / timing.vector_ghz)


def _gather_transpose_ns(shape: ConvShape, machine: Machine) -> float:
    """Matmuls of K = positions, M = input channels, N = output channels, and transposes."""
    timing, lines, bank = machine.timing, machine.partitions, machine.psum_bank_fp32_elems
    tiles = shape.batch * shape.positions() / lines
    ins, outs = ceil(shape.c_in / lines), ceil(shape.c_out / bank)
    columns = max(shape.c_out / outs, timing.pe_min_cycles) + timing.pe_gap_cycles
    sums = tiles * shape.taps() * ins * outs * columns / timing.pe_columns_per_ns
    ways = [sums + tiles * _by_tensor_ns(shape, timing, lines)]
    if shape.stride[2] == 1:
        moved = tiles * lines * _ITEM_BYTES * (shape.taps() * shape.c_in + shape.c_out)
        rate = timing.dma_engines * timing.dma_bytes_per_ns * timing.dma_transpose_rate
        ways.append(max(sums, moved / rate))
    return min(ways)


def _by_tensor_ns(shape: ConvShape, timing: Timing, lines: int) -> float:
    """x of every tap and dy once, [channels, positions] to [positions, channels]."""
    cycles = 0.0
    for channels, times in ((shape.c_in, shape.taps()), (shape.c_out, 1)):
        parts = ceil(channels / lines)
        stream = max(channels / parts, timing.pe_min_cycles)
        cycles += times * parts * (stream + timing.pe_gap_cycles)
    return cycles / timing.pe_columns_per_ns
