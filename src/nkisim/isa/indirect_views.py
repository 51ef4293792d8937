"""Tensor indirection of the compute engines: rules for views made by `.indirect(index)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.enums import engine
from nkisim.isa.element_types import INTEGERS
from nkisim.isa.operands import index_tensors
from nkisim.machine import V4
from nkisim.memory.layout import MemoryRegion
from nkisim.tensors.tensor import FreeIndex

if TYPE_CHECKING:
    from nkisim.isa.call import Call, Rule
    from nkisim.tensors.tensor import NkiTensor


def with_indices(writes: tuple[NkiTensor, ...], *reads: NkiTensor) -> tuple[NkiTensor, ...]:
    """All that an instruction reads: `reads`, and the index tiles of everything it touches."""
    return (*reads, *index_tensors(*writes, *reads))


def may_be_indirect(dst: str, source: str) -> Rule:
    """Of the operands only `dst` (scatter) and `source` (gather) may be views by `.indirect()`."""

    def rule(call: Call) -> None:
        indices = {}
        for name in call.tensors:
            index = _index_of(call, name)
            if index is not None:
                _require_support(call, name, (dst, source))
                _require_index(call, name, index)
                indices[name] = index
        if source in indices:
            _same_start(call, source, call[source], indices[source])
        if dst in indices:
            _scatter_starts(call, dst, source, indices)

    return rule


def not_indirect(call: Call) -> None:
    """No operand is a view made by `.indirect()`."""
    for name in call.tensors:
        if _index_of(call, name) is not None:
            _refuse_indirect(call, name)


def _index_of(call: Call, name: str) -> NkiTensor | None:
    indirection = call[name].indirection
    return indirection.index if isinstance(indirection, FreeIndex) else None


def _refuse_indirect(call: Call, name: str) -> None:
    call.refuse(
        f"{name} is a view made by .indirect()",
        f"{name} does not support tensor indirection",
        "gather it with tensor_copy first",
    )


def _require_support(call: Call, name: str, supporting: tuple[str, str]) -> None:
    if call.machine.generation < V4:
        call.refuse(
            f"{name} is a view made by .indirect() on {call.machine.name}",
            "tensor indirection exists from NeuronCore-v4 on",
            "use nisa.local_gather or nisa.nc_n_gather",
        )
    if name not in supporting:
        _refuse_indirect(call, name)


def _require_index(call: Call, name: str, index: NkiTensor) -> None:
    quadrant, group = call.machine.quadrant_partitions, call.machine.gather_group_partitions
    if index.buffer is not MemoryRegion.sbuf or index.dtype not in INTEGERS:
        call.refuse(
            f"the index of {name} is {index.dtype} in {index.buffer.value}",
            "an index is an integer tile in SBUF",
            "cast and copy it with tensor_copy",
        )
    if index.start_partition % quadrant:
        call.refuse(
            f"the index of {name} starts at partition {index.start_partition}",
            f"an index starts on a multiple of {quadrant} partitions",
            "allocate it on such a partition",
        )
    offsets = min(group, index.shape[0]) * index.layout.elems
    if call[name].layout.elems > offsets:
        call.refuse(
            f"{name} takes {call[name].layout.elems} elements, its index holds {offsets}",
            f"the offsets of a group of {group} partitions",
            "pass num_elem to .indirect(), or widen the index",
        )


def _same_start(call: Call, name: str, tensor: NkiTensor, index: NkiTensor) -> None:
    if tensor.start_partition != index.start_partition:
        call.refuse(
            f"{name} starts at partition {tensor.start_partition} and"
            f" the index that belongs to it at partition {index.start_partition}",
            "both start on the same partition",
            "allocate them on the same partition",
        )


def _scatter_starts(call: Call, dst: str, source: str, indices: dict[str, NkiTensor]) -> None:
    if call.engine is engine.scalar and call[dst].buffer is MemoryRegion.psum:
        call.refuse(
            f"{dst} is a view made by .indirect() in psum",
            "the Scalar engine scatters to SBUF only",
            "scatter into an SBUF tile",
        )
    if source not in call:
        return
    if call[source].buffer is MemoryRegion.sbuf:
        _same_start(call, source, call[source], indices[dst])
    elif source in indices:
        _same_start(call, f"the index of {source}", indices[source], indices[dst])
