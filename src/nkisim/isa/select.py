"""Selection on the Vector engine: tensor_copy_predicated, select_reduce and range_select."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.enums import reduce_cmd as commands
from nkisim.isa.accumulators import (
    Reduction,
    reduce_commands,
    reducing_operator,
    store_reducing,
)
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import FLOATS, FP32, INTEGERS, NUMBERS, WORDS
from nkisim.isa.indirect_views import may_be_indirect, not_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats, held, rows, store_held
from nkisim.isa.operator_rules import one_of
from nkisim.isa.rules import (
    not_both_in_psum,
    one_column,
    same_dtype,
    same_elements,
    same_partitions,
)
from nkisim.isa.scalars import (
    FLOAT,
    INTEGER,
    TILE,
    ZERO,
    as_float32,
    kind,
    number_or_tile,
    spread,
    tile,
    tiles,
)
from nkisim.machine import V3
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.contract import Facts
    from nkisim.isa.operands import Array

FP32_MIN = float(np.finfo(np.float32).min)
_MAXIMUM = (operators.maximum, operators.max)
_COMMANDS = (commands.idle, commands.reset_reduce, commands.reduce)


def _number_suits_dst(call: Call) -> None:
    """src and dst share their type: an integer tile takes an integer."""
    given, dtype = call.facts["src"], call["dst"].dtype
    if given == TILE:
        return
    if dtypes.is_packed(dtype) or (dtypes.is_integer(dtype) and given not in (ZERO, INTEGER)):
        call.refuse(
            f"src is {given} and dst is {dtype}",
            "src and dst have the same dtype",
            "pass an integer to an integer tile, and a tile to a packed one",
        )


TENSOR_COPY_PREDICATED = Contract(
    "tensor_copy_predicated",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, writes=True),
        Operand("src", CHIP, optional=True),
        Operand("predicate", CHIP, frozenset({"uint8", "uint16", "uint32"})),
    ),
    (
        number_or_tile("src"),
        _number_suits_dst,
        same_dtype("dst", "src"),
        same_partitions("dst", "src", "predicate"),
        same_elements("dst", "src", "predicate"),
        not_both_in_psum("src", "predicate"),
        may_be_indirect("dst", "predicate"),
    ),
)


def tensor_copy_predicated(
    dst: NkiTensor,
    src: float | NkiTensor,
    predicate: NkiTensor,
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src, bit for bit, where predicate is not 0 (is 0 if reversed); else dst stays."""
    core = current()
    facts = (("src", kind(src)),)
    tensors = (dst, tile(src), predicate)
    where = TENSOR_COPY_PREDICATED.check(core, enums.engine.unknown, tensors, facts)
    reads = with_indices((dst,), *tiles(src), predicate)
    handle = core.issue("tensor_copy_predicated", where, (dst,), reads, (), name)
    if core.values:
        chosen = _chosen(predicate, dst.shape, reverse=reverse_pred)
        if isinstance(src, NkiTensor):
            value = held(src).reshape(dst.shape)
        else:
            value = _held_number(src, dst)
        store_held(dst, np.where(chosen, value, held(dst)))
    return NkiInstruction(handle)


def _chosen(predicate: NkiTensor, shape: tuple[int, ...], *, reverse: bool) -> Array:
    bits = held(predicate).reshape(shape)
    return np.equal(bits, 0) if reverse else np.not_equal(bits, 0)


def _held_number(value: float, dst: NkiTensor) -> Array:
    """A number as dst holds it; integers saturate."""
    if dst.dtype in INTEGERS:
        native = dtypes.held_dtype(dst.dtype)
        limits = np.iinfo(native)
        return np.array(min(max(int(value), int(limits.min)), int(limits.max)), native)
    return dtypes.from_float32(as_float32(value), dst.dtype, precise=dst.storage.precise)


SELECT_REDUCE = Contract(
    "select_reduce",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("predicate", CHIP, frozenset({"int8", "uint8", "int16", "uint16"})),
        Operand("on_true", CHIP, NUMBERS - WORDS - {"tfloat32"}),
        Operand("on_false", CHIP, NUMBERS, optional=True),
        Operand("reduce_res", CHIP, FLOATS, writes=True, optional=True),
    ),
    (
        number_or_tile("on_false"),
        reduce_commands(*_COMMANDS),
        reducing_operator(*_MAXIMUM),
        same_partitions("dst", "predicate", "on_true", "on_false", "reduce_res"),
        same_elements("dst", "predicate", "on_true"),
        one_column("on_false", "reduce_res"),
        not_both_in_psum("on_true", "predicate"),
        not_indirect,
    ),
)


def select_reduce(
    dst: NkiTensor,
    predicate: NkiTensor,
    on_true: NkiTensor,
    on_false: float | NkiTensor,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.idle,
    reduce_op: Operator = operators.maximum,
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true where predicate is not 0 (is 0 if reversed), else on_false.

    The registers take the maximum over the free axes, of the float32 values before they are cast.
    """
    core = current()
    facts = (
        ("on_false", kind(on_false)),
        ("reduce_op", reduce_op),
        ("reduce_cmd", reduce_cmd),
    )
    tensors = (dst, predicate, on_true, tile(on_false), reduce_res)
    where = SELECT_REDUCE.check(core, enums.engine.unknown, tensors, facts)
    reduction = Reduction(reduce_cmd, reduce_op, reduce_res)
    writes = (dst, *reduction.results)
    reads = with_indices(writes, predicate, on_true, *tiles(on_false))
    options = (("reduce_cmd", reduce_cmd.name),)
    handle = core.issue("select_reduce", where, writes, reads, options, name)
    if core.values:
        chosen = _chosen(predicate, on_true.shape, reverse=reverse_pred)
        values = np.where(chosen, floats(on_true), spread(on_false, on_true.ndim))
        store_reducing(core, where, dst, on_true, values, reduction)
    return NkiInstruction(handle)


_RANGE_COMPARISONS = (
    *(operators.equal, operators.less, operators.less_equal),
    *(operators.greater, operators.greater_equal),
)
_EXACT_INDICES = 2**24  # consecutive integers that float32 holds


def _range_arguments(call: Call) -> None:
    if not call.facts["start_is_integer"]:
        call.refuse("range_start", "range_start is a compile-time integer", "pass a Python integer")
    if not call.facts["indices_are_exact"]:
        call.refuse(
            "range_start plus the free index",
            f"indices are compared in float32: at most {_EXACT_INDICES} (2**24) in magnitude",
            "shift range_start and both bounds",
        )
    if not call.facts["fills_with_minimum"]:
        call.refuse(
            "on_false_value",
            f"on_false_value is the least float32, {FP32_MIN:.8g}",
            "leave it out, or use nisa.select_reduce or nisa.affine_select",
        )


RANGE_SELECT = Contract(
    "range_select",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("on_true_tile", CHIP, FLOATS),
        Operand("bound0", CHIP, FP32),
        Operand("bound1", CHIP, FP32),
        Operand("reduce_res", CHIP, NUMBERS, writes=True, optional=True),
    ),
    (
        one_of("comp_op0", _RANGE_COMPARISONS),
        one_of("comp_op1", _RANGE_COMPARISONS),
        reduce_commands(*_COMMANDS),
        reducing_operator(*_MAXIMUM),
        _range_arguments,
        same_partitions("dst", "on_true_tile", "bound0", "bound1", "reduce_res"),
        same_elements("dst", "on_true_tile"),
        one_column("bound0", "bound1", "reduce_res"),
        not_indirect,
    ),
    min_generation=V3,
)


def range_select(
    dst: NkiTensor,
    on_true_tile: NkiTensor,
    comp_op0: Operator,
    comp_op1: Operator,
    bound0: NkiTensor,
    bound1: NkiTensor,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.reset_reduce,
    reduce_res: NkiTensor | None = None,
    reduce_op: Operator = operators.maximum,
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true_tile where i <comp_op0> bound0 and i <comp_op1> bound1, else the least float32.

    i is `range_start` plus the element's number in its partition. The registers take the maximum.
    """
    core = current()
    facts = (
        ("comp_op0", comp_op0),
        ("comp_op1", comp_op1),
        ("reduce_op", reduce_op),
        ("reduce_cmd", reduce_cmd),
        *_range_facts(on_true_tile, range_start, on_false_value),
    )
    tensors = (dst, on_true_tile, bound0, bound1, reduce_res)
    where = RANGE_SELECT.check(core, enums.engine.unknown, tensors, facts)
    reduction = Reduction(reduce_cmd, reduce_op, reduce_res)
    writes = (dst, *reduction.results)
    reads = with_indices(writes, on_true_tile, bound0, bound1)
    options = (("reduce_cmd", reduce_cmd.name),)
    handle = core.issue("range_select", where, writes, reads, options, name)
    if core.values:
        values = rows(on_true_tile)
        index = np.arange(range_start, range_start + values.shape[1], dtype=np.float32)
        inside = comp_op0.apply(index, rows(bound0)) * comp_op1.apply(index, rows(bound1))
        values = np.where(inside != 0, values, np.float32(FP32_MIN))
        store_reducing(core, where, dst, on_true_tile, values, reduction)
    return NkiInstruction(handle)


def _range_facts(data: NkiTensor, start: int, fill: float) -> Facts:
    is_integer = isinstance(start, (int, np.integer))
    count = data.layout.elems if isinstance(data, NkiTensor) else 0
    last = start + count - 1 if is_integer else 0
    return (
        ("start_is_integer", is_integer),
        ("indices_are_exact", is_integer and max(abs(start), abs(last)) <= _EXACT_INDICES),
        ("fills_with_minimum", kind(fill) == FLOAT and bool(as_float32(fill) == FP32_MIN)),
    )
