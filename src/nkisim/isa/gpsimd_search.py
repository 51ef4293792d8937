"""Searches on the GpSimd engine: nonzero_with_count, topk, sequence_bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.isa.call import Call
from nkisim.isa.contract import SBUF, Contract, Operand
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import (
    NkiInstruction,
    floats,
    held,
    index_tensors,
    rows,
    store_floats,
    store_held,
)
from nkisim.isa.rules import same_partitions
from nkisim.machine import V3
from nkisim.running.session import Session, current

if TYPE_CHECKING:
    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor

_INT32 = frozenset({"int32"})
_FP32_OR_INT32 = frozenset({"float32", "int32"})
_WORD = np.iinfo(np.int32)


def _room_for_count(call: Call) -> None:
    elems = call["src"].layout.elems
    if call["dst"].layout.elems != elems + 1:
        call.refuse(
            f"dst has {call['dst'].layout.elems} elements per partition",
            f"{elems + 1}: one index per element of src, and the count",
            "give dst one element more than src",
        )
    for name in ("index_offset", "padding_val"):
        value = call.facts[name]
        if not isinstance(value, int) or not _WORD.min <= value <= _WORD.max:
            call.refuse(f"{name}={value!r}", "an int32 known at compile time", "pass an integer")


NONZERO_WITH_COUNT = Contract(
    "nonzero_with_count",
    (enums.engine.gpsimd,),
    (Operand("dst", SBUF, _INT32, writes=True), Operand("src", SBUF, _FP32_OR_INT32)),
    (same_partitions("dst", "src"), _room_for_count, not_indirect),
    min_generation=V3,
)


def nonzero_with_count(
    dst: NkiTensor,
    src: NkiTensor,
    index_offset: int = 0,
    padding_val: int = -1,
    name: str | None = None,
) -> NkiInstruction:
    """dst = positions of the non-zero elements (+ index_offset), padding, and last their count.

    Only partitions 0, 16, 32 ... take part, the first of each GpSimd core; the others stay.
    """
    core = current()
    facts = (("index_offset", index_offset), ("padding_val", padding_val))
    where = NONZERO_WITH_COUNT.check(core, enums.engine.unknown, (dst, src), facts)
    reads = (src, *index_tensors(dst, src))
    handle = core.issue("nonzero_with_count", where, (dst,), reads, (), name)
    if core.values:
        values = np.array(held(dst)).reshape(dst.shape[0], -1)
        data = held(src).reshape(src.shape[0], -1)
        for lane in range(0, src.shape[0], core.machine.gather_group_partitions):
            found = np.flatnonzero(data[lane])
            values[lane] = padding_val
            values[lane, : len(found)] = found + index_offset
            values[lane, -1] = len(found)
        store_held(dst, values)
    return NkiInstruction(handle)


def _snake_sizes(call: Call) -> None:
    machine, count = call.machine, call.facts["n"]
    kept, group = call["val_dst"].layout.elems, machine.gather_group_partitions
    capacity = group * call["src"].layout.elems
    most = min(capacity, machine.topk_max_elems)
    if not isinstance(count, int) or not machine.topk_min_elems <= count <= most:
        call.refuse(
            f"n={count!r} with src of {call['src'].layout.elems} elements per partition",
            f"{machine.topk_min_elems}..{most}: up to {capacity} values in {group} partitions",
            "widen src, or search in parts",
        )
    if kept > min(count, machine.topk_max_kept) or call["idx_dst"].layout.elems != kept:
        call.refuse(
            f"K={kept} (val_dst) and {call['idx_dst'].layout.elems} (idx_dst) of n={count}",
            f"1..{min(count, machine.topk_max_kept)}, the same for values and indices",
            "shape both results [partitions, K]",
        )
    if call["src"].shape[0] % group:
        call.refuse(
            f"{call['src'].shape[0]} partitions", f"a multiple of {group} partitions", "pad src"
        )


TOPK = Contract(
    "topk",
    (enums.engine.gpsimd,),
    (
        Operand("val_dst", SBUF, frozenset({"bfloat16"}), writes=True),
        Operand("idx_dst", SBUF, frozenset({"uint32"}), writes=True),
        Operand("src", SBUF, frozenset({"bfloat16"})),
    ),
    (same_partitions("val_dst", "idx_dst", "src"), _snake_sizes, not_indirect),
)


def topk(
    val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, n: int, name: str | None = None
) -> NkiInstruction:
    """The K largest of n values, K being the width of val_dst, in every 16 partitions.

    Value i lies in partition i % 16, column i // 16 ("snake"). Results lie in the same way, in
    ascending order; the order on a device is not documented, so rely on the set of pairs only.
    """
    core = current()
    facts = (("n", n),)
    where = TOPK.check(core, enums.engine.unknown, (val_dst, idx_dst, src), facts)
    reads = (src, *index_tensors(val_dst, idx_dst, src))
    handle = core.issue("topk", where, (val_dst, idx_dst), reads, facts, name)
    if core.values:
        _keep_largest(core, val_dst, idx_dst, src, n)
    return NkiInstruction(handle)


def _keep_largest(
    core: Session, val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, count: int
) -> None:
    group, kept = core.machine.gather_group_partitions, val_dst.layout.elems
    data = rows(src)
    values = np.array(rows(val_dst))
    indices = np.array(held(idx_dst)).reshape(idx_dst.shape[0], -1)
    place = np.arange(kept)
    for start in range(0, src.shape[0], group):
        snake = data[start : start + group].T.reshape(-1)[:count]
        order = np.argsort(-snake, kind="stable")[:kept][::-1]  # of equal values, the first
        values[start + place % group, place // group] = snake[order]
        indices[start + place % group, place // group] = order
    store_floats(val_dst, values)
    store_held(idx_dst, indices)


def _bounds_shape(call: Call) -> None:
    ids, dst = call["segment_ids"], call["dst"]
    if ids.shape[0] != 1 or dst.shape != (1, 2, ids.layout.elems):
        call.refuse(
            f"dst {dst.shape} for segment_ids {ids.shape}",
            "one partition: dst (1, 2, n) for segment_ids (1, n)",
            "shape dst as starts and ends",
        )


SEQUENCE_BOUNDS = Contract(
    "sequence_bounds",
    (enums.engine.gpsimd,),
    (
        Operand("dst", SBUF, _FP32_OR_INT32, writes=True),
        Operand("segment_ids", SBUF, _FP32_OR_INT32),
    ),
    (_bounds_shape, not_indirect),
)


def sequence_bounds(
    dst: NkiTensor, segment_ids: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst[0, 0] and dst[0, 1] = first element and end of the run of equal ids each element is in.

    Elements with id 0 are padding: start n, end -1.
    """
    core = current()
    where = SEQUENCE_BOUNDS.check(core, enums.engine.unknown, (dst, segment_ids))
    reads = (segment_ids, *index_tensors(dst, segment_ids))
    handle = core.issue("sequence_bounds", where, (dst,), reads, (), name)
    if core.values:
        store_floats(dst, _run_bounds(floats(segment_ids).reshape(-1)).astype(np.float32))
    return NkiInstruction(handle)


def _run_bounds(ids: Array) -> Array:
    """[2, n] starts and ends of runs of equal ids."""
    count = len(ids)
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    run = np.searchsorted(starts, np.arange(count), side="right") - 1
    bounds = np.stack([starts[run], np.r_[starts[1:], count][run]])
    bounds[:, ids == 0] = [[count], [-1]]
    return bounds
