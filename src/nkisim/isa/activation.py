"""The Scalar engine's activation functions: activation and activation_reduce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim import enums
from nkisim.device_rules.instruction_rules import COPY_WITH_BIAS
from nkisim.enums import reduce_cmd as commands
from nkisim.errors import UnsupportedError
from nkisim.isa.accumulators import (
    Reduction,
    reduce_commands,
    reducing_operator,
    store_reducing,
)
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import FP32, NUMBERS
from nkisim.isa.indirect_views import may_be_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats
from nkisim.isa.operator_rules import operator_of
from nkisim.isa.rules import one_column, same_elements, same_partitions
from nkisim.isa.scalars import NOTHING, TILE, Scalar, kind, number_or_tile, spread, tile, tiles
from nkisim.machine import V3
from nkisim.numerics import operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.source_lines import warn_user
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.operands import Array

SCALAR_ENGINE_COMMANDS = (*(commands.idle, commands.reset, commands.reduce, commands.reset_reduce),)


class OutOfRangeWarning(UserWarning):
    """An activation function was given values for which its results are not valid."""


def activation_function(call: Call) -> None:
    """The fact `op` is a function of the Scalar engine."""
    op = operator_of(call, "op")
    if not op.activation:
        call.refuse(
            f"op={op!r}",
            "an activation function",
            "use one, for example nl.copy; ALU operators go to nisa.tensor_scalar",
        )


def _function_without_slope(call: Call) -> None:
    if call.facts["op"] is operators.prelu:
        raise UnsupportedError(
            "op=nl.prelu",
            instruction=call.instruction,
            limit="the slope that prelu has here is not documented",
            remedy="use nisa.activate2, which takes it as relu_param",
        )


def _reduction_has_effect(call: Call) -> None:
    idle = call.facts["reduce_cmd"] is commands.idle
    if call.facts["reduce_op"] is operators.add and idle and "reduce_res" not in call:
        call.refuse(
            f"reduce_op={call.facts['reduce_op']!r} with reduce_cmd.idle and no reduce_res",
            "a reduction needs a reduce_cmd that runs it",
            "pass reduce_cmd=nisa.reduce_cmd.reset_reduce and reduce_res, or drop reduce_op",
        )


def _bias_of_generation(call: Call) -> None:
    given = call.facts["bias"]
    if call.machine.generation >= V3 or given == NOTHING:
        return
    if given != TILE:
        call.refuse(
            f"bias is {given} on {call.machine.name}",
            "bias is a (P, 1) tile before NeuronCore-v3",
            "fill a tile with the number, or leave bias out",
        )
    if call.facts["op"] is operators.reciprocal:
        call.refuse(
            f"bias with nl.reciprocal on {call.machine.name}",
            "nl.reciprocal has no bias before NeuronCore-v3",
            "add it in an instruction of its own",
        )


def _copy_with_bias(call: Call) -> None:
    if call.facts["op"] is operators.copy and call.facts["bias"] == TILE:
        call.breaks(COPY_WITH_BIAS, f"nl.copy with a bias tile on {call.machine.name}")


def _activation_contract(name: str) -> Contract:
    return Contract(
        name,
        (enums.engine.scalar,),
        (
            Operand("dst", CHIP, NUMBERS, writes=True),
            Operand("data", CHIP, NUMBERS),
            Operand("scale", CHIP, FP32, optional=True),
            Operand("bias", CHIP, NUMBERS - {"tfloat32"}, optional=True),
            Operand("reduce_res", CHIP, NUMBERS, writes=True, optional=True),
        ),
        (
            activation_function,
            _function_without_slope,
            number_or_tile("scale"),
            number_or_tile("bias", or_none=True),
            _bias_of_generation,
            _copy_with_bias,
            _reduction_has_effect,
            reduce_commands(*SCALAR_ENGINE_COMMANDS),
            reducing_operator(operators.add, or_none=True),
            same_partitions("dst", "data", "scale", "bias", "reduce_res"),
            same_elements("dst", "data"),
            one_column("scale", "bias", "reduce_res"),
            may_be_indirect("dst", "data"),
        ),
    )


ACTIVATION = _activation_contract("activation")
ACTIVATION_REDUCE = _activation_contract("activation_reduce")


def activation(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    bias: Scalar = None,
    scale: float | NkiTensor = 1.0,
    reduce_op: Operator | None = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.idle,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op(data * scale + bias) in float32, and its sum over the free axes in the registers.

    `reduce_cmd` says whether the registers are set to 0 and whether the sum is added to them;
    `reduce_res` receives them. The sum takes the float32 results, before they are cast.
    """
    return _run(
        ACTIVATION, (dst, data), op, (scale, bias), (reduce_cmd, reduce_op, reduce_res), name
    )


def activation_reduce(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    reduce_op: Operator,
    reduce_res: NkiTensor | None,
    bias: Scalar = None,
    scale: float | NkiTensor = 1.0,
    name: str | None = None,
) -> NkiInstruction:
    """`activation` with `reduce_cmd.reset_reduce`."""
    reduction = (commands.reset_reduce, reduce_op, reduce_res)
    return _run(ACTIVATION_REDUCE, (dst, data), op, (scale, bias), reduction, name)


def _run(
    contract: Contract,
    tensors: tuple[NkiTensor, NkiTensor],
    op: Operator,
    affine: tuple[Scalar, Scalar],
    reducing: tuple[enums.reduce_cmd, Operator | None, NkiTensor | None],
    name: str | None,
) -> NkiInstruction:
    core = current()
    (dst, data), (scale, bias), (reduce_cmd, reduce_op, reduce_res) = tensors, affine, reducing
    facts = (
        ("op", op),
        ("scale", kind(scale)),
        ("bias", kind(bias)),
        ("reduce_op", reduce_op),
        ("reduce_cmd", reduce_cmd),
    )
    operands = (dst, data, tile(scale), tile(bias), reduce_res)
    where = contract.check(core, enums.engine.unknown, operands, facts)
    reduction = Reduction(reduce_cmd, reduce_op or operators.add, reduce_res)
    writes = (dst, *reduction.results)
    reads = with_indices(writes, data, *tiles(scale, bias))
    options = (("op", op.name), ("reduce_cmd", reduce_cmd.name))
    handle = core.issue(contract.name, where, writes, reads, options, name)
    if core.values:
        values = activated(op, _affine(data, scale, bias), contract.name)
        store_reducing(core, where, dst, data, values, reduction)
    return NkiInstruction(handle)


def _affine(data: NkiTensor, scale: Scalar, bias: Scalar) -> Array:
    values = floats(data)
    if isinstance(scale, NkiTensor) or scale != 1:
        values = operators.multiply.apply(values, spread(scale, data.ndim))
    if bias is not None:
        values = operators.add.apply(values, spread(bias, data.ndim))
    return values


def activated(op: Operator, values: Array, instruction: str, slope: Array | float = 0.0) -> Array:
    """op(values); says so where the engine would not give valid results."""
    if op is operators.copy:
        return values
    if op.out_of_range(values):
        assert op.valid_range is not None, "only a range can be left"
        low, high = op.valid_range
        bounded = "magnitude" if op.bounds_magnitude else "value"
        warn_user(
            f"{instruction}: {op!r} of a {bounded} outside of [{low:g}, {high:g}];"
            " the Scalar engine's result is not valid there",
            OutOfRangeWarning,
        )
    return op.activate(values, slope)
