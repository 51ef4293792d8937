"""The Tensor engine: nc_matmul. dst[M, N] (+)= stationary[K, M].T @ moving[K, N] in PSUM."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from nkisim import dtypes, enums
from nkisim.errors import NkiValidationError, refuse
from nkisim.isa.contract import PSUM, SBUF, Call, Contract, Operand
from nkisim.isa.operands import NkiInstruction, floats, held, store_held
from nkisim.machine import V3, V4
from nkisim.offsets import FreeIndex
from nkisim.session import Session, current

if TYPE_CHECKING:
    from nkisim.isa.operands import Array
    from nkisim.tensor import NkiTensor

_FP8 = frozenset({"float8_e4m3", "float8_e5m2", "float8_e4m3fn"})
_WIDE = frozenset({"float32", "tfloat32"})
_INPUTS = _FP8 | _WIDE | {"bfloat16", "float16"}


def _dtypes_pair(call: Call) -> None:
    stationary, moving = call["stationary"].dtype, call["moving"].dtype
    if call.facts["transpose"]:
        return
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


def _destination_dtype(call: Call) -> None:
    dst = call["dst"].dtype
    if call.facts["transpose"]:
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


def _sizes(call: Call) -> None:
    stationary, moving, dst = call["stationary"], call["moving"], call["dst"]
    doubled = 2 if call.facts["double_row"] else 1
    columns = stationary.layout.elems // doubled
    streamed = moving.layout.elems // doubled
    if stationary.shape[0] != moving.shape[0]:
        call.refuse(
            f"stationary has {stationary.shape[0]} partitions, moving {moving.shape[0]}",
            "both contract over the same partitions (K)",
            "slice both to K partitions",
        )
    most = call.machine.stationary_max_elems
    if columns > most:
        call.refuse(
            f"stationary has {columns} elements per partition",
            f"{most} elements (columns of the PE array)",
            "tile the output channels",
        )
    _moving_size(call, streamed)
    if dst.shape[0] != columns or dst.layout.elems != streamed:
        call.refuse(
            f"dst is {dst.shape[0]} x {dst.layout.elems}",
            f"{columns} partitions x {streamed} elements for these operands",
            "shape dst as [stationary free, moving free]",
        )


def _moving_size(call: Call, streamed: int) -> None:
    machine = call.machine
    narrow = call["dst"].dtype == "bfloat16" and not call.facts["transpose"]
    most = machine.matmul_moving_max_elems_bf16 if narrow else machine.matmul_moving_max_elems_fp32
    if streamed > most:
        call.refuse(
            f"moving has {streamed} elements per partition",
            f"{most} elements on {machine.name} for a {call['dst'].dtype} dst",
            "tile the moving operand",
        )


def _one_bank(call: Call) -> None:
    if call.machine.generation >= V4:
        return
    dst = call["dst"]
    bank = call.machine.psum_bank_bytes_per_partition
    start = dst.offset % dst.pitch_elems * dst.layout.itemsize_bytes
    last = start + (dst.layout.high + 1) * dst.layout.itemsize_bytes - 1
    if start // bank != last // bank:
        call.refuse(
            f"dst covers bytes {start}..{last} of its partition",
            f"one PSUM bank of {bank} bytes per partition on {call.machine.name}",
            "give every bank its own matmul",
        )


def _tiling(call: Call) -> None:
    size, position = call.facts["tile_size"], call.facts["tile_position"]
    if bool(size) != bool(position):
        call.refuse(
            f"tile_size={size}, tile_position={position}",
            "both or neither",
            "pass both",
        )
    if not size:
        return
    machine = call.machine
    legal = tuple(n for n in (32, 64, 128) if n >= machine.matmul_tile_min_rows)
    for extent, start, what in zip(size, position, ("rows", "columns"), strict=True):
        if extent not in legal or start % extent or start + extent > machine.partitions:
            call.refuse(
                f"tile_size={size}, tile_position={position}",
                f"{what} of {legal} on {machine.name}, starting at a multiple of their size",
                "round the tile",
            )
    _tile_holds_operands(call, size, position)


def _tile_holds_operands(call: Call, size: tuple[int, int], position: tuple[int, int]) -> None:
    if call["stationary"].shape[0] > size[0] or call["stationary"].layout.elems > size[1]:
        call.refuse(
            f"stationary {call['stationary'].shape} in a tile of {size}",
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


def _double_row(call: Call) -> None:
    if not call.facts["double_row"]:
        return
    if call.machine.generation < V3:
        call.refuse(
            f"double_row on {call.machine.name}", "exists from NeuronCore-v3 on", "use trn2 or trn3"
        )
    for name in ("stationary", "moving"):
        tensor = call[name]
        if tensor.dtype not in _FP8 or tensor.ndim < 3 or tensor.shape[1] != 2:  # noqa: PLR2004
            call.refuse(
                f"double_row with {name} {tensor.dtype} {tensor.shape}",
                "fp8 operands whose first free dimension is 2",
                "interleave two rows of K as [P, 2, free]",
            )
    if call.facts["tile_size"] and call.facts["tile_size"][1] != call.machine.partitions:
        call.refuse("double_row with column tiling", "one of the two", "drop the column tile")
    if call.facts["transpose"]:
        call.refuse("double_row with is_transpose", "one of the two", "drop one")


def _transpose_mode(call: Call) -> None:
    if call.facts["transpose"] and call.machine.generation < V3:
        call.refuse(
            f"is_transpose on {call.machine.name}",
            "exists from NeuronCore-v3 on",
            "use nc_transpose",
        )


def _indirection_without_tiles(call: Call) -> None:
    gathered = [n for n, t in call.tensors.items() if isinstance(t.indirection, FreeIndex)]
    if gathered and call.facts["tile_size"]:
        call.refuse(
            f"{', '.join(gathered)} indirect with tile_size", "one of the two", "drop the tiling"
        )


NC_MATMUL = Contract(
    "nc_matmul",
    (enums.engine.tensor,),
    (
        Operand("dst", PSUM, writes=True),
        Operand("stationary", SBUF, _INPUTS),
        Operand("moving", SBUF, _INPUTS),
    ),
    (
        _transpose_mode,
        _double_row,
        _sizes,
        _dtypes_pair,
        _destination_dtype,
        _one_bank,
        _tiling,
        _indirection_without_tiles,
    ),
)


def nc_matmul(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: enums.matmul_perf_mode = enums.matmul_perf_mode.none,
    name: str | None = None,
) -> NkiInstruction:
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N], fp32 products and sums.

    accumulate None: the first matmul on an element overwrites, later ones add; False overwrites;
    True adds. is_transpose moves `stationary` transposed into dst, bit for bit.
    """
    if not isinstance(perf_mode, enums.matmul_perf_mode):
        refuse("nc_matmul", f"perf_mode={perf_mode!r}", "a nisa.matmul_perf_mode", "use the enum")
    core = current()
    double_row = perf_mode is enums.matmul_perf_mode.double_row
    facts = (
        ("transpose", is_transpose),
        ("double_row", double_row),
        ("tile_size", tuple(tile_size)),
        ("tile_position", tuple(tile_position)),
    )
    where = NC_MATMUL.check(core, enums.engine.unknown, (dst, stationary, moving), facts)
    options = (("accumulate", accumulate), ("perf_mode", perf_mode), *facts[2:])
    if is_stationary_onezero or is_moving_onezero or is_transpose:
        hint = is_stationary_onezero or is_moving_onezero
        options += (("onezero", hint), ("transpose", is_transpose))
    handle = core.issue("nc_matmul", where, (dst,), (stationary, moving), options, name)
    if is_transpose:
        _transpose(core, dst, stationary)
    else:
        product = _product(stationary, moving, 2 if double_row else 1) if core.values else None
        accumulate_into(core, dst, product, accumulate)
    return NkiInstruction(handle)


def _transpose(core: Session, dst: NkiTensor, stationary: NkiTensor) -> None:
    accumulation = dst.storage.accumulation
    assert accumulation is not None, "dst is in PSUM"
    accumulation.mark(dst.layout, dst.offset)
    if core.values:
        store_held(dst, held(stationary).reshape(stationary.shape[0], -1).T)


def _product(stationary: NkiTensor, moving: NkiTensor, rows_per_partition: int) -> Array:
    """stationary.T @ moving; double_row has two rows of K on every partition.

    The result lives in a buffer that the next matmul of this size overwrites.
    """
    depth = stationary.shape[0] * rows_per_partition
    left = floats(stationary).reshape(depth, -1).T
    right = floats(moving).reshape(depth, -1)
    return np.matmul(left, right, out=_buffer(left.shape[0], right.shape[1]))


@functools.lru_cache(maxsize=64)
def _buffer(rows: int, columns: int) -> Array:
    """Memory for a product: large arrays are slow to allocate, and a product is used at once."""
    return np.empty((rows, columns), np.float32)


def accumulate_into(
    core: Session, dst: NkiTensor, product: Array | None, accumulate: bool | None
) -> None:
    """Write or add a product to PSUM by the per-element rule; None product: track only."""
    accumulation = dst.storage.accumulation
    assert accumulation is not None, "dst is in PSUM"
    layout, offset = dst.layout, dst.offset
    written = accumulation.written(layout, offset) if accumulate is not False else False
    strict = core.machine.generation < V4  # from v4 on, any PSUM value may be added to
    if accumulate is True and written is not True and strict:
        raise NkiValidationError(
            f"accumulate=True on elements of {dst.name!r} that no matmul has written",
            instruction="nc_matmul",
            limit=f"{core.machine.name} accumulates onto matmul results only",
            remedy="pass accumulate=False (or None) on the first matmul of the group",
        )
    if accumulate is True:
        written = True
    accumulation.mark(layout, offset)
    if product is None:
        return
    if accumulation.foreign_writes and strict and written is not True:
        _refuse_leftovers(dst, written)
    _combine(dst, product, written)


def _combine(dst: NkiTensor, product: Array, written: Array | bool) -> None:
    target = held(dst)
    values = product.reshape(target.shape)
    in_place = dst.dtype == dst.storage.dtype == "float32" and dst.indirection is None
    if written is True:
        if in_place:
            target += values
            return
        values = target + values
    elif written is not False:
        values = np.where(written, target + values, values)
    store_held(dst, dtypes.round_floats(values, dst.dtype, precise=dst.storage.precise))


def _refuse_leftovers(dst: NkiTensor, written: Array | bool) -> None:
    """A default-flag matmul over non-zero memset or copy results has no defined meaning."""
    values = held(dst)
    fresh = np.logical_not(written)
    if np.any(fresh & (values != 0) & ~np.isnan(values)):
        raise NkiValidationError(
            f"matmul onto {dst.name!r}, which holds non-zero values that no matmul wrote",
            instruction="nc_matmul",
            limit="accumulating onto memset or copy results is undefined before NeuronCore-v4",
            remedy="allocate a fresh PSUM tile, or add in SBUF after eviction",
        )
