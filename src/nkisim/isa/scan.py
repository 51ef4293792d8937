"""Running results along the free axes: tensor_scalar_cumulative and tensor_tensor_scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.enums import reduce_cmd as commands
from nkisim.isa.accumulators import Reduction, loaded_value, reduce_commands, start
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import FP32, NUMBERS
from nkisim.isa.indirect_views import may_be_indirect, not_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, rows, store_floats
from nkisim.isa.operator_rules import binary_operator, one_of, operator_with_scalar
from nkisim.isa.rules import not_both_in_psum, one_column, same_elements, same_partitions
from nkisim.isa.scalars import Scalar, combine, kind, number_or_tile, spread, tile, tiles
from nkisim.numerics import operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.operands import Array

CUMULATIVE_TYPES = NUMBERS - {"int32", "uint32", "tfloat32", "bool", "float8_e8m0fnu"}
CUMULATIVE_OPERATORS = (
    *(operators.add, operators.subtract, operators.multiply),
    *(operators.max, operators.min, operators.maximum, operators.minimum),
)

TENSOR_SCALAR_CUMULATIVE = Contract(
    "tensor_scalar_cumulative",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, CUMULATIVE_TYPES, writes=True),
        Operand("src", CHIP, CUMULATIVE_TYPES),
        Operand("imm0", CHIP, FP32, optional=True),
        Operand("imm1", CHIP, FP32, optional=True),
    ),
    (
        operator_with_scalar("op0", "imm0", "reverse0"),
        one_of("op1", CUMULATIVE_OPERATORS),
        reduce_commands(commands.reset_reduce, commands.reduce, commands.load_reduce),
        number_or_tile("imm1", or_none=True),
        loaded_value("imm1"),
        same_partitions("dst", "src", "imm0", "imm1"),
        same_elements("dst", "src"),
        one_column("imm0", "imm1"),
        may_be_indirect("dst", "src"),
    ),
)


def tensor_scalar_cumulative(
    dst: NkiTensor,
    src: NkiTensor,
    op0: Operator,
    op1: Operator,
    imm0: Scalar,
    imm1: Scalar = None,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.reset_reduce,
    name: str | None = None,
) -> NkiInstruction:
    """Element by element: register = (src <op0> imm0) <op1> register, and dst = register."""
    core = current()
    facts = (
        ("op0", op0),
        ("imm0", kind(imm0)),
        ("reverse0", False),
        ("op1", op1),
        ("imm1", kind(imm1)),
        ("reduce_cmd", reduce_cmd),
    )
    tensors = (dst, src, tile(imm0), tile(imm1))
    where = TENSOR_SCALAR_CUMULATIVE.check(core, enums.engine.unknown, tensors, facts)
    reads = with_indices((dst,), src, *tiles(imm0, imm1))
    options = (("op0", op0.name), ("op1", op1.name), ("reduce_cmd", reduce_cmd.name))
    handle = core.issue("tensor_scalar_cumulative", where, (dst,), reads, options, name)
    if core.values:
        lanes = start(core, where, src, Reduction(reduce_cmd, op1, init=imm1))
        running = _running(op1, combine(op0, rows(src), spread(imm0, 2), reverse=False), lanes)
        store_floats(dst, running)
        lanes[:] = running[:, -1]
    return NkiInstruction(handle)


def _running(op: Operator, values: Array, first: Array) -> Array:
    """Column i is `values[:, i] <op> column i - 1`, rounded to float32 at every step."""
    if op is not operators.subtract:
        columns = np.concatenate([first[:, np.newaxis], values], axis=1)
        assert isinstance(op.on_floats, np.ufunc), "the contract admits NumPy's own operators only"
        with np.errstate(all="ignore"):
            return op.on_floats.accumulate(columns, axis=1)[:, 1:]
    result = np.empty_like(values)
    register = first
    for i in range(values.shape[1]):
        register = result[:, i] = op.apply(values[:, i], register)
    return result


TENSOR_TENSOR_SCAN = Contract(
    "tensor_tensor_scan",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, NUMBERS, writes=True),
        Operand("data0", CHIP, NUMBERS),
        Operand("data1", CHIP, NUMBERS),
        Operand("initial", CHIP, NUMBERS, optional=True),
    ),
    (
        binary_operator("op0", "op1"),
        number_or_tile("initial"),
        same_partitions("dst", "data0", "data1", "initial"),
        same_elements("dst", "data0", "data1"),
        one_column("initial"),
        not_both_in_psum("data0", "data1"),
        not_indirect,
    ),
)


def tensor_tensor_scan(
    dst: NkiTensor,
    data0: NkiTensor,
    data1: NkiTensor,
    initial: Scalar,
    op0: Operator,
    op1: Operator,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """Element by element: state = (data0 <op0> state) <op1> data1, and dst = state, in float32.

    The state starts as `initial`. `reverse0` and `reverse1` swap the inputs of their operator.
    """
    core = current()
    facts = (("op0", op0), ("op1", op1), ("initial", kind(initial)))
    tensors = (dst, data0, data1, tile(initial))
    where = TENSOR_TENSOR_SCAN.check(core, enums.engine.unknown, tensors, facts)
    reads = with_indices((dst,), data0, data1, *tiles(initial))
    options = (("op0", op0.name), ("op1", op1.name))
    handle = core.issue("tensor_tensor_scan", where, (dst,), reads, options, name)
    if core.values:
        left, right = rows(data0).T.copy(), rows(data1).T.copy()
        states = np.empty_like(left)
        state = np.broadcast_to(spread(initial, 1), left.shape[1:])
        for i in range(len(states)):
            before = combine(op0, left[i], state, reverse=reverse0)
            state = states[i] = combine(op1, before, right[i], reverse=reverse1)
        store_floats(dst, np.ascontiguousarray(states.T))
    return NkiInstruction(handle)
