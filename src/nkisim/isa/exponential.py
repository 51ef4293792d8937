"""exponential: exp(src - max) on the Vector engine, with a running sum (NeuronCore-v4)."""

from __future__ import annotations

from nkisim import enums
from nkisim.enums import reduce_cmd as commands
from nkisim.isa.accumulators import Reduction, loaded_value, reduce_commands, store_reducing
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.element_types import FP32
from nkisim.isa.indirect_views import may_be_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats
from nkisim.isa.rules import one_column, same_elements, same_partitions
from nkisim.isa.scalars import NOTHING, ZERO, Scalar, kind, number_or_tile, spread, tile, tiles
from nkisim.machine import V4
from nkisim.numerics import operators
from nkisim.running.session import current
from nkisim.tensors.tensor import NkiTensor

_COMMON_FLOATS = frozenset({"float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32"})
_COMMON_INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16"})
_MAX_RANK = 4


def _rank(call: Call) -> None:
    for name in ("dst", "src"):
        if call[name].ndim > _MAX_RANK:
            call.refuse(
                f"{name} has {call[name].ndim} dimensions",
                f"{_MAX_RANK} dimensions",
                "merge dimensions, or loop over the outermost",
            )


EXPONENTIAL = Contract(
    "exponential",
    (enums.engine.vector,),
    (
        Operand("dst", CHIP, _COMMON_FLOATS | _COMMON_INTEGERS | {"tfloat32"}, writes=True),
        Operand("src", CHIP, _COMMON_FLOATS | _COMMON_INTEGERS | {"uint32"}),
        Operand("max_value", CHIP, FP32, optional=True),
        Operand("reduce_init", CHIP, FP32, optional=True),
        Operand("reduce_res", CHIP, _COMMON_FLOATS | {"tfloat32"}, writes=True, optional=True),
    ),
    (
        _rank,
        number_or_tile("max_value"),
        reduce_commands(
            commands.idle, commands.reset_reduce, commands.reduce, commands.load_reduce
        ),
        number_or_tile("reduce_init", or_none=True),
        loaded_value("reduce_init", unset=(NOTHING, ZERO)),
        same_partitions("dst", "src", "max_value", "reduce_init", "reduce_res"),
        same_elements("dst", "src"),
        one_column("max_value", "reduce_init", "reduce_res"),
        may_be_indirect("dst", "src"),
    ),
    min_generation=V4,
)


def exponential(
    dst: NkiTensor,
    src: NkiTensor,
    max_value: float | NkiTensor = 0.0,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: enums.reduce_cmd = enums.reduce_cmd.idle,
    reduce_init: Scalar = 0.0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = exp(src - max_value) in float32, and its sum over the free axes in the registers."""
    core = current()
    facts = (
        ("max_value", kind(max_value)),
        ("reduce_init", kind(reduce_init)),
        ("reduce_cmd", reduce_cmd),
    )
    tensors = (dst, src, tile(max_value), tile(reduce_init), reduce_res)
    where = EXPONENTIAL.check(core, enums.engine.unknown, tensors, facts)
    reduction = Reduction(reduce_cmd, operators.add, reduce_res, reduce_init)
    writes = (dst, *reduction.results)
    reads = with_indices(writes, src, *tiles(max_value, reduce_init))
    options = (("reduce_cmd", reduce_cmd.name),)
    handle = core.issue("exponential", where, writes, reads, options, name)
    if core.values:
        distance = operators.subtract.apply(floats(src), spread(max_value, src.ndim))
        store_reducing(core, where, dst, src, operators.exp.activate(distance), reduction)
    return NkiInstruction(handle)
