"""Two cores of an LNC2 launch: sendrecv exchanges tiles, core_barrier waits for the other core."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nkisim import enums
from nkisim.errors import refuse
from nkisim.isa.call import Call
from nkisim.isa.contract import SBUF, Contract, Operand
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import NkiInstruction, held, index_tensors, store_held
from nkisim.isa.rules import same_dtype
from nkisim.machine import V3
from nkisim.memory.layout import MemoryRegion
from nkisim.running.session import Session, current

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor

_RANKS = (0, 1)


class _Parcel(NamedTuple):
    """What a core brings to a sendrecv."""

    to: int
    shape: tuple[int, ...]
    dtype: str
    data: Array | None  # None in a shape-only run


def _same_shape(call: Call) -> None:
    if call["src"].shape != call["dst"].shape:
        call.refuse(
            f"src {call['src'].shape}, dst {call['dst'].shape}",
            "src and dst have the same shape",
            "slice them alike",
        )


def _ranks(call: Call) -> None:
    for name in ("send_to_rank", "recv_from_rank"):
        rank = call.facts[name]
        if rank not in _RANKS or isinstance(rank, bool):
            call.refuse(f"{name}={rank!r}", f"one of {_RANKS}", "use 1 - nl.program_id(0)")


def _gpsimd_bytes(call: Call) -> None:
    layout, most = call["src"].layout, call.machine.gpsimd_dma_max_elems
    if call.engine is enums.engine.gpsimd and layout.elems > most:
        call.refuse(
            f"{layout.elems * layout.itemsize_bytes} bytes per partition by dma_engine.gpsimd_dma",
            f"{most * layout.itemsize_bytes} bytes per partition of a {layout.itemsize_bytes}-byte"
            " type",
            "use dma_engine.dma, or send in parts",
        )


SENDRECV = Contract(
    "sendrecv",
    (enums.engine.dma, enums.engine.gpsimd),
    (Operand("src", SBUF), Operand("dst", SBUF, writes=True)),
    (same_dtype("src", "dst"), _same_shape, _ranks, _gpsimd_bytes, not_indirect),
    min_generation=V3,
)


def sendrecv(
    src: NkiTensor,
    dst: NkiTensor,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: enums.dma_engine = enums.dma_engine.dma,
    name: str | None = None,
) -> NkiInstruction:
    """Send src to one core of the pair while dst receives what a core sends here.

    Both cores meet in the sendrecv of the same pipe_id.
    """
    if not isinstance(dma_engine, enums.dma_engine):
        refuse("sendrecv", f"dma_engine={dma_engine!r}", "a nisa.dma_engine", "use the enum")
    core = current()
    by_gpsimd = dma_engine is enums.dma_engine.gpsimd_dma
    asked = enums.engine.gpsimd if by_gpsimd else enums.engine.dma
    ranks = (("send_to_rank", send_to_rank), ("recv_from_rank", recv_from_rank))
    where = SENDRECV.check(core, asked, (src, dst), ranks)
    _require_pair(core, "sendrecv")
    options = (*ranks, ("pipe_id", pipe_id), ("dma_engine", dma_engine))
    reads = (src, *index_tensors(src, dst))
    handle = core.issue("sendrecv", where, (dst,), reads, options, name)
    data = np.array(held(src)) if core.values else None
    mine = _Parcel(send_to_rank, src.shape, src.dtype, data)
    theirs: _Parcel = core.meet(handle, f"sendrecv with pipe_id={pipe_id}", mine)
    received = mine if recv_from_rank == core.core else theirs
    _require_addressed(core.core, recv_from_rank, received, dst)
    if received.data is not None:
        store_held(dst, received.data)
    return NkiInstruction(handle)


def _require_addressed(rank: int, sender: int, parcel: _Parcel, dst: NkiTensor) -> None:
    if parcel.to != rank:
        refuse(
            "sendrecv",
            f"core {rank} receives from core {sender}, which sends to core {parcel.to}",
            "what a core receives is sent to it",
            "make send_to_rank of one core the recv_from_rank of the other",
        )
    if (parcel.shape, parcel.dtype) != (dst.shape, dst.dtype):
        refuse(
            "sendrecv",
            f"core {sender} sends {parcel.dtype} {parcel.shape}, core {rank} receives"
            f" {dst.dtype} {dst.shape}",
            "both tiles have the same dtype and shape",
            "send and receive alike on both cores",
        )


def _both_cores(call: Call) -> None:
    if call.facts["cores"] != _RANKS:
        call.refuse(f"cores={call.facts['cores']}", f"cores={_RANKS}", "name both cores")


CORE_BARRIER = Contract(
    "core_barrier",
    (
        enums.engine.gpsimd,
        enums.engine.tensor,
        enums.engine.vector,
        enums.engine.scalar,
        enums.engine.sync,
    ),
    # Documents ask for shared HBM; nki-library names SBUF tiles too (router_topk, bwmm_shard_on_I).
    (Operand("data", SBUF | {MemoryRegion.shared_hbm}, own_start=True),),
    (_both_cores, not_indirect),
    min_generation=V3,
)


def core_barrier(
    data: NkiTensor,
    cores: Sequence[int],
    engine: enums.engine = enums.engine.gpsimd,
    name: str | None = None,
) -> NkiInstruction:
    """Go on when both cores are here; what they did to `data` before it is done.

    A tile in SBUF is each core's own: then the cores meet, and no access to HBM is ordered.
    """
    core = current()
    facts = (("cores", tuple(cores)),)
    where = CORE_BARRIER.check(core, engine, (data,), facts)
    _require_pair(core, "core_barrier")
    handle = core.issue("core_barrier", where, (data,), (data,), facts, name)
    other = core.meet(handle, "core_barrier", data.storage)
    own = data.buffer is MemoryRegion.sbuf is other.allocation.region
    if other is not data.storage and not own:
        refuse(
            "core_barrier",
            f"core {core.core} synchronises {data.name!r}, the other core"
            f" {other.allocation.name!r}",
            "both cores name the same shared tensor",
            "give both cores the same control flow",
        )
    return NkiInstruction(handle)


def _require_pair(core: Session, instruction: str) -> None:
    if core.pair is None:
        refuse(
            instruction,
            "used on one core",
            "needs the two cores of an LNC2 launch",
            "launch with kernel[2], or leave it out when nl.num_programs(0) is 1",
        )
