"""Whether a plan by differences can run, and may: one sentence for each rule it breaks."""

from __future__ import annotations

from math import prod

from trnconv.algorithms.algorithm import switched_off
from trnconv.algorithms.winograd_upsample.blocks import frame_reads, iterations_of
from trnconv.algorithms.winograd_upsample.error import expected_ratio, range_limit
from trnconv.algorithms.winograd_upsample.plan import DEPTH, HEIGHT, V_BYTES, WIDTH, UpsamplePlan
from trnconv.algorithms.winograd_upsample.sbuf import lay_out, v_elems, x_elems
from trnconv.algorithms.winograd_upsample.terms import TAPS, TIMES
from trnconv.geometry import REPLICATE, ZEROS, ConvShape
from trnconv.problem.epilogue import IDENTITY, ITEM_BYTES, NO_RESIDUAL, Epilogue
from trnconv.problem.limits import MAX_OFFSET
from trnconv.problem.policy import LIMITS, Policy

_NAMES = {HEIGHT: "rows", WIDTH: "columns"}


def unsupported_shape(shape: ConvShape) -> list[str]:
    """Why a convolution has no such algorithm, whatever the plan; empty if it has."""
    broken = []
    for axis, name in _NAMES.items():
        if (shape.upsample[axis], shape.kernel[axis]) != (TIMES, TAPS):
            broken.append(
                f"{shape.kernel[axis]} taps along {name} read {shape.upsample[axis]} times: it"
                f" needs {TAPS} taps and {TIMES} times"
            )
        if shape.skip[axis] or not _is_padded(shape, axis):
            broken.append(f"padding along {name}: 1 on both sides, or 0 where rows are cut")
        if shape.modes[axis] not in (ZEROS, REPLICATE):
            broken.append(f"{shape.modes[axis]} padding: it has zeros and replicate")
    if shape.stride != (1, 1, 1) or shape.dilation != (1, 1, 1):
        broken.append("a stride or dilation: neighbouring outputs have to share their inputs")
    if shape.groups > 1:
        broken.append(f"{shape.groups} groups: the kernel has one")
    if shape.modes[DEPTH] not in (ZEROS, REPLICATE):
        broken.append(f"{shape.modes[DEPTH]} padding of frames: it has zeros and replicate")
    elif not all(frame_reads(shape)):
        broken.append("padding as long as the kernel: some frames would have no input")
    return broken


def _is_padded(shape: ConvShape, axis: int) -> bool:
    sides = (shape.pad_before[axis], shape.pad_after[axis])
    return sides == (1, 1) or (axis == HEIGHT and max(sides) <= 1)


def unsupported_epilogue(epilogue: Epilogue, shape: ConvShape) -> list[str]:
    """Why outputs cannot end like this."""
    broken = []
    if epilogue.activation != IDENTITY:
        broken.append(f"{epilogue.activation} in the epilogue: apply it afterwards")
    if epilogue.residual == NO_RESIDUAL:
        return broken
    if (shape.pad_before[HEIGHT], shape.pad_after[HEIGHT]) != (1, 1):
        broken.append("a residual of rows that are cut: rows of pairs have to be whole")
    coarse = epilogue.coarse
    if coarse is not None:
        if (coarse.rows, coarse.columns) != (TIMES, TIMES) or not coarse.is_readable():
            broken.append(f"a residual of cells {coarse.factors()}: cells have 2 rows and columns")
        if shape.batch > 1:
            broken.append(f"a coarse residual of {shape.batch} images: one at a time")
    return broken


def unsupported_policy(dtype: str, policy: Policy) -> str:
    """Why a policy does not allow it; empty if it does."""
    if ITEM_BYTES[dtype] > V_BYTES:
        return f"differences of {dtype}: the kernel makes them in fp16"
    ratio = expected_ratio(dtype)
    if ratio > LIMITS[policy.accuracy]:
        return (
            f"differences: expected error {ratio:.3f}x that of a direct {dtype} convolution,"
            f" {policy.accuracy} allows {LIMITS[policy.accuracy]}x"
        )
    limit = range_limit()
    if policy.x_max is not None and policy.x_max > limit:
        return f"differences: |x| up to {policy.x_max:.4g}, in fp16 they take {limit:.0f}"
    return ""


def violations(plan: UpsamplePlan) -> list[str]:
    """Everything that keeps the plan from running; empty if it is legal."""
    broken = [*unsupported_shape(plan.shape), *unsupported_epilogue(plan.epilogue, plan.shape)]
    if broken:
        return broken
    shape = plan.shape
    if not (1 <= plan.rows <= shape.size[HEIGHT] and 1 <= plan.columns <= shape.size[WIDTH]):
        return [f"blocks of {plan.rows} x {plan.columns} of {shape.size[1:]} input positions"]
    first = plan.row_span[0] + 1 - shape.pad_before[HEIGHT]
    if plan.rows_of is not None and plan.row_span[0] and first % TIMES:
        broken.append("the rows of a core begin with a pair of outputs")
    if plan.iteration_spans and not iterations_of(plan):
        broken.append(
            f"{plan.iteration_spans} spans an iteration: a hardware loop has at least two of them"
        )
    return [*broken, *switched_off(plan), *_memory(plan)]


def _memory(plan: UpsamplePlan) -> list[str]:
    machine, broken, shape = plan.machine, [], plan.shape
    end = lay_out(plan).end
    if end > machine.sbuf_usable_bytes_per_partition:
        broken.append(
            f"{end} bytes a partition: SBUF of {machine.name} has"
            f" {machine.sbuf_usable_bytes_per_partition}"
        )
    elems = max(x_elems(plan.rows, plan.columns), v_elems(plan.rows, plan.columns))
    if elems > machine.sbuf_operand_max_elems:
        broken.append(
            f"a tile of {elems} elements: an operand has at most {machine.sbuf_operand_max_elems}"
        )
    every = max(
        shape.batch * shape.c_in * prod(shape.size), shape.batch * shape.c_out * shape.positions()
    )
    if every > MAX_OFFSET:
        broken.append(f"a tensor of {every} elements: offsets have 32 bits; split the batch")
    return broken
