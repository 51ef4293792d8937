"""NKI 0.7's scalars between memory and the sequencers: scalar_load and scalar_store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim.enums import engine
from nkisim.errors import refuse
from nkisim.isa.call import Call
from nkisim.isa.contract import DMA_REACH, Contract, Operand
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import index_tensors, store_held
from nkisim.running.session import Session, current
from nkisim.tensors.indirection import scalar_value
from nkisim.tensors.scalars import SCALAR_DTYPES, NkiScalar

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor


def _one_by_one(call: Call) -> None:
    for name, tensor in call.tensors.items():
        if tensor.size != 1 or tensor.ndim != 2:
            call.refuse(f"{name} has shape {tensor.shape}", "shape (1, 1)", "slice out the element")


def _scalar_contract(name: str, operand: str, *, writes: bool) -> Contract:
    dtypes = frozenset(SCALAR_DTYPES)
    place = Operand(operand, DMA_REACH, dtypes, writes=writes, own_start=True)
    return Contract(name, (engine.sync,), (place,), (_one_by_one, not_indirect))


SCALAR_LOAD = _scalar_contract("scalar_load", "src", writes=False)
SCALAR_STORE = _scalar_contract("scalar_store", "dst", writes=True)


def scalar_load(src: NkiTensor) -> NkiScalar:
    """The one int32 or int64 in src, as a scalar of that dtype."""
    core = _tracing("scalar_load")
    where = SCALAR_LOAD.check(core, engine.unknown, (src,))
    core.issue("scalar_load", where, (), (src, *index_tensors(src)))
    return NkiScalar.loaded(scalar_value(src) if core.values else None, src.dtype)


def scalar_store(dst: NkiTensor, value: NkiScalar) -> None:
    """The one element of dst = value, a scalar of the same width."""
    core = _tracing("scalar_store")
    _require_stored(dst, value)
    where = SCALAR_STORE.check(core, engine.unknown, (dst,))
    core.issue("scalar_store", where, (dst,), index_tensors(dst))
    if core.values:
        number = value.known("scalar_store")
        store_held(dst, np.full(dst.shape, number, np.dtype(dst.dtype)))


def _require_stored(dst: NkiTensor, value: object) -> None:
    if not isinstance(value, NkiScalar):
        refuse(
            "scalar_store",
            f"the value {value!r}",
            "an NkiScalar",
            "fill the tile with nisa.memset, or store a register with nisa.register_store",
        )
    value.require_usable("scalar_store")
    if dst.dtype != value.dtype:
        refuse(
            "scalar_store",
            f"an {value.dtype} scalar to a tile of {dst.dtype}",
            "one width",
            f"allocate dst as {value.dtype}",
        )


def _tracing(name: str) -> Session:
    """The session, or a refusal where NKI 0.6 is asked for."""
    core = current()
    if not core.traced:
        refuse(
            name,
            "a scalar in a kernel for NKI 0.6",
            "NKI 0.7 and its tracer",
            "install(version='0.7'), or use nisa.register_load",
        )
    return core
