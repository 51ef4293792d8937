"""The floor of conv3d_bwd, by hand."""

import pytest

from benchmarks.backward_baseline import backward_floor
from nkisim.machine import TRN2
from trnconv.geometry import conv_shape

TIMING = TRN2.timing


def test_a_layer_by_hand():
    """512 positions of 128 channels to 128: a bank a tap for dx, four tiles a tap for dw."""
    shape = conv_shape((1, 128, 1, 16, 32), (128, 128, 3, 3, 3), padding=1)
    floor = backward_floor(shape)
    added = 27 * (512 + TIMING.vector_startup_cycles) / TIMING.vector_ghz
    assert floor.dx_ns == pytest.approx(added)  # the Vector engine is slower than the matmuls
    sums = 4 * 27 * (128 + TIMING.pe_gap_cycles) / TIMING.pe_ghz
    moved = 4 * 128 * 2 * (27 + 1) * 128
    rate = TIMING.dma_engines * TIMING.dma_bytes_per_ns * TIMING.dma_transpose_rate
    assert floor.dw_ns == pytest.approx(max(sums, moved / rate))
    assert floor.on_cores(2) == pytest.approx((floor.dx_ns + floor.dw_ns) / 2)


def test_strided_columns_are_transposed_by_the_tensor_engine():
    shape = conv_shape((1, 128, 1, 16, 64), (128, 128, 1, 1, 1), stride=(1, 1, 2))
    cycles = 128 + TIMING.pe_gap_cycles  # of a matmul, and of a transpose of x, and of dy
    assert backward_floor(shape).dw_ns == pytest.approx(4 * 3 * cycles / TIMING.pe_ghz)
