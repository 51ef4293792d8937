"""NKI dtypes, and every conversion between them.

A dtype is a plain string, as in NKI. An array is *held* in the NumPy dtype that `held_dtype` names:

- every unpacked float type as float32 whose values are already rounded to the type, so that a
  matmul is one BLAS call and rounding happens only where a value is written;
- integers natively, `bool` as uint8 holding 0 or 1;
- packed x4 types as their bits, uint32 (four fp8) or uint16 (four fp4).

Floats round to nearest, ties to even (`narrow_floats`). Overflow is what ml_dtypes does, because
the hardware's own answer is undocumented: infinity for float16, bfloat16, tfloat32, float8_e4m3 and
float8_e5m2, NaN for float8_e4m3fn. float8_e8m0fnu has neither zero nor sign: both become NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import ml_dtypes
import numpy as np

from nkisim.errors import NkiValidationError
from nkisim.numerics import narrow_floats
from nkisim.numerics.narrow_floats import Array, Float32Array

DType: TypeAlias = str
Kind: TypeAlias = Literal["float", "integer", "packed"]


class DTypeError(NkiValidationError):
    """A dtype that NKI does not have, or a conversion that the dtype does not allow."""


@dataclass(frozen=True)
class _Format:
    """How one dtype is stored; `element` is the type inside a packed one."""

    kind: Kind
    native: np.dtype[Any]
    element: np.dtype[Any] | None = None

    @property
    def bits(self) -> np.dtype[Any]:
        return np.dtype(f"uint{8 * self.native.itemsize}")


_FLOAT32: Final = np.dtype(np.float32)

_FORMATS: Final[dict[DType, _Format]] = {
    "bool": _Format("integer", np.dtype(np.bool_)),
    "int8": _Format("integer", np.dtype(np.int8)),
    "int16": _Format("integer", np.dtype(np.int16)),
    "int32": _Format("integer", np.dtype(np.int32)),
    "int64": _Format("integer", np.dtype(np.int64)),
    "uint8": _Format("integer", np.dtype(np.uint8)),
    "uint16": _Format("integer", np.dtype(np.uint16)),
    "uint32": _Format("integer", np.dtype(np.uint32)),
    "float16": _Format("float", np.dtype(np.float16)),
    "float32": _Format("float", _FLOAT32),
    "bfloat16": _Format("float", np.dtype(ml_dtypes.bfloat16)),
    "tfloat32": _Format("float", _FLOAT32),
    "float8_e4m3": _Format("float", np.dtype(ml_dtypes.float8_e4m3)),
    "float8_e4m3fn": _Format("float", np.dtype(ml_dtypes.float8_e4m3fn)),
    "float8_e5m2": _Format("float", np.dtype(ml_dtypes.float8_e5m2)),
    "float8_e8m0fnu": _Format("float", np.dtype(ml_dtypes.float8_e8m0fnu)),
    "float8_e5m2_x4": _Format(
        "packed", np.dtype(np.uint32), element=np.dtype(ml_dtypes.float8_e5m2)
    ),
    "float8_e4m3fn_x4": _Format(
        "packed", np.dtype(np.uint32), element=np.dtype(ml_dtypes.float8_e4m3fn)
    ),
    "float4_e2m1fn_x4": _Format(
        "packed", np.dtype(np.uint16), element=np.dtype(ml_dtypes.float4_e2m1fn)
    ),
}

_ALIASES: Final[dict[str, DType]] = {
    "bool_": "bool",
    "float8e4": "float8_e4m3",
    "float8e5": "float8_e5m2",
}

_REMEDIES: Final[dict[str, str]] = {
    "float64": "convert it with .astype(np.float32) first",
    "uint64": "convert it with .astype(np.uint32) first",
    "float4_e2m1fn": "four of them are packed in float4_e2m1fn_x4",
}

_NIBBLE_SHIFTS: Final = np.array([0, 4, 8, 12], dtype=np.uint16)

SCALAR_ONLY: Final[tuple[DType, ...]] = ("int64",)
"""Types of NKI 0.7 that scalars and copies know and no engine computes with."""

ALL: Final[tuple[DType, ...]] = tuple(name for name in _FORMATS if name not in SCALAR_ONLY)


def canonical(dtype: object) -> DType:
    """The NKI name of `dtype`: a name, a NumPy or ml_dtypes dtype, or one of their scalar types."""
    if isinstance(dtype, str):
        name = _ALIASES.get(dtype, dtype)
    else:
        try:
            name = np.dtype(dtype).name  # type: ignore[call-overload]
        except TypeError:
            name = repr(dtype)
    if name in _FORMATS:
        return name
    raise DTypeError(
        f"dtype {name}",
        limit=f"the machine's types are {', '.join(ALL)}",
        remedy=_REMEDIES.get(name, "use one of them"),
    )


def _format(dtype: DType) -> _Format:
    found = _FORMATS.get(dtype)
    return found if found is not None else _FORMATS[canonical(dtype)]


def itemsize_bytes(dtype: DType) -> int:
    """Bytes that one element takes in memory; a packed x4 element counts as one."""
    return _format(dtype).native.itemsize


def is_float(dtype: DType) -> bool:
    """Whether `dtype` is an unpacked floating-point type."""
    return _format(dtype).kind == "float"


def is_integer(dtype: DType) -> bool:
    """Whether `dtype` is an integer type; `bool` counts as one."""
    return _format(dtype).kind == "integer"


def is_packed(dtype: DType) -> bool:
    """Whether an element of `dtype` is four small floats."""
    return _format(dtype).kind == "packed"


def held_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype in which nkisim keeps arrays of `dtype`."""
    form = _format(dtype)
    if form.kind == "float":
        return _FLOAT32
    return form.bits if form.native == np.bool_ else form.native


def poison(dtype: DType) -> float | int:
    """The held value of memory nobody has written.

    NaN for floats and 4 for integers, as in the vendor's simulator. `bool` has no 4 and is true.
    Packed types hold four times the same: NaN for fp8, and 6 (the largest value) for fp4, which has
    no NaN.
    """
    form = _format(dtype)
    if form.kind == "float":
        return float("nan")
    if form.kind == "integer":
        return 1 if form.native == np.bool_ else 4
    return 0x7777 if form.element == ml_dtypes.float4_e2m1fn else 0x7F7F7F7F


def round_floats(values: Float32Array, dtype: DType, *, precise: bool = True) -> Float32Array:
    """`values` rounded to the float type `dtype`, as float32.

    float32, and every type when `precise` is false, returns the same object.
    """
    form = _format(dtype)
    if form.kind != "float":
        raise DTypeError(
            f"rounding floats to {dtype}",
            limit=f"{dtype} is not an unpacked float type",
            remedy="convert with from_float32",
        )
    if dtype == "float32" or not precise:
        return values
    if dtype == "tfloat32":
        return narrow_floats.round_to_tfloat32(values)
    return narrow_floats.widen(narrow_floats.narrow(values, form.native))


def from_float32(values: Float32Array, dtype: DType, *, precise: bool = True) -> Array:
    """`values` converted as an engine does when it writes: the held array of `dtype`.

    Floats are rounded by `round_floats`. Integers are rounded to the nearest, ties to even, and
    saturate; NaN becomes 0. `bool` is whether the value differs from 0, which NaN does.
    """
    form = _format(dtype)
    if form.kind == "float":
        return round_floats(values, dtype, precise=precise)
    if form.kind == "packed":
        raise DTypeError(
            f"cast to {dtype}",
            limit="packed types cannot be cast",
            remedy="pack four values with pack_x4, in a kernel with nisa.quantize_mx",
        )
    if form.native == np.bool_:
        return np.not_equal(values, 0).view(np.uint8)
    return _saturate(values, form.native)


def to_float32(held: Array, dtype: DType) -> Float32Array:
    """The values of a held array as float32; integers beyond 24 bits are rounded."""
    if is_packed(dtype):
        raise DTypeError(
            f"cast of {dtype} to float32",
            limit="packed types cannot be cast",
            remedy="unpack them with unpack_x4; in a kernel only nisa.nc_matmul_mx reads them",
        )
    return held.astype(np.float32, copy=False)


def bits_of(held: Array, dtype: DType) -> Array:
    """The bit patterns of a held array, as unsigned integers of the type's width.

    NaNs keep sign and payload: bits that `from_bits` took in come out unchanged, but for what it
    says of `bool` and tfloat32. May share memory with `held`.
    """
    form = _format(dtype)
    if form.kind != "float" or form.native == _FLOAT32:
        return held.view(form.bits)
    return narrow_floats.narrow_bits(held, form.native)


def from_bits(bits: Array, dtype: DType) -> Array:
    """The held array whose bit patterns are `bits` (unsigned, of the type's width).

    A byte other than 0 is a true `bool`; 32 bits read as tfloat32 are rounded to it. May share
    memory with `bits`.
    """
    form = _format(dtype)
    if bits.dtype != form.bits:
        raise DTypeError(
            f"{bits.dtype} bit patterns as {dtype}",
            limit=f"a {dtype} has {8 * form.bits.itemsize} bits",
            remedy=f"pass an array of {form.bits}",
        )
    if form.native == np.bool_:
        return np.not_equal(bits, 0).view(np.uint8)
    if dtype == "tfloat32":
        return narrow_floats.round_to_tfloat32(bits.view(np.float32))
    values = bits.view(form.native)
    return narrow_floats.widen(values) if form.kind == "float" else values


def from_host(array: Array) -> tuple[DType, Array]:
    """The NKI dtype and the held array of a host array; they may share memory."""
    dtype = canonical(array.dtype)
    native = np.asarray(array, dtype=array.dtype.newbyteorder("="))
    return dtype, from_bits(native.view(_format(dtype).bits), dtype)


def to_host(held: Array, dtype: DType) -> Array:
    """A held array in the NumPy dtype of `dtype`, possibly sharing memory.

    tfloat32 comes back as float32 and packed types as their unsigned bits.
    """
    return bits_of(held, dtype).view(_format(dtype).native)


def unpack_x4(bits: Array, dtype: DType) -> Float32Array:
    """The four values of each packed element, as float32 with a new last axis of length 4."""
    element = _packed_element(dtype, "unpack_x4")
    if element.itemsize * 4 == bits.dtype.itemsize:
        codes = np.ascontiguousarray(bits[..., np.newaxis], dtype="<u4").view(np.uint8)
    else:
        codes = ((bits[..., np.newaxis] >> _NIBBLE_SHIFTS) & 0xF).astype(np.uint8)
    return narrow_floats.widen(codes.view(element))


def pack_x4(values: Float32Array, dtype: DType) -> Array:
    """Packed bits of float32 values whose last axis has length 4; element 0 is the lowest.

    Values are rounded as ml_dtypes does; float4_e2m1fn saturates at 6 and turns NaN into zero.
    """
    element = _packed_element(dtype, "pack_x4")
    if values.shape[-1:] != (4,):
        raise DTypeError(
            f"values of shape {values.shape} packed to {dtype}",
            limit="the last axis has length 4",
            remedy="reshape to (..., 4)",
        )
    codes = np.ascontiguousarray(narrow_floats.narrow(values, element).view(np.uint8))
    if element != ml_dtypes.float4_e2m1fn:
        return codes.view("<u4")[..., 0].astype(np.uint32, copy=False)
    nibbles = codes.astype(np.uint16) << _NIBBLE_SHIFTS
    packed: Array = np.bitwise_or.reduce(nibbles, axis=-1)
    return packed


def _packed_element(dtype: DType, requested: str) -> np.dtype[Any]:
    element = _format(dtype).element
    if element is None:
        packed = ", ".join(name for name in ALL if is_packed(name))
        raise DTypeError(
            f"{requested} of {dtype}",
            limit=f"the packed types are {packed}",
            remedy="use from_float32 and to_float32 for every other type",
        )
    return element


def _saturate(values: Float32Array, native: np.dtype[Any]) -> Array:
    limits = np.iinfo(native)
    # float32 has no 2**31 - 1: the limits of 32-bit integers need float64.
    rounded = np.rint(values.astype(np.float64 if limits.bits == 32 else np.float32))
    clipped = np.clip(rounded, limits.min, limits.max)
    return np.where(np.isnan(clipped), 0, clipped).astype(native)
