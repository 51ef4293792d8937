"""Searching partitions for values on the Vector engine: max8, nc_find_index8, nc_match_replace8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import NUMBERS
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import NkiInstruction, index_tensors, rows, store_floats, store_held
from nkisim.isa.rules import same_elements, same_partitions
from nkisim.numerics import dtypes
from nkisim.running.session import current

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nkisim.isa.call import Rule
    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor

_FOUND = 8  # values that one instruction finds
_INDEX_TYPES = frozenset({"uint16", "uint32"})
_MOST_DIMS = 3


def _searched(name: str) -> Rule:
    """The operand that is searched: its elements and dimensions."""

    def rule(call: Call) -> None:
        machine, layout = call.machine, call[name].layout
        if not machine.search_min_elems <= layout.elems <= machine.search_max_elems:
            call.refuse(
                f"{name} has {layout.elems} elements per partition",
                f"{machine.search_min_elems}..{machine.search_max_elems} elements per partition",
                "search in parts, or pad with the lowest value",
            )
        if len(layout.free) + 1 > _MOST_DIMS:
            call.refuse(
                f"{name} {call[name].shape} needs {len(layout.free) + 1} dimensions",
                f"{_MOST_DIMS} dimensions, partitions included",
                "merge dimensions, or search in parts",
            )

    return rule


def _eight(*names: str) -> Rule:
    def rule(call: Call) -> None:
        for name in names:
            if name in call and call[name].layout.elems != _FOUND:
                call.refuse(
                    f"{name} has {call[name].layout.elems} elements per partition",
                    f"{_FOUND} elements per partition",
                    f"pass a (P, {_FOUND}) tile",
                )

    return rule


MAX8 = Contract(
    "max8",
    (enums.engine.vector,),
    (Operand("dst", CHIP, NUMBERS, writes=True), Operand("src", CHIP, NUMBERS)),
    (_searched("src"), _eight("dst"), same_partitions("dst", "src"), not_indirect),
)


def max8(dst: NkiTensor, src: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = the eight largest values of every partition, the largest first."""
    core = current()
    where = MAX8.check(core, enums.engine.unknown, (dst, src))
    handle = core.issue("max8", where, (dst,), (src, *index_tensors(dst, src)), (), name)
    if core.values:
        store_floats(dst, np.sort(rows(src), axis=1)[:, : -_FOUND - 1 : -1])
    return NkiInstruction(handle)


NC_FIND_INDEX8 = Contract(
    "nc_find_index8",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, _INDEX_TYPES, writes=True),
        Operand("data", CHIP, NUMBERS),
        Operand("vals", CHIP, NUMBERS),
    ),
    (
        _searched("data"),
        _eight("dst", "vals"),
        same_partitions("dst", "data", "vals"),
        not_indirect,
    ),
)


def nc_find_index8(
    dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst[k] = where in its partition of data value vals[k] is; all bits set if it is nowhere.

    A value that occurs several times in vals finds its occurrences in data one after the other.
    """
    core = current()
    where = NC_FIND_INDEX8.check(core, enums.engine.unknown, (dst, data, vals))
    reads = (data, vals, *index_tensors(dst, data, vals))
    handle = core.issue("nc_find_index8", where, (dst,), reads, (), name)
    if core.values:
        _store_positions(dst, _matches(rows(data), rows(vals), range(_FOUND)))
    return NkiInstruction(handle)


NC_MATCH_REPLACE8 = Contract(
    "nc_match_replace8",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data", CHIP, NUMBERS),
        Operand("vals", CHIP, NUMBERS),
        Operand("dst_idx", CHIP, _INDEX_TYPES, writes=True, optional=True),
    ),
    (
        _searched("data"),
        _eight("vals", "dst_idx"),
        same_elements("dst", "data"),
        same_partitions("dst", "data", "vals", "dst_idx"),
        not_indirect,
    ),
)


def nc_match_replace8(
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data with the first occurrence of each of the eight values replaced by imm.

    dst_idx[k] = where vals[k] was, all bits set if nowhere. Of equal values the last finds the
    first occurrence, the one before it the second, and so on.
    """
    core = current()
    where = NC_MATCH_REPLACE8.check(core, enums.engine.unknown, (dst, data, vals, dst_idx))
    written = (dst,) if dst_idx is None else (dst, dst_idx)
    reads = (data, vals, *index_tensors(*written, data, vals))
    handle = core.issue("nc_match_replace8", where, written, reads, (), name)
    if core.values:
        values = np.array(rows(data))
        positions = _matches(values, rows(vals), range(_FOUND - 1, -1, -1))
        lanes, columns = np.nonzero(positions >= 0)
        values[lanes, positions[lanes, columns]] = imm
        store_floats(dst, values)
        if dst_idx is not None:
            _store_positions(dst_idx, positions)
    return NkiInstruction(handle)


def _matches(data: Array, vals: Array, order: Iterable[int]) -> Array:
    """[partitions, 8] positions in data, each used once, -1 where there is none left."""
    positions = np.full(vals.shape, -1, np.int64)
    taken = np.zeros(data.shape, np.bool_)
    lanes = np.arange(len(data))
    for column in order:
        hits = (data == vals[:, column : column + 1]) & ~taken
        found = hits.any(axis=1)
        first = hits.argmax(axis=1)
        taken[lanes[found], first[found]] = True
        positions[found, column] = first[found]
    return positions


def _store_positions(dst: NkiTensor, positions: Array) -> None:
    """-1 turns into a pattern of ones."""
    store_held(dst, positions.astype(dtypes.held_dtype(dst.dtype)))
