"""Whether a depthwise plan can run, in words: one sentence for each rule that is broken."""

from __future__ import annotations

from math import prod

from nkisim.machine import V3
from trnconv.algorithms.depthwise.plan import (
    WIDE_BYTES,
    DepthwisePlan,
    corners,
    least_outs,
    least_windows,
)
from trnconv.geometry import NO_MODES, ONCE, ConvShape
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.problem.limits import MAX_OFFSET


def unsupported_shape(shape: ConvShape, dtype: str) -> list[str]:
    """Why these engines do not compute a convolution, whatever the plan; empty if they do."""
    broken = []
    if shape.groups != shape.c_in:
        broken.append(
            f"{shape.groups} groups of {shape.c_in} channels: a depthwise convolution has as many"
            " groups as channels"
        )
    if shape.modes != NO_MODES:
        broken.append(f"padding modes {shape.modes}: these engines pad with zeros only")
    if shape.upsample != ONCE:
        broken.append(f"upsample {shape.upsample}: these engines read the input as it lies")
    if dtype not in ITEM_BYTES:
        broken.append(f"dtype {dtype}: one of {', '.join(ITEM_BYTES)}")
    elems = max(
        shape.batch * shape.c_in * prod(shape.size), shape.batch * shape.c_out * shape.positions()
    )
    if elems > MAX_OFFSET:
        broken.append(f"a tensor of {elems} elements: offsets have 32 bits; split the batch")
    return broken


def violations(plan: DepthwisePlan) -> list[str]:
    """Everything that keeps the plan from running; empty if it is legal."""
    return unsupported_shape(plan.shape, plan.dtype) or [
        *_sizes(plan),
        *_memory(plan),
        *_patterns(plan),
    ]


def _sizes(plan: DepthwisePlan) -> list[str]:
    broken = []
    for name, inner, outer in (
        ("block", plan.block_outs, plan.outputs.sizes),
        ("piece", plan.piece, plan.block_outs),
    ):
        if any(not 1 <= a <= b for a, b in zip(inner, outer, strict=True)):
            broken.append(f"a {name} of {inner} outputs: at least 1 and at most {outer}")
    if plan.vector_pieces < 1 or plan.gpsimd_pieces < 0:
        broken.append(
            f"groups of {plan.vector_pieces} Vector and {plan.gpsimd_pieces} GpSimd pieces: at"
            " least 1 and 0"
        )
    if plan.gpsimd_pieces and plan.machine.generation < V3:
        broken.append(f"sums on GpSimd: no device of {plan.machine_name} was seen to compile them")
    if plan.gpsimd_pieces and not plan.machine.accepts.gpsimd_sums:
        broken.append(f"sums on GpSimd: {plan.machine_name} has them switched off")
    return broken


def _memory(plan: DepthwisePlan) -> list[str]:
    machine, broken = plan.machine, []
    sums = 2 * plan.vector_pieces * plan.bank_elems() * WIDE_BYTES
    if sums > machine.psum_bytes_per_partition:
        broken.append(
            f"sums of {sums} bytes a partition: PSUM of {machine.name} has"
            f" {machine.psum_bytes_per_partition}"
        )
    if plan.sbuf_bytes() > machine.sbuf_usable_bytes_per_partition:
        broken.append(
            f"{plan.sbuf_bytes()} bytes a partition: SBUF of {machine.name} has"
            f" {machine.sbuf_usable_bytes_per_partition}"
        )
    for name, count, least in (
        ("windows", plan.windows, least_windows(plan)),
        ("outputs", plan.outs, least_outs(plan)),
    ):
        if count < least:
            broken.append(f"{count} tiles for {name}: groups of {plan.group} pieces need {least}")
    return broken


def _patterns(plan: DepthwisePlan) -> list[str]:
    """Windows and views of them fit the fields of an access pattern."""
    machine, broken = plan.machine, []
    elems = plan.window_elems()
    if elems > machine.sbuf_operand_max_elems:
        broken.append(
            f"a window of {elems} elements: an operand has at most {machine.sbuf_operand_max_elems}"
        )
    for block in corners(plan):
        _, rows, columns = plan.window(block).sizes
        steps = (rows * columns, columns, 1)
        apart = [plan.shape.stride[axis] * steps[axis] for axis in range(3) if plan.piece[axis] > 1]
        if max(apart, default=0) > machine.access_stride_max:
            broken.append(
                f"outputs {max(apart)} elements apart in a window: a stride has at most"
                f" {machine.access_stride_max}; use smaller blocks"
            )
    return broken
