"""Gathers along the free dimension on the GpSimd engine: local_gather, nc_n_gather."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.errors import refuse
from nkisim.isa.call import Call
from nkisim.isa.contract import SBUF, Contract, Operand
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import Array, NkiInstruction, held, index_tensors, store_held
from nkisim.isa.rules import same_dtype, same_elements, same_partitions
from nkisim.running.session import current

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor

_RUNS = (1, 2, 4, 8, 16, 32)  # elements a local_gather index may fetch


def _whole_groups(call: Call) -> None:
    group, partitions = call.machine.gather_group_partitions, call["index"].shape[0]
    if partitions % group:
        call.refuse(
            f"{partitions} partitions",
            f"a multiple of {group} partitions, those of one GpSimd core",
            "pad the tile",
        )


def _gathered_size(call: Call) -> None:
    run, used = call.facts["run"], call.facts["used"]
    if run not in _RUNS:
        call.refuse(f"num_elem_per_idx={run!r}", f"one of {_RUNS} elements", "choose one of them")
    held_indices = call.machine.gather_group_partitions * call["index"].layout.elems
    count = held_indices if used is None else used
    most = min(held_indices, call.machine.gather_max_indices)
    if not isinstance(count, int) or not 1 <= count <= most:
        call.refuse(
            f"{count} indices per GpSimd core (num_valid_indices={used})",
            f"1..{most} indices; the index tile holds {held_indices} per core",
            "gather in several steps",
        )
    if call["dst"].layout.elems != count * run:
        call.refuse(
            f"dst has {call['dst'].layout.elems} elements per partition",
            f"{count} indices x {run} elements",
            "shape dst for the gathered elements, or pass num_valid_indices",
        )


LOCAL_GATHER = Contract(
    "local_gather",
    (enums.engine.gpsimd,),
    (
        Operand("dst", SBUF, writes=True),
        Operand("src_buffer", SBUF),
        Operand("index", SBUF, frozenset({"uint16"})),
    ),
    (
        same_partitions("dst", "src_buffer", "index"),
        same_dtype("dst", "src_buffer"),
        _whole_groups,
        _gathered_size,
        not_indirect,
    ),
)


def local_gather(
    dst: NkiTensor,
    src_buffer: NkiTensor,
    index: NkiTensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each 16 partitions share the indices in their part of `index`, read partition first.

    Index k puts the num_elem_per_idx elements from `index[k]` on into their place k of dst.
    """
    core = current()
    facts = (("run", num_elem_per_idx), ("used", num_valid_indices))
    tensors = (dst, src_buffer, index)
    where = LOCAL_GATHER.check(core, enums.engine.unknown, tensors, facts)
    reads = (src_buffer, index, *index_tensors(dst, src_buffer, index))
    handle = core.issue("local_gather", where, (dst,), reads, facts, name)
    if core.values:
        count = dst.layout.elems // num_elem_per_idx
        group = core.machine.gather_group_partitions
        starts = _shared_indices(held(index).astype(np.int64), group)[:, :count]
        positions = starts[:, :, np.newaxis] + np.arange(num_elem_per_idx)
        store_held(dst, _taken("local_gather", src_buffer, positions))
    return NkiInstruction(handle)


def _shared_indices(index: Array, group: int) -> Array:
    """[partitions, indices]: the indices of a group, partition by partition, for each of it."""
    groups = index.reshape(-1, group, index.size // index.shape[0])
    flat = groups.transpose(0, 2, 1).reshape(len(groups), -1)
    return np.repeat(flat, group, axis=0)


def _taken(instruction: str, data: NkiTensor, positions: Array) -> Array:
    """Elements of every partition of `data` at `positions`, all free axes flattened."""
    rows = held(data).reshape(data.shape[0], -1)
    flat = positions.reshape(data.shape[0], -1)
    outside = flat[(flat < 0) | (flat >= rows.shape[1])]
    if outside.size:
        refuse(
            instruction,
            f"index {int(outside[0])} of a partition of {data.name!r}",
            f"{rows.shape[1]} elements per partition",
            "fix the indices",
        )
    return np.take_along_axis(rows, flat, axis=1)


NC_N_GATHER = Contract(
    "nc_n_gather",
    (enums.engine.gpsimd,),
    (
        Operand("dst", SBUF, writes=True),
        Operand("data", SBUF),
        Operand("indices", SBUF, frozenset({"uint32"})),
    ),
    (
        same_partitions("dst", "data", "indices"),
        same_dtype("dst", "data"),
        same_elements("dst", "indices"),
        not_indirect,
    ),
)


def nc_n_gather(
    dst: NkiTensor, data: NkiTensor, indices: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """In every partition, element k of dst = element indices[k] of data, free axes flattened."""
    core = current()
    where = NC_N_GATHER.check(core, enums.engine.unknown, (dst, data, indices))
    reads = (data, indices, *index_tensors(dst, data, indices))
    handle = core.issue("nc_n_gather", where, (dst,), reads, (), name)
    if core.values:
        positions = held(indices).astype(np.int64)
        store_held(dst, _taken("nc_n_gather", data, positions))
    return NkiInstruction(handle)
