"""Mean and variance on the Vector engine: bn_stats of a tile, bn_aggr of several bn_stats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import NUMBERS
from nkisim.isa.indirect_views import not_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, rows, store_floats
from nkisim.isa.rules import same_partitions
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.call import Rule
    from nkisim.isa.operands import Array

_TRIPLE = 3  # count, mean, variance * count


def _result_elements(count: int, meaning: str) -> Rule:
    def rule(call: Call) -> None:
        if call["dst"].layout.elems != count:
            call.refuse(
                f"dst has {call['dst'].layout.elems} elements per partition",
                f"{count} elements per partition: {meaning}",
                f"pass a (P, {count}) tile",
            )

    return rule


def _few_enough(call: Call) -> None:
    elems, most = call["data"].layout.elems, call.machine.bn_stats_max_elems
    if elems > most:
        call.refuse(
            f"data has {elems} elements per partition",
            f"{most} elements per partition",
            "take statistics of pieces and combine them with nisa.bn_aggr",
        )


BN_STATS = Contract(
    "bn_stats",
    (enums.engine.vector,),
    (Operand("dst", CHIP, NUMBERS, writes=True), Operand("data", CHIP, NUMBERS)),
    (
        same_partitions("dst", "data"),
        _result_elements(
            2 * _TRIPLE, "count, mean and variance * count, of even then odd elements"
        ),
        _few_enough,
        not_indirect,
    ),
)


def bn_stats(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = (count, mean, variance * count) of the even elements, then of the odd ones."""
    core = current()
    where = BN_STATS.check(core, enums.engine.unknown, (dst, data))
    handle = core.issue("bn_stats", where, (dst,), with_indices((dst,), data), (), name)
    if core.values:
        values = rows(data)
        store_floats(dst, np.hstack([_triple(values[:, 0::2]), _triple(values[:, 1::2])]))
    return NkiInstruction(handle)


def _triple(values: Array) -> Array:
    """Count, mean and sum of squared distances a row; of no elements, zeros."""
    result = np.zeros((len(values), _TRIPLE), np.float32)
    count = values.shape[1]
    if count:
        with np.errstate(all="ignore"):
            mean = values.mean(axis=1, keepdims=True)
            result[:, 0] = count
            result[:, 1] = mean[:, 0]
            result[:, 2] = np.square(values - mean).sum(axis=1)
    return result


def _whole_triples(call: Call) -> None:
    elems = call["data"].layout.elems
    if elems % _TRIPLE:
        call.refuse(
            f"data has {elems} elements per partition",
            f"a multiple of {_TRIPLE} elements: (count, mean, variance * count) triples",
            "pass whole results of nisa.bn_stats",
        )


BN_AGGR = Contract(
    "bn_aggr",
    (enums.engine.vector,),
    (Operand("dst", CHIP, NUMBERS, writes=True), Operand("data", CHIP, NUMBERS)),
    (
        same_partitions("dst", "data"),
        _result_elements(2, "mean and variance"),
        _whole_triples,
        not_indirect,
    ),
)


def bn_aggr(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = (mean, variance) of everything that the triples of data describe.

    A triple of count 0 has no say, whatever its other two values are.
    """
    core = current()
    where = BN_AGGR.check(core, enums.engine.unknown, (dst, data))
    handle = core.issue("bn_aggr", where, (dst,), with_indices((dst,), data), (), name)
    if core.values:
        store_floats(dst, _pooled(rows(data).reshape(data.shape[0], -1, _TRIPLE)))
    return NkiInstruction(handle)


def _pooled(triples: Array) -> Array:
    counts = triples[:, :, 0]
    means, spreads = np.where(counts != 0, np.moveaxis(triples[:, :, 1:], 2, 0), np.float32(0))
    with np.errstate(all="ignore"):
        total = counts.sum(axis=1, keepdims=True)
        mean = (counts * means).sum(axis=1, keepdims=True) / total
        spread = (spreads + counts * np.square(means - mean)).sum(axis=1, keepdims=True)
        return np.hstack([mean, spread / total])
