"""Sets of dtypes that instructions name: the documents' "integer types", "any NKI data type" ..."""

from __future__ import annotations

from typing import Final

from nkisim.numerics import dtypes

NUMBERS: Final = frozenset(name for name in dtypes.ALL if not dtypes.is_packed(name))
"""What an engine can cast to float32; packed types are for nc_matmul_mx and copies."""

FLOATS: Final = frozenset(name for name in NUMBERS if dtypes.is_float(name))
INTEGERS: Final = NUMBERS - FLOATS - {"bool"}
WORDS: Final = frozenset({"int32", "uint32"})
FP32: Final = frozenset({"float32"})
