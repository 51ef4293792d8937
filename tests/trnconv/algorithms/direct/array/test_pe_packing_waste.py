"""How much of what streams through the array is useful, counted in traces; nothing is timed."""

from dataclasses import replace
from math import prod

import pytest

from direct_plans import direct_plan
from nkisim.machine import TRN2
from trnconv.geometry import conv_shape, input_gradient_shape, transposed_shape
from trnconv.problem.epilogue import epilogue_of
from trnconv.runtime import trace_plan

ARRAY = TRN2.partitions


def taken(shape, **changes):
    return replace(direct_plan(shape), **changes)


def trace_of(shape, **changes):
    return trace_plan(taken(shape, **changes)).trace


def matmul_columns(items):
    """Columns of all matmuls, those of zeros too; loop bodies as often as they run."""
    return sum(
        item.trips * matmul_columns(item.body)
        if hasattr(item, "body")
        else item.writes[0].layout.elems
        for item in items
        if hasattr(item, "body") or item.op == "nc_matmul"
    )


def pairs(shape, axis):
    """(output, tap) pairs of an axis that meet the input: what phases leave to compute."""
    return sum(
        0 <= at < shape.size[axis] * shape.stride[axis] and at % shape.stride[axis] == 0
        for out in range(shape.out[axis])
        for tap in range(shape.kernel[axis])
        for at in [out + shape.pad_before[axis] - tap * shape.dilation[axis]]
    )


def useful_columns(shape):
    """One for each output and tap that meet, and each tile of channels in and out."""
    tiles = -(-shape.c_in // ARRAY) * -(-shape.c_out // ARRAY)
    return shape.batch * tiles * prod(pairs(shape, axis) for axis in range(3))


UPSAMPLED = {
    "4x4, 128": transposed_shape((1, 128, 24, 40), (128, 128, 4, 4), stride=2, padding=1),
    "2x2, 256": transposed_shape((1, 256, 20, 32), (256, 128, 2, 2), stride=2),
    "3x3, 128": transposed_shape(
        (1, 128, 24, 32), (128, 256, 3, 3), stride=2, padding=1, output_padding=1
    ),
    "gradient of 3x3x3": input_gradient_shape(
        conv_shape((1, 128, 5, 24, 48), (128, 128, 3, 3, 3), stride=(1, 2, 2), padding=1)
    ),
}


@pytest.mark.parametrize("shape", UPSAMPLED.values(), ids=list(UPSAMPLED))
def test_a_transposed_convolution_multiplies_few_zeros(shape):
    """Zeros put between the inputs would make it four times as many columns."""
    found, useful = matmul_columns(trace_of(shape).items), useful_columns(shape)
    assert useful <= found <= 1.15 * useful


def test_useful_columns_by_hand():
    """Eight inputs, four taps, stride 2, one cropped at each end: 16 outputs, two taps each."""
    shape = transposed_shape((1, 8, 8), (8, 8, 4), stride=2, padding=1)
    assert shape.out == (1, 1, 16)
    assert pairs(shape, 2) == 2 * 16 - 2  # the first and the last find one of theirs
    assert useful_columns(shape) == 30


GROUPED = {
    "32 groups of 4": conv_shape((1, 128, 32, 48), (128, 4, 3, 3), padding=1, groups=32),
    "32 groups of 8": conv_shape((1, 256, 32, 48), (256, 8, 3, 3), padding=1, groups=32),
    "64 groups of 2": conv_shape((1, 128, 32, 48), (128, 2, 3, 3), padding=1, groups=64),
    "64 groups of 8": conv_shape((1, 512, 16, 32), (512, 8, 3, 3), padding=1, groups=64),
}


@pytest.mark.parametrize("shape", GROUPED.values(), ids=list(GROUPED))
def test_groups_share_the_array(shape):
    """Packed: as many groups side by side as it has lines, each tap once; padding counted."""
    in_block = ARRAY // max(shape.c_in // shape.groups, shape.c_out // shape.groups)
    packed = -(-shape.groups // in_block) * shape.taps() * shape.batch * shape.positions()
    assert matmul_columns(trace_of(shape).items) <= 1.25 * packed


def hbm_bytes(trace):
    """Bytes that DMAs move from or to HBM; there is no loop."""
    moved = 0
    for packing in trace.instructions():
        if packing.op == "dma_copy":
            tensors = [
                access for access in (*packing.writes, *packing.reads) if not access.layout.on_chip
            ]
            moved += sum(access.bytes_total for access in tensors)
    return moved


PLAIN = conv_shape((1, 96, 3, 24, 64), (96, 96, 3, 3, 3), padding=(0, 1, 1))


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "mish", "leaky_relu:0.1", "elu"])
def test_an_activation_moves_nothing(activation):
    epilogue = epilogue_of(activation, "none", "")
    assert hbm_bytes(trace_of(PLAIN, epilogue=epilogue)) == hbm_bytes(trace_of(PLAIN))


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_residual_moves_itself_and_nothing_else(place):
    plain = trace_of(PLAIN)
    outputs = PLAIN.batch * PLAIN.c_out * PLAIN.positions()
    more = hbm_bytes(trace_of(PLAIN, epilogue=epilogue_of("silu", place, ""))) - hbm_bytes(plain)
    assert more == 2 * outputs


def test_a_wider_output_moves_its_own_bytes_more():
    outputs = PLAIN.batch * PLAIN.c_out * PLAIN.positions()
    wide = trace_of(PLAIN, epilogue=epilogue_of("identity", "none", "float32"))
    assert hbm_bytes(wide) - hbm_bytes(trace_of(PLAIN)) == 2 * outputs


def test_ends_add_no_matmul():
    epilogue = epilogue_of("gelu", "after", "float32")
    assert matmul_columns(trace_of(PLAIN, epilogue=epilogue).items) == matmul_columns(
        trace_of(PLAIN).items
    )


@pytest.mark.xfail(reason="only numbers of groups that divide all of them share the array")
def test_a_prime_number_of_groups_shares_the_array_too():
    shape = conv_shape((1, 131, 3, 4), (131, 1, 3, 3), padding=1, groups=131)
    packed = 2 * shape.taps() * shape.positions()  # 128 groups and the other three
    assert matmul_columns(trace_of(shape).items) <= 1.25 * packed
