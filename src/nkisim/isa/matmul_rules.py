"""What the Tensor engine demands of a matmul: sizes, types, PSUM banks, tiles of the PE array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.device_rules.instruction_rules import STATIONARY_DIMS
from nkisim.errors import UnsupportedError
from nkisim.isa.element_types import INTEGERS
from nkisim.machine import V3, V4
from nkisim.memory.layout import MemoryRegion
from nkisim.tensors.tensor import FreeIndex

if TYPE_CHECKING:
    from nkisim.isa.call import Call
    from nkisim.tensors.tensor import NkiTensor

FP8 = frozenset({"float8_e4m3", "float8_e5m2", "float8_e4m3fn"})
_WIDE = frozenset({"float32", "tfloat32"})
INPUTS = FP8 | _WIDE | {"bfloat16", "float16"}


def input_types(call: Call) -> None:
    """Which types of stationary and moving go together."""
    stationary, moving = call["stationary"].dtype, call["moving"].dtype
    if (stationary in _WIDE) != (moving in _WIDE):
        call.refuse(
            f"stationary {stationary} with moving {moving}",
            "float32 and tfloat32 pair only with each other",
            "cast one of the operands",
        )
    if "float8_e4m3fn" in (stationary, moving):
        if call.machine.generation < V4:
            call.refuse(
                f"float8_e4m3fn on {call.machine.name}",
                "float8_e4m3fn exists from NeuronCore-v4 on",
                "use float8_e4m3",
            )
        if "float8_e4m3" in (stationary, moving):
            call.refuse("float8_e4m3fn with float8_e4m3", "one of the two", "cast one")


def sum_type(call: Call) -> None:
    """PSUM holds fp32 sums, from NeuronCore-v4 on also bf16 ones; a transpose keeps its type."""
    dst = call["dst"].dtype
    if call.facts.get("transpose"):
        wanted = {call["stationary"].dtype}
    elif call.machine.generation >= V4:
        wanted = {"float32", "bfloat16"}
    else:
        wanted = {"float32"}
    if dst not in wanted:
        call.refuse(
            f"dst is {dst}",
            f"{' or '.join(sorted(wanted))} on {call.machine.name}",
            "accumulate in float32 and cast when evicting",
        )


def columns(call: Call) -> int:
    """Columns of the PE array that the stationary operand takes."""
    return call["stationary"].layout.elems // (2 if call.facts.get("double_row") else 1)


def sizes(call: Call) -> None:
    """K, M and N of the three operands."""
    stationary, moving, dst = call["stationary"], call["moving"], call["dst"]
    streamed = moving.layout.elems // (2 if call.facts.get("double_row") else 1)
    if stationary.shape[0] != moving.shape[0]:
        call.refuse(
            f"stationary has {stationary.shape[0]} partitions, moving {moving.shape[0]}",
            "both contract over the same partitions (K)",
            "slice both to K partitions",
        )
    most = call.machine.stationary_max_elems
    if columns(call) > most:
        call.refuse(
            f"stationary has {columns(call)} elements per partition",
            f"{most} elements (columns of the PE array)",
            "tile the output channels",
        )
    _moving_size(call, streamed)
    if dst.shape[0] != columns(call) or dst.layout.elems != streamed:
        call.refuse(
            f"dst is {dst.shape[0]} x {dst.layout.elems}",
            f"{columns(call)} partitions x {streamed} elements for these operands",
            "shape dst as [stationary free, moving free]",
        )


def _moving_size(call: Call, streamed: int) -> None:
    machine = call.machine
    narrow = call["dst"].dtype == "bfloat16" and not call.facts.get("transpose")
    most = machine.matmul_moving_max_elems_bf16 if narrow else machine.matmul_moving_max_elems_fp32
    if streamed > most:
        call.refuse(
            f"moving has {streamed} elements per partition",
            f"{most} elements on {machine.name} for a {call['dst'].dtype} dst",
            "tile the moving operand",
        )


def one_bank(call: Call) -> None:
    """Before NeuronCore-v4 a dst stays inside one PSUM bank."""
    dst = call["dst"]
    if call.machine.generation >= V4 or dst.buffer is not MemoryRegion.psum:
        return
    bank = call.machine.psum_bank_bytes_per_partition
    at, layout = dst.offset % dst.pitch_elems, dst.layout
    first = (at + layout.low) * layout.itemsize_bytes
    last = (at + layout.high + 1) * layout.itemsize_bytes - 1
    if first // bank != last // bank:
        call.refuse(
            f"dst covers bytes {first}..{last} of its partition",
            f"one PSUM bank of {bank} bytes per partition on {call.machine.name}",
            "give every bank its own matmul",
        )


def tiling(call: Call) -> None:
    """tile_size and tile_position name a tile of the PE array that holds the operands."""
    size, position = call.facts["tile_size"], call.facts["tile_position"]
    if not size and not position:
        return
    asked = f"tile_size={size}, tile_position={position}"
    if len(size) != 2 or len(position) != 2:
        call.refuse(asked, "both as (rows, columns), or neither", "pass both")
    machine = call.machine
    parts = (machine.partitions // count for count in (4, 2, 1))
    legal = tuple(part for part in parts if part >= machine.matmul_tile_min_rows)
    for extent, start, what in zip(size, position, ("rows", "columns"), strict=True):
        if extent not in legal or start % extent or not 0 <= start < machine.partitions:
            call.refuse(
                asked,
                f"{what} of {legal} on {machine.name}, starting at a multiple of their size",
                "round the tile",
            )
    _tile_holds_operands(call, size, position)


def _tile_holds_operands(call: Call, size: tuple[int, int], position: tuple[int, int]) -> None:
    stationary = call["stationary"]
    if stationary.shape[0] > size[0] or columns(call) > size[1]:
        call.refuse(
            f"stationary of {stationary.shape[0]} x {columns(call)} elements in a tile of {size}",
            "the tile has as many rows as partitions and as many columns as elements",
            "choose a larger tile",
        )
    for name, start in (("stationary", position[0]), ("moving", position[0]), ("dst", position[1])):
        if call[name].start_partition != start:
            call.refuse(
                f"{name} starts at partition {call[name].start_partition}",
                f"tile_position={position} puts it at partition {start}",
                "place the tile where the operand lies",
            )


def rows_only(call: Call) -> None:
    """MX matmuls tile the rows of the PE array, not its columns."""
    size, position = call.facts["tile_size"], call.facts["tile_position"]
    if size and (size[1] != call.machine.partitions or position[1] != 0):
        call.refuse(
            f"tile_size={size}, tile_position={position}",
            f"row tiles: {call.machine.partitions} columns, starting at column 0",
            "tile the rows only",
        )


def double_row(call: Call) -> None:
    """fp8 operands with two rows of K on every partition."""
    if not call.facts["double_row"]:
        return
    if call.machine.generation < V3:
        call.refuse(
            f"double_row on {call.machine.name}", "exists from NeuronCore-v3 on", "use trn2 or trn3"
        )
    for name in ("stationary", "moving"):
        tensor = call[name]
        if tensor.dtype not in FP8 or tensor.ndim < 3 or tensor.shape[1] != 2:
            call.refuse(
                f"double_row with {name} {tensor.dtype} {tensor.shape}",
                "fp8 operands whose first free dimension is 2",
                "interleave two rows of K as [P, 2, free]",
            )
    if call.facts["tile_size"] and call.facts["tile_size"][1] != call.machine.partitions:
        call.refuse("double_row with column tiling", "one of the two", "drop the column tile")
    if call.facts["transpose"]:
        call.refuse("double_row with is_transpose", "one of the two", "drop one")


def stationary_pattern(call: Call) -> None:
    """Devices read a stationary operand with one free dimension; double_row has its own form."""
    free = call["stationary"].layout.free
    if len(free) > 1 and not call.facts["double_row"]:
        what = f"stationary {call['stationary'].shape} needs {len(free)} free dimensions"
        call.breaks(STATIONARY_DIMS, what)


def transpose_mode(call: Call) -> None:
    """A transpose passes `stationary` through to dst; `moving` is the identity."""
    if not call.facts["transpose"]:
        return
    stationary, moving = call["stationary"], call["moving"]
    refuse_fp8_transpose(call, stationary)
    if moving.layout.elems != stationary.shape[0]:
        call.refuse(
            f"is_transpose with moving of {moving.shape[0]} x {moving.layout.elems}",
            f"moving is the identity of {stationary.shape[0]} x {stationary.shape[0]}",
            "slice the identity to the partitions of stationary",
        )


def refuse_fp8_transpose(call: Call, data: NkiTensor) -> None:
    """NeuronCore-v3 spreads transposed fp8 over 16-bit elements, which no fp8 view describes."""
    if data.dtype in FP8 and call.machine.generation == V3:
        raise UnsupportedError(
            f"transpose of {data.dtype} on the Tensor engine of {call.machine.name}",
            instruction=call.instruction,
            limit="it writes 16-bit elements with an empty upper byte",
            remedy="view pairs of values as a 16-bit type, or use dma_transpose",
        )


def tensor_indirection(call: Call) -> None:
    """Views made by `.indirect()`: whole array, 8- and 16-bit types, index beside the operand."""
    for name, tensor in call.tensors.items():
        if isinstance(tensor.indirection, FreeIndex):
            _indirect_operand(call, name, tensor.indirection.index)


def _indirect_operand(call: Call, name: str, index: NkiTensor) -> None:
    machine, tensor = call.machine, call[name]
    whole = (machine.partitions, machine.partitions)
    group = machine.quadrant_partitions
    beside = call["stationary"] if name == "dst" else tensor
    offsets = group * index.layout.elems
    broken = (
        (machine.generation < V4, f"{name} on {machine.name}", "exists from NeuronCore-v4 on"),
        (
            call.facts["tile_size"] not in ((), whole),
            f"{name} with tile_size={call.facts['tile_size']}",
            "needs the whole PE array",
        ),
        (
            name == "moving" and call.facts["transpose"],
            "moving with is_transpose",
            "stationary and dst only",
        ),
        (tensor.dtype not in INPUTS - _WIDE, f"{name} of {tensor.dtype}", "8- and 16-bit floats"),
        (
            index.buffer is not MemoryRegion.sbuf or index.dtype not in INTEGERS,
            f"{name} by an index of {index.dtype} in {index.buffer.value}",
            "an integer tile in SBUF",
        ),
        (
            index.start_partition % group != 0 or index.start_partition != beside.start_partition,
            f"{name} by an index that starts at partition {index.start_partition}",
            f"where {'stationary' if name == 'dst' else name} starts, on a multiple of {group}",
        ),
        (
            tensor.shape[0] % group != 0 or tensor.layout.elems > offsets,
            f"{name} of {tensor.shape[0]} partitions x {tensor.layout.elems} elements",
            f"multiples of {group} partitions, and the {offsets} offsets such a group holds",
        ),
    )
    for is_broken, what, limit in broken:
        if is_broken:
            call.refuse(f"tensor indirection of {what}", limit, "gather with tensor_copy first")
