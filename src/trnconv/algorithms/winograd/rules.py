"""Whether a Winograd plan can run, and may: one sentence for each rule or promise it breaks."""

from __future__ import annotations

from trnconv.algorithms.algorithm import switched_off
from trnconv.algorithms.winograd.blocks import blocks_of_span, column_kinds, frame_starts, row_kinds
from trnconv.algorithms.winograd.channels import in_channels, may_stack, out_channels
from trnconv.algorithms.winograd.error import expected_ratio, range_limit
from trnconv.algorithms.winograd.pipeline_schedule import broken_schedule
from trnconv.algorithms.winograd.plan import DEPTH, HEIGHT, STACKED_COLUMNS, V_BYTES, WinogradPlan
from trnconv.algorithms.winograd.sbuf import largest_inputs, sbuf_end
from trnconv.algorithms.winograd.transforms import OUTER, TAPS, Transform
from trnconv.geometry import ONCE, REPLICATE, ZEROS, ConvShape
from trnconv.problem.epilogue import AFTER, BEFORE, IDENTITY, ITEM_BYTES, Epilogue
from trnconv.problem.limits import MAX_OFFSET
from trnconv.problem.policy import DIRECT, HALF, LIMITS, Policy

_AXIS_WORDS = {DEPTH: "frames", HEIGHT: "rows"}


def unsupported_shape(shape: ConvShape, axis: int) -> list[str]:
    """Why no Winograd plan along an axis computes a convolution; empty if one may."""
    broken = []
    if axis not in _AXIS_WORDS:
        return [f"Winograd along axis {axis}: it runs along frames (0) or rows (1)"]
    if shape.kernel[axis] != TAPS:
        broken.append(
            f"{shape.kernel[axis]} taps along {_AXIS_WORDS[axis]}: the transforms are for {TAPS}"
        )
    if shape.stride != (1, 1, 1) or shape.dilation != (1, 1, 1):
        broken.append("a stride or dilation: tiles of outputs have to share their inputs")
    if shape.groups > 1:
        broken.append(f"{shape.groups} groups: the kernel has one")
    if shape.upsample != ONCE:
        broken.append("an input that is read upsampled: tiles need every position by itself")
    pads = zip(shape.modes, shape.pad_before, shape.pad_after, strict=True)
    modes = sorted({mode for mode, *sides in pads if any(sides)} - {ZEROS, REPLICATE})
    if modes:
        broken.append(f"{' and '.join(modes)} padding: the kernel has zeros and replicate")
    sides = zip(shape.pad_before, shape.pad_after, shape.kernel, strict=True)
    if any(max(before, after) >= taps for before, after, taps in sides):
        broken.append("padding as wide as the kernel: some outputs would have no input")
    return broken


def unsupported_policy(transform: Transform, dtype: str, policy: Policy) -> str:
    """Why a policy does not allow a transform; empty if it does."""
    if policy.accuracy == DIRECT:
        return f"{transform.name}: the policy is direct"
    ratio = expected_ratio(transform, dtype)
    if policy.accuracy == HALF and transform.outputs > 2:
        return f"{transform.name}: half is for F(2,3)"
    if ratio > LIMITS[policy.accuracy]:
        return (
            f"{transform.name}: expected error {ratio:.3f}x that of a direct {dtype} convolution,"
            f" {policy.accuracy} allows {LIMITS[policy.accuracy]}x"
        )
    limit = range_limit(transform)
    if policy.x_max is not None and policy.x_max > limit:
        return f"{transform.name}: |x| up to {policy.x_max:.4g}, fp16 transforms take {limit:.0f}"
    return ""


def violations(plan: WinogradPlan) -> list[str]:
    """Everything that keeps the plan from running; empty if it is legal."""
    broken = unsupported_shape(plan.shape, plan.axis)
    if broken:
        return broken
    broken = _sizes(plan)
    if broken:
        return broken
    return [
        *switched_off(plan),
        *_pairs(plan),
        *_iterations(plan),
        *broken_schedule(plan),
        *_norm(plan),
        *_gpsimd(plan),
        *_stacks(plan),
        *_x_tiles(plan),
        *_memory(plan),
    ]


def _norm(plan: WinogradPlan) -> list[str]:
    """Outputs that are normed: all channels of a position have to be there at once."""
    norm = plan.epilogue.norm
    if norm is None:
        return []
    broken = []
    if not plan.streamed and plan.group < len(out_channels(plan)):
        broken.append("a norm of outputs whose channels are computed in several sweeps")
    if plan.shares_sums and any(span.stored != span.outs for span, _ in row_kinds(plan)):
        broken.append(f"a norm of units of {plan.unit_frames} frames whose last tile is cut")
    if max(plan.item_bytes, plan.out_bytes) > V_BYTES:
        broken.append("a norm of outputs of four bytes: the kernel squares types of 16 bits")
    if norm.first and (plan.shape.batch > 1 or len(frame_starts(plan)) > 1):
        broken.append(
            f"{norm.first} frames of a norm in a tensor of their own: blocks have to have all"
            " frames of one image"
        )
    if not 0 <= norm.first < plan.shape.out_size(DEPTH):
        broken.append(f"{norm.first} frames apart: there are {plan.shape.out_size(DEPTH)}")
    return broken


def _pairs(plan: WinogradPlan) -> list[str]:
    """Frames that are paired: along another axis than tiles, with sums that a bank holds."""
    if not plan.frame_pairs:
        return ["pairs of frames made by the GpSimd engine: there are none"] * plan.gpsimd_pairs
    if not plan.by_rows:
        return ["pairs of frames of tiles of frames: pair those of tiles of rows"]
    broken = unsupported_shape(plan.shape, DEPTH)
    rows = max(span.outs for span, _ in row_kinds(plan)) // plan.m
    columns = max(span.outs for span, _ in column_kinds(plan))
    most = plan.machine.psum_bank_fp32_elems
    if any(rows * -(-columns // tile.stack) > most for tile in out_channels(plan)):
        broken.append(f"pairs of frames of {rows} x {columns} tiles: a bank has {most} sums")
    if plan.item_bytes != V_BYTES:
        broken.append(f"pairs of frames of {plan.dtype}: the kernel adds types of 16 bits")
    return broken


def may_add_first(epilogue: Epilogue) -> bool:
    """Whether a residual can be added before sums are complete: nothing is done to them first."""
    return epilogue.residual == BEFORE or (
        epilogue.residual == AFTER and epilogue.activation == IDENTITY
    )


def _gpsimd(plan: WinogradPlan) -> list[str]:
    """Work that the GpSimd engine can have."""
    broken = []
    if plan.gpsimd_steps not in (0, *plan.transforms.apart):
        broken.append(
            f"{plan.gpsimd_steps} steps of {plan.transform} on the GpSimd engine: the first"
            f" {' or '.join(map(str, plan.transforms.apart))} need no other engine's"
        )
    if plan.gpsimd_residual and not may_add_first(plan.epilogue):
        broken.append("a residual added by the GpSimd engine: there is none, or it comes last")
    if plan.shares_residual and not plan.gpsimd_residual:
        broken.append("a residual shared with the GpSimd engine: it adds none")
    return broken


def _x_tiles(plan: WinogradPlan) -> list[str]:
    """Inputs that are loaded tile by tile of channels, each in the place of an earlier one."""
    tiles = len(in_channels(plan))
    broken = []
    if plan.x_tiles and (not 1 < plan.x_tiles < tiles or tiles % plan.x_tiles):
        broken.append(
            f"inputs of {plan.x_tiles} of {tiles} tiles of channels: use a divisor, and two at"
            " least: one is transformed while another is loaded"
        )
    if plan.x_tiles and not plan.streamed:
        broken.append(
            "inputs loaded tile by tile of channels: that is for weights that stream, too"
        )
    return broken


def _iterations(plan: WinogradPlan) -> list[str]:
    """A loop over spans takes whole ones."""
    of_span = blocks_of_span(plan) if plan.spans else 0
    if plan.spans and not (plan.looped and plan.body_blocks == plan.spans * of_span):
        return [f"iterations of {plan.spans} spans: of {of_span} blocks each"]
    return []


def _stacks(plan: WinogradPlan) -> list[str]:
    """Columns that share a matmul: as many as the array has room for."""
    stack, lines = plan.stacked_columns, plan.machine.partitions
    if stack not in STACKED_COLUMNS:
        return [f"{stack} columns that share a matmul: {' or '.join(map(str, STACKED_COLUMNS))}"]
    if stack == STACKED_COLUMNS[0] or may_stack(plan, stack):
        return []
    left = f"{plan.shape.c_out} output channels leave {plan.shape.c_out % lines}"
    left += f", it takes 1 to {lines // stack}"
    return [f"{stack} columns that share a matmul: {left}"]


def _units(plan: WinogradPlan) -> list[str]:
    """Units have to fill blocks, and blocks all frames."""
    frames = plan.unit_frames
    if frames < 1 or (frames > 1 and (not plan.by_rows or plan.frame_pairs)):
        return [f"units of {frames} frames: only tiles of rows have several, of frames by one"]
    units = plan.shape.out_size(DEPTH) if plan.by_rows else plan.tiles
    if plan.frame_pairs:
        if plan.units % plan.stages:
            return [f"blocks of {plan.units} units: pairs of frames have {plan.stages}"]
        units = -(-units // OUTER.outputs) * plan.stages
    if units % (plan.units * frames):
        each = f" of {frames} frames" if frames > 1 else ""
        return [f"blocks of {plan.units} units{each}: {units} are not a multiple"]
    return []


def _sizes(plan: WinogradPlan) -> list[str]:
    broken = _units(plan)
    shape = plan.shape
    if plan.by_rows and plan.rows % plan.m:
        broken.append(f"blocks of {plan.rows} rows: tiles have {plan.m}")
    if min(plan.rows, plan.columns, plan.body_blocks, plan.group) < 1:
        broken.append("a block, body or group of nothing")
    if plan.late_pauses < 0:
        broken.append(f"{plan.late_pauses} pauses of a unit before its first step: at least 0")
    if plan.dtype not in ITEM_BYTES:
        broken.append(f"dtype {plan.dtype}: one of {', '.join(ITEM_BYTES)}")
    if plan.prologue.scaled and plan.item_bytes != V_BYTES:
        broken.append(f"scaled inputs of {plan.dtype}: the kernel scales types of 16 bits")
    if plan.midgroup and not plan.machine.accepts.growing_banks:
        broken.append(f"sums read while they grow: {plan.machine_name} has that switched off")
    if not plan.midgroup and plan.m > 2:
        broken.append(f"{plan.transform} without reading sums that still grow: only F(2,3) can")
    if sum(plan.frames) != shape.size[DEPTH]:
        broken.append(f"pieces of {plan.frames} frames: x has {shape.size[DEPTH]}")
    x = shape.batch * shape.c_in * shape.size[0] * shape.size[1] * shape.size[2]
    if max(x, shape.batch * shape.c_out * shape.positions()) > MAX_OFFSET:
        broken.append("a tensor of more than 2**31 - 1 elements: split the problem")
    return broken


def _memory(plan: WinogradPlan) -> list[str]:
    machine = plan.machine
    room, end = machine.sbuf_usable_bytes_per_partition, sbuf_end(plan)
    broken = []
    if end > room:
        broken.append(f"{end} bytes a partition: SBUF of {plan.machine_name} has {room}")
    x_elems, v_elems = largest_inputs(plan)
    if max(x_elems, v_elems) > machine.sbuf_operand_max_elems:
        broken.append(
            f"an input tile of {x_elems} elements: an operand has at most"
            f" {machine.sbuf_operand_max_elems}"
        )
    if not in_channels(plan):
        broken.append("no input channels")
    return broken
