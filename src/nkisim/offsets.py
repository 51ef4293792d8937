"""Run-time offsets a view can carry: one for the whole view, one a row, or one an element."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Union

if TYPE_CHECKING:
    from nkisim.registers import VirtualRegister
    from nkisim.tensor import NkiTensor


class ScalarOffset(NamedTuple):
    """One run-time offset for the whole view: `source` times `unit_elems` is added."""

    source: NkiTensor | VirtualRegister
    unit_elems: int


class VectorOffset(NamedTuple):
    """A gather along HBM rows: row p of the view is row `rows[p]` of `unit_elems` elements."""

    rows: NkiTensor
    unit_elems: int


class FreeIndex(NamedTuple):
    """Tensor indirection along the free dimension (trn3): `.indirect(index)`."""

    index: NkiTensor
    elems: int


Indirection = Union[ScalarOffset, VectorOffset, FreeIndex]
