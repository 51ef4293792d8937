"""Scalar registers of the engines' sequencers: allocate, move, load from memory, store to it.

A shape-only run knows what is known without data: immediates and loop counters. A register loaded
from memory has no value there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim.device_rules.instruction_rules import REGISTER_STORE as STORE_TO_SBUF
from nkisim.enums import engine
from nkisim.errors import refuse
from nkisim.isa.call import Call
from nkisim.isa.contract import DMA_REACH, Contract, Operand
from nkisim.isa.element_types import INTEGERS
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import NkiInstruction, index_tensors, store_held
from nkisim.numerics import dtypes
from nkisim.running.session import current, current_or_none
from nkisim.tensors.indirection import scalar_value
from nkisim.tensors.registers import RunTimeValue, VirtualRegister
from nkisim.tensors.scalars import NkiScalar

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor

_INT32, _UINT32 = np.iinfo(np.int32), np.iinfo(np.uint32)


def register_alloc(x: int | None = None) -> VirtualRegister:
    """A register that holds the integer `x`; None: no value yet."""
    if x is not None:
        _require_immediate("register_alloc", x)
    register = VirtualRegister(x)
    session = current_or_none()  # NKI lets registers be made outside of a kernel
    register.traced = session is not None and session.traced
    return register


def register_move(dst: VirtualRegister, src: int | RunTimeValue) -> NkiInstruction:
    """dst = src: an integer, another register, or an int32 scalar."""
    _require_register("register_move", "dst", dst)
    core = current()
    handle = core.issue("register_move", engine.sync, (), ())
    if isinstance(src, NkiScalar):
        src.require_usable("register_move")
    if isinstance(src, RunTimeValue) and getattr(src, "dtype", "int32") == "int32":
        if core.values:
            src.known("register_move")
        dst.follow(src)
    else:
        _require_immediate("register_move", src)
        dst.move(src)  # type: ignore[arg-type] # an integer, as was checked
    return NkiInstruction(handle)


def _one_element(call: Call) -> None:
    for name, tensor in call.tensors.items():
        if tensor.size != 1:
            call.refuse(
                f"{name} {tensor.shape} has {tensor.size} elements",
                "1 element, shape (1,) or (1, 1)",
                "slice out the element",
            )


REGISTER_LOAD = Contract(
    "register_load",
    (engine.sync,),
    (Operand("src", DMA_REACH, INTEGERS, own_start=True),),
    (_one_element, not_indirect),
)


def register_load(dst: VirtualRegister, src: NkiTensor) -> NkiInstruction:
    """dst = the one integer in src."""
    _require_register("register_load", "dst", dst)
    core = current()
    where = REGISTER_LOAD.check(core, engine.unknown, (src,))
    handle = core.issue("register_load", where, (), (src, *index_tensors(src)))
    dst.load(scalar_value(src) if core.values else None)
    return NkiInstruction(handle)


def _store_on_chip(call: Call) -> None:
    if call["dst"].layout.on_chip:
        call.breaks(STORE_TO_SBUF, f"dst lives in {call['dst'].buffer.value}")


REGISTER_STORE = Contract(
    "register_store",
    (engine.sync,),
    (Operand("dst", DMA_REACH, INTEGERS, writes=True, own_start=True),),
    (_one_element, not_indirect, _store_on_chip),
)


def register_store(dst: NkiTensor, src: VirtualRegister) -> NkiInstruction:
    """The one element of dst = src, its low bits if the element is narrower than 32 bits."""
    _require_register("register_store", "src", src)
    core = current()
    where = REGISTER_STORE.check(core, engine.unknown, (dst,))
    handle = core.issue("register_store", where, (dst,), index_tensors(dst))
    if core.values:
        value = np.array([src.known("register_store")], np.int64)
        store_held(dst, value.astype(dtypes.held_dtype(dst.dtype)).reshape(dst.shape))
    return NkiInstruction(handle)


def _require_register(who: str, name: str, value: object) -> None:
    if not isinstance(value, VirtualRegister):
        refuse(
            who,
            f"{name} is a {type(value).__name__}",
            "a register",
            _remedy(value),
        )


def _remedy(value: object) -> str:
    if isinstance(value, NkiScalar):
        return "a scalar is stored by nisa.scalar_store, and used as it is"
    return "allocate one with nisa.register_alloc"


def _require_immediate(who: str, value: object) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not _INT32.min <= value <= _UINT32.max:  # type: ignore[operator] # an integer
        remedy = "use the scalar itself" if isinstance(value, NkiScalar) else "load it from memory"
        refuse(who, f"the value {value!r}", "a 32-bit integer or a register", remedy)
