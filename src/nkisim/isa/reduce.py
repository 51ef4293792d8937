"""Reductions of whole tiles: tensor_reduce, tensor_partition_reduce and tensor_scalar_reduce."""

from __future__ import annotations

from math import prod

from nkisim import enums
from nkisim.enums import reduce_cmd as commands
from nkisim.isa.accumulators import (
    Reduction,
    loaded_value,
    reduce_commands,
    reducing_operator,
    store_reducing,
)
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, SBUF, Contract, Operand
from nkisim.isa.element_types import FP32, NUMBERS
from nkisim.isa.indirect_views import may_be_indirect, not_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats, held, rows, store_floats, store_held
from nkisim.isa.operator_rules import bitvec_types, one_of, operator_of, operator_with_scalar
from nkisim.isa.rules import one_column, same_elements, same_partitions
from nkisim.isa.scalars import Scalar, combine, kind, number_or_tile, spread, tile, tiles
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

VECTOR, GPSIMD = enums.engine.vector, enums.engine.gpsimd


def _reduction_operator(call: Call) -> None:
    op = operator_of(call, "op")
    if not op.reduction:
        call.refuse(f"op={op!r}", "an operator that may reduce", "use nl.add, nl.maximum ...")
    if op.bitvec and call.facts["negate"]:
        call.refuse(f"negate with {op!r}", "negate is for arithmetic operators", "leave it out")


def _last_free_axes(call: Call) -> None:
    axes, rank = call.facts["axis"], call["data"].ndim
    legal = [tuple(range(first, rank)) for first in range(rank - 1, 0, -1)]
    if axes not in legal:
        call.refuse(
            f"axis={axes} of a tile with {rank} dimensions",
            f"the last free axes, partitions excepted: {' or '.join(map(str, legal))}",
            "permute the view, or transpose to reduce over partitions",
        )
    kept = prod(call["data"].shape[1 : axes[0]])
    if call["dst"].layout.elems != kept:
        call.refuse(
            f"dst has {call['dst'].layout.elems} elements per partition",
            f"{kept} elements per partition are left of {call['data'].shape} after axis={axes}",
            "shape dst like the axes that stay",
        )


TENSOR_REDUCE = Contract(
    "tensor_reduce",
    (VECTOR,),
    (Operand("dst", CHIP, NUMBERS, writes=True), Operand("data", CHIP, NUMBERS)),
    (
        _reduction_operator,
        bitvec_types("op", "dst", "data"),
        same_partitions("dst", "data"),
        _last_free_axes,
        may_be_indirect("dst", "data"),
    ),
)


def tensor_reduce(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    axis: int | tuple[int, ...] | list[int],
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data folded over its last free axes, negated if asked; `keepdims` is how dst looks."""
    core = current()
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    facts = (("op", op), ("axis", axes), ("negate", negate))
    where = TENSOR_REDUCE.check(core, enums.engine.unknown, (dst, data), facts)
    options = (("op", op.name), ("axis", axes))
    reads = with_indices((dst,), data)
    handle = core.issue("tensor_reduce", where, (dst,), reads, options, name)
    if core.values:
        if op.bitvec:
            bits = op.reduce(held(data), axes)
            store_held(dst, bits.view(dtypes.held_dtype(dst.dtype)))
        else:
            result = op.reduce(floats(data), axes)
            store_floats(dst, -result if negate else result)
    return NkiInstruction(handle)


def _one_partition(call: Call) -> None:
    if call["dst"].shape[0] != 1:
        call.refuse(
            f"dst has {call['dst'].shape[0]} partitions",
            "the result of a reduction over partitions has 1 partition",
            "slice dst to one partition",
        )


PARTITION_REDUCTIONS = (
    *(operators.add, operators.average, operators.max, operators.maximum),
    *(operators.bitwise_or, operators.bitwise_and),
)

TENSOR_PARTITION_REDUCE = Contract(
    "tensor_partition_reduce",
    (GPSIMD,),
    (Operand("dst", SBUF, NUMBERS, writes=True), Operand("data", SBUF, NUMBERS)),
    (
        one_of("op", PARTITION_REDUCTIONS),
        bitvec_types("op", "dst", "data"),
        _one_partition,
        same_elements("dst", "data"),
        not_indirect,
    ),
)


def tensor_partition_reduce(
    dst: NkiTensor, op: Operator, data: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst, of one partition, = data folded over its partitions."""
    core = current()
    where = TENSOR_PARTITION_REDUCE.check(core, enums.engine.unknown, (dst, data), (("op", op),))
    reads = with_indices((dst,), data)
    options = (("op", op.name),)
    handle = core.issue("tensor_partition_reduce", where, (dst,), reads, options, name)
    if core.values:
        if op.bitvec:
            bits = op.reduce(held(data), 0)
            store_held(dst, bits.view(dtypes.held_dtype(dst.dtype)))
        else:
            store_floats(dst, op.reduce(rows(data), 0))
    return NkiInstruction(handle)


def _settled(call: Call) -> None:
    if call.facts["reverse0"]:
        call.refuse("reverse0", "NKI does not support reverse0 here yet", "use nisa.tensor_scalar")
    if call.facts["negate"] and "reduce_res" not in call:
        call.refuse(
            "reduce_res_negate without reduce_res",
            "reduce_res_negate is about what is written to reduce_res",
            "pass reduce_res, or leave reduce_res_negate out",
        )


SCALAR_REDUCTIONS = (
    *(operators.add, operators.multiply, operators.max, operators.min),
    *(operators.maximum, operators.minimum),
)

TENSOR_SCALAR_REDUCE = Contract(
    "tensor_scalar_reduce",
    (VECTOR,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data", CHIP, NUMBERS),
        Operand("operand0", CHIP, FP32, optional=True),
        Operand("reduce_init", CHIP, FP32, optional=True),
        Operand("reduce_res", CHIP, NUMBERS, writes=True, optional=True),
    ),
    (
        operator_with_scalar("op0", "operand0", "reverse0"),
        reducing_operator(*SCALAR_REDUCTIONS),
        reduce_commands(commands.reset_reduce, commands.reduce, commands.load_reduce),
        number_or_tile("reduce_init", or_none=True),
        loaded_value("reduce_init"),
        _settled,
        same_partitions("dst", "data", "operand0", "reduce_init", "reduce_res"),
        same_elements("dst", "data"),
        one_column("operand0", "reduce_init", "reduce_res"),
        may_be_indirect("dst", "data"),
    ),
)


def tensor_scalar_reduce(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Operator,
    operand0: Scalar,
    reduce_op: Operator,
    reduce_res: NkiTensor | None = None,
    reverse0: bool = False,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.reset_reduce,
    reduce_init: Scalar = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data <op0> operand0, and its fold over all free axes in the registers and reduce_res.

    The fold takes the float32 results, before they are cast to the type of dst.
    """
    core = current()
    facts = (
        ("op0", op0),
        ("operand0", kind(operand0)),
        ("reverse0", reverse0),
        ("reduce_op", reduce_op),
        ("reduce_cmd", reduce_cmd),
        ("reduce_init", kind(reduce_init)),
        ("negate", reduce_res_negate),
    )
    tensors = (dst, data, tile(operand0), tile(reduce_init), reduce_res)
    where = TENSOR_SCALAR_REDUCE.check(core, enums.engine.unknown, tensors, facts)
    reduction = Reduction(reduce_cmd, reduce_op, reduce_res, reduce_init, reduce_res_negate)
    writes = (dst, *reduction.results)
    reads = with_indices(writes, data, *tiles(operand0, reduce_init))
    options = (
        ("op0", op0.name),
        ("reduce_op", reduce_op.name),
        ("reduce_cmd", reduce_cmd.name),
    )
    handle = core.issue("tensor_scalar_reduce", where, writes, reads, options, name)
    if core.values:
        values = combine(op0, floats(data), spread(operand0, data.ndim), reverse=False)
        store_reducing(core, where, dst, data, values, reduction)
    return NkiInstruction(handle)
