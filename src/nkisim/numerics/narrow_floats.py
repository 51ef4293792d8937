"""float32 to and from the narrower floating-point types.

Narrowing is NumPy's and ml_dtypes': round to nearest, ties to even. Only tfloat32, which neither of
them has, is rounded here. Widening is exact, and keeps the payload of a NaN where the type has room
for one, so that bits survive being held as float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Float32Array: TypeAlias = npt.NDArray[np.float32]

_NAN_FRACTION_BITS: Final[dict[np.dtype[Any], int]] = {
    np.dtype(np.float16): 10,
    np.dtype(ml_dtypes.bfloat16): 7,
    np.dtype(ml_dtypes.float8_e4m3): 3,
    np.dtype(ml_dtypes.float8_e5m2): 2,
}
"""Width of the fraction of the types that, like IEEE's, have a NaN for each fraction but 0."""


def narrow(values: Float32Array, native: np.dtype[Any]) -> Array:
    """`values` rounded to the NumPy dtype `native`; overflow is silent."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(native)


def narrow_bits(values: Float32Array, native: np.dtype[Any]) -> Array:
    """The bit patterns of `narrow(values, native)`, NaNs with their sign and payload."""
    bits = narrow(values, native).view(f"uint{8 * native.itemsize}")
    nan = np.isnan(values)
    if nan.any() and native in _NAN_FRACTION_BITS:
        bits[nan] = _narrow_nans(values[nan], native)
    return bits


def widen(values: Array) -> Float32Array:
    """Exact float32 of narrow floats, by table: faster than every cast but that of bfloat16."""
    if values.dtype == np.float32:
        return values
    if values.dtype == ml_dtypes.bfloat16:
        return values.astype(np.float32)
    codes = values.view(f"uint{8 * values.dtype.itemsize}")
    return np.asarray(_widening_table(values.dtype).take(codes, mode="clip"))


@cache
def _widening_table(native: np.dtype[Any]) -> Float32Array:
    """The float32 of every bit pattern of `native`."""
    bits = np.dtype(f"uint{8 * native.itemsize}")
    codes = np.arange(2 ** (8 * native.itemsize), dtype=bits)
    with np.errstate(invalid="ignore"):
        table: Float32Array = codes.view(native).astype(np.float32)
    if native in _NAN_FRACTION_BITS:
        nan = np.isnan(table)
        table[nan] = _widen_nans(codes[nan], native)
    table.flags.writeable = False
    return table


def _widen_nans(codes: Array, native: np.dtype[Any]) -> Float32Array:
    """float32 NaNs with the sign and, leading the fraction, the payload of narrow NaNs."""
    fraction_bits = _NAN_FRACTION_BITS[native]
    wide = codes.astype(np.uint32)
    sign = wide >> (8 * native.itemsize - 1) << 31
    fraction = (wide & (2**fraction_bits - 1)) << (23 - fraction_bits)
    nans: Float32Array = (sign | 0x7F800000 | fraction).view(np.float32)
    return nans


def _narrow_nans(nans: Float32Array, native: np.dtype[Any]) -> Array:
    """The bits of NaNs in a narrow type: the inverse of `_widen_nans`.

    A payload that has no bit in the narrow fraction becomes the quiet NaN.
    """
    fraction_bits = _NAN_FRACTION_BITS[native]
    width = 8 * native.itemsize
    wide = nans.view(np.uint32)
    sign = wide >> 31 << (width - 1)
    exponent = (1 << (width - 1)) - (1 << fraction_bits)
    fraction = (wide >> (23 - fraction_bits)) & (2**fraction_bits - 1)
    fraction = np.where(fraction == 0, 1 << (fraction_bits - 1), fraction)
    return (sign | exponent | fraction).astype(f"uint{width}")


def round_to_tfloat32(values: Float32Array) -> Float32Array:
    """Round to 10 fraction bits, ties to even; a carry out of the fraction raises the exponent."""
    bits = values.view(np.uint32)
    odd = (bits >> 13) & 1
    rounded = (bits + (0x0FFF + odd)) & 0xFFFFE000
    return np.where(np.isfinite(values), rounded.view(np.float32), values)
