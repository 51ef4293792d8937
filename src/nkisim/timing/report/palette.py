"""Colours of instructions: told apart by people with any colour vision, the same in all pictures.

The first eight are those of Okabe and Ito, the rest are shades between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nkisim.timing.report.words import TABLE_LOAD

INK: Final = "#1f2933"
FAINT_INK: Final = "#5f6b7a"
GRID: Final = "#d9dee5"
PAPER: Final = "#ffffff"
LANE: Final = "#f3f5f8"

_FIXED: Final = {
    "nc_matmul": "#0072b2",
    "nc_matmul_mx": "#0072b2",
    "dma_copy": "#56b4e9",
    "dma_transpose": "#7a4fa3",
    "tensor_copy": "#009e73",
    "activation": "#e69f00",
    "tensor_tensor": "#d55e00",
    "tensor_scalar": "#cc79a7",
    "nc_transpose": "#8c6d31",
    "tensor_reduce": "#f0e442",
    TABLE_LOAD: "#8a939e",
}
_OTHERS: Final = ("#117733", "#882255", "#44aa99", "#999933", "#aa4499", "#332288", "#661100")
_LAST: Final = "#4b5563"


def colours(ops: Iterable[str]) -> dict[str, str]:
    """A colour for each op; ops without one of their own take the spare ones in order of name."""
    chosen: dict[str, str] = {}
    spare = iter(_OTHERS)
    for op in sorted(set(ops)):
        chosen[op] = _FIXED.get(op) or next(spare, _LAST)
    return chosen
