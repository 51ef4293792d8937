"""nl.where: elements of one tile or another."""

from __future__ import annotations

import nkisim.isa as nisa
from nkisim.language.creation import ndarray
from nkisim.language.tiles import require_tensor, tile_like
from nkisim.numerics import operators
from nkisim.tensors.tensor import NkiTensor


def where(condition: NkiTensor, x: NkiTensor, y: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """x where the condition is not 0, else y; exact, infinities and NaN included."""
    condition = require_tensor("nl.where", "condition", condition)
    kind = dtype or require_tensor("nl.where", "x", x).dtype
    chosen = ndarray(condition.shape, "uint8")
    nisa.tensor_scalar(chosen, condition, operators.not_equal, 0.0)
    result = tile_like(require_tensor("nl.where", "y", y), kind)
    nisa.tensor_copy(result, y)
    nisa.tensor_copy_predicated(result, _as_dtype(x, kind), chosen)
    return result


def _as_dtype(x: NkiTensor, dtype: str) -> NkiTensor:
    if x.dtype == dtype:
        return x
    cast = tile_like(x, dtype)
    nisa.tensor_copy(cast, x)
    return cast
