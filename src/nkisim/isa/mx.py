"""MX formats (trn3): quantize_mx on the Vector engine, nc_matmul_mx on the Tensor engine.

A packed element is four values; a scale serves 8 partitions x one packed element. The scales of
32 partitions are the first four rows of their quadrant, or the four after those of another tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.isa import matmul_rules
from nkisim.isa.call import Call
from nkisim.isa.contract import PSUM, SBUF, Contract, Operand
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import NkiInstruction, held, index_tensors, rows, store_held
from nkisim.isa.product import product
from nkisim.isa.psum_write import begin_write
from nkisim.isa.rules import same_partitions
from nkisim.machine import V4
from nkisim.numerics import dtypes
from nkisim.running.session import Session, current

if TYPE_CHECKING:
    from nkisim.isa.call import Rule
    from nkisim.isa.operands import Array
    from nkisim.machine import Machine
    from nkisim.tensors.tensor import NkiTensor

_FP8 = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4"})
_PACKED = _FP8 | {"float4_e2m1fn_x4"}
_SCALES = frozenset({"float8_e8m0fnu", "uint8"})
_LARGEST_EXPONENT = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}
_BIAS = 127  # of the exponent that is a scale
_NAN_CODE = 255


def _scale_rows_per_quadrant(machine: Machine) -> int:
    return machine.quadrant_partitions // machine.mx_group_partitions


def _whole_quadrants(name: str) -> Rule:
    def rule(call: Call) -> None:
        quadrant, partitions = call.machine.quadrant_partitions, call[name].shape[0]
        if partitions % quadrant:
            call.refuse(
                f"{name} has {partitions} partitions",
                f"a multiple of {quadrant} partitions",
                "pad the contraction dimension with zeros",
            )

    return rule


def _scale_place(data: str, scale: str) -> Rule:
    """The scale tile begins in the quadrant of its data and reaches the last one."""

    def rule(call: Call) -> None:
        machine, tensor = call.machine, call[scale]
        unit = _scale_rows_per_quadrant(machine)
        slots = range(0, unit * machine.mx_scale_sets, unit)
        inside = tensor.start_partition - call[data].start_partition
        needed = call[data].shape[0] - machine.quadrant_partitions + unit
        if inside not in slots or tensor.shape[0] < needed:
            call.refuse(
                f"{scale} of {tensor.shape[0]} partitions starts {inside} partitions after {data}",
                f"{needed} partitions or more, starting {', '.join(map(str, slots))} after {data}",
                "allocate the scale tile with the partitions of the data and slice it",
            )

    return rule


def _quantized_sizes(call: Call) -> None:
    elems = call["src"].layout.elems
    got = (call["dst"].layout.elems, call["dst_scale"].layout.elems)
    if elems % 4 or got != (elems // 4, elems // 4):
        call.refuse(
            f"src of {elems}, dst of {got[0]} and dst_scale of {got[1]} elements per partition",
            "src has 4 times the elements of dst and of dst_scale",
            "shape dst and dst_scale as a quarter of src",
        )


QUANTIZE_MX = Contract(
    "quantize_mx",
    (enums.engine.vector,),
    (
        Operand("dst", SBUF, _FP8, writes=True),
        Operand("src", SBUF, frozenset({"float16", "bfloat16"})),
        Operand("dst_scale", SBUF, _SCALES, writes=True, own_start=True),
    ),
    (
        _whole_quadrants("src"),
        same_partitions("dst", "src"),
        _quantized_sizes,
        _scale_place("src", "dst_scale"),
        not_indirect,
    ),
    min_generation=V4,
)


def quantize_mx(
    dst: NkiTensor, src: NkiTensor, dst_scale: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst, dst_scale = src as packed fp8, one power-of-two scale for 8 partitions x 4 elements.

    The exponent of the scale is floor(log2(largest magnitude)) - (largest exponent - 1).
    """
    core = current()
    where = QUANTIZE_MX.check(core, enums.engine.unknown, (dst, src, dst_scale))
    scale_rows = _scale_rows(core, dst_scale, src.shape[0])
    reads = (src, *index_tensors(dst, src, dst_scale))
    handle = core.issue("quantize_mx", where, (dst, *scale_rows), reads, (), name)
    if core.values:
        grouped = rows(src).reshape(-1, core.machine.mx_group_partitions, src.layout.elems // 4, 4)
        codes = _scale_codes(grouped, dst.dtype)
        with np.errstate(all="ignore"):
            scaled: Array = grouped / _power_of_two(codes)[:, np.newaxis, :, np.newaxis]
        store_held(dst, dtypes.pack_x4(scaled.reshape(src.shape[0], -1, 4), dst.dtype))
        for place, row in zip(scale_rows, np.split(codes, len(scale_rows)), strict=True):
            store_held(place, row if place.dtype == "uint8" else _power_of_two(row))
    return NkiInstruction(handle)


def _scale_rows(core: Session, scale: NkiTensor, partitions: int) -> tuple[NkiTensor, ...]:
    """The rows of a scale tile that hold scales, one view a quadrant."""
    quadrant, count = core.machine.quadrant_partitions, _scale_rows_per_quadrant(core.machine)
    return tuple(scale[first : first + count] for first in range(0, partitions, quadrant))


def _scale_codes(grouped: Array, dtype: str) -> Array:
    """uint8 scale codes of [groups, 8, elements, 4] values; 0 for a group of zeros, 255 for NaN."""
    largest = np.abs(grouped).max(axis=(1, 3))
    _, exponent = np.frexp(largest)  # largest = fraction * 2**exponent, fraction in [1/2, 1)
    codes = exponent.astype(np.int64) - 1 - (_LARGEST_EXPONENT[dtype] - 1) + _BIAS
    codes = np.where(largest == 0, 0, np.maximum(codes, 0))
    return np.where(np.isfinite(largest), codes, _NAN_CODE).astype(np.uint8)


def _power_of_two(codes: Array) -> Array:
    """float32 scales of their codes."""
    exponents = np.where(codes == _NAN_CODE, _BIAS, codes).astype(np.int32) - _BIAS
    powers = np.ldexp(np.float32(1), exponents)
    return np.where(codes == _NAN_CODE, np.float32(np.nan), powers).astype(np.float32)


def _even_columns(call: Call) -> None:
    columns = call["stationary"].layout.elems
    if columns % 2:
        call.refuse(f"stationary has {columns} elements per partition", "an even number", "pad it")


def _scale_columns(call: Call) -> None:
    for name in ("stationary", "moving"):
        scales, elems = call[f"{name}_scale"].layout.elems, call[name].layout.elems
        if scales < elems:
            call.refuse(
                f"{name}_scale has {scales} elements per partition",
                f"{elems}, one for each packed element of {name}",
                "slice the scales like the data",
            )


NC_MATMUL_MX = Contract(
    "nc_matmul_mx",
    (enums.engine.tensor,),
    (
        Operand("dst", PSUM, writes=True),
        Operand("stationary", SBUF, _PACKED),
        Operand("moving", SBUF, _PACKED),
        Operand("stationary_scale", SBUF, _SCALES, own_start=True),
        Operand("moving_scale", SBUF, _SCALES, own_start=True),
    ),
    (
        matmul_rules.sizes,
        _whole_quadrants("stationary"),
        _even_columns,
        matmul_rules.sum_type,
        matmul_rules.tiling,
        matmul_rules.rows_only,
        _scale_columns,
        _scale_place("stationary", "stationary_scale"),
        _scale_place("moving", "moving_scale"),
        not_indirect,
    ),
    min_generation=V4,
)


def nc_matmul_mx(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    stationary_scale: NkiTensor,
    moving_scale: NkiTensor,
    tile_position: tuple[int, ...] | None = None,
    tile_size: tuple[int, ...] | None = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst[M, N] (+)= the dequantised stationary[4 K, M].T @ moving[4 K, N], summed in fp32.

    The four values of a packed element are four rows of the contraction. `accumulate` is as in
    nc_matmul. Tensor indirection is not modelled here.
    """
    core = current()
    tiles = (("tile_size", tuple(tile_size or ())), ("tile_position", tuple(tile_position or ())))
    tensors = (dst, stationary, moving, stationary_scale, moving_scale)
    where = NC_MATMUL_MX.check(core, enums.engine.unknown, tensors, tiles)
    write = begin_write(core, "nc_matmul_mx", dst, accumulate)
    scales = (
        *_scale_rows(core, stationary_scale, stationary.shape[0]),
        *_scale_rows(core, moving_scale, moving.shape[0]),
    )
    reads = (stationary, moving, *scales, *index_tensors(*tensors))
    options = (("accumulate", accumulate), *tiles)
    handle = core.issue("nc_matmul_mx", where, (dst,), reads, options, name)
    if core.values:
        left = _dequantised(core, stationary, stationary_scale)
        right = _dequantised(core, moving, moving_scale)
        write.add(core, product(core, left, right))
    write.note()
    return NkiInstruction(handle)


def _dequantised(core: Session, data: NkiTensor, scale: NkiTensor) -> Array:
    """[4 x partitions, elements] float32 values of packed data."""
    values = dtypes.unpack_x4(held(data).reshape(data.shape[0], -1), data.dtype)
    codes = np.concatenate([_scales(row) for row in _scale_rows(core, scale, data.shape[0])])
    per_partition = np.repeat(codes[:, : values.shape[1]], core.machine.mx_group_partitions, axis=0)
    with np.errstate(all="ignore"):
        scaled: Array = values * per_partition[:, :, np.newaxis]
    return scaled.transpose(0, 2, 1).reshape(-1, values.shape[1])


def _scales(row: NkiTensor) -> Array:
    values: Array = held(row).reshape(row.shape[0], -1)
    return _power_of_two(values) if row.dtype == "uint8" else values
