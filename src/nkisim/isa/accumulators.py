"""The accumulator registers of the Vector and Scalar engines: one fp32 value a lane.

They outlive an instruction, so that a reduction can go on over several tiles. What nobody has set,
and on the Vector engine what an instruction with `reduce_cmd.idle` left, is not specified: NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nkisim.enums import engine, reduce_cmd
from nkisim.isa.operands import store_floats
from nkisim.isa.operator_rules import one_of
from nkisim.isa.scalars import NOTHING, Scalar, spread
from nkisim.numerics import operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import Session
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.call import Call, Rule
    from nkisim.isa.operands import Array

_RESETTING = (reduce_cmd.reset, reduce_cmd.reset_reduce)
_REDUCING = (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce)


@dataclass(frozen=True)
class Reduction:
    """What one instruction does with the registers, and the (P, 1) tile they are read out to."""

    command: reduce_cmd
    op: Operator = operators.add
    result: NkiTensor | None = None
    init: Scalar = None
    negate: bool = False

    @property
    def results(self) -> tuple[NkiTensor, ...]:
        """The tile that is written, if there is one."""
        return () if self.result is None else (self.result,)


def registers(core: Session, where: engine) -> Array:
    """All registers of an engine."""
    found: Array | None = core.accumulators.get(where)
    if found is None:
        found = np.full(core.machine.partitions, np.nan, np.float32)
        core.accumulators[where] = found
    return found


def start(core: Session, where: engine, data: NkiTensor, reduction: Reduction) -> Array:
    """The registers of the lanes that `data` runs through, set as the command says."""
    everything = registers(core, where)
    lanes = everything[data.start_partition : data.start_partition + data.shape[0]]
    if reduction.command in _RESETTING:
        lanes[:] = reduction.op.identity
    elif reduction.command is reduce_cmd.load_reduce:
        lanes[:] = spread(reduction.init, 1)
    elif reduction.command is reduce_cmd.idle and where is engine.vector:
        everything[:] = np.nan
    return lanes


def store_reducing(
    core: Session,
    where: engine,
    dst: NkiTensor,
    data: NkiTensor,
    values: Array,
    reduction: Reduction,
) -> None:
    """Store the float32 `values` to dst, fold them into the registers, and read these out.

    Reading out is the last step: it wins where its tile is part of dst.
    """
    lanes = start(core, where, data, reduction)
    if reduction.command in _REDUCING:
        partial = reduction.op.reduce(values.reshape(data.shape[0], -1), 1)
        merged = reduction.op.apply(lanes, partial)
        lanes[:] = np.where(np.isnan(lanes), lanes, merged)  # unspecified content stays so
    store_floats(dst, values)
    if reduction.result is not None:
        store_floats(reduction.result, (-lanes if reduction.negate else lanes)[:, np.newaxis])


def reduce_commands(*legal: reduce_cmd) -> Rule:
    """The fact `reduce_cmd` is one of a few commands."""
    names = ", ".join(f"reduce_cmd.{command.name}" for command in legal)

    def rule(call: Call) -> None:
        command = call.facts["reduce_cmd"]
        if not isinstance(command, reduce_cmd):
            call.refuse(
                f"reduce_cmd={command!r}", "a member of nisa.reduce_cmd", "use nisa.reduce_cmd.…"
            )
        if command not in legal:
            call.refuse(f"reduce_cmd.{command.name}", f"one of {names}", "choose one of them")

    return rule


def reducing_operator(*legal: Operator, or_none: bool = False) -> Rule:
    """The fact `reduce_op` is one of a few; None is for commands that do not reduce."""
    is_legal = one_of("reduce_op", legal)

    def rule(call: Call) -> None:
        if call.facts["reduce_op"] is not None or not or_none:
            is_legal(call)
        elif call.facts["reduce_cmd"] in _REDUCING:
            call.refuse(
                f"reduce_cmd.{call.facts['reduce_cmd'].name} without reduce_op",
                "a reduction has an operator",
                f"pass reduce_op={legal[0]!r}",
            )

    return rule


def loaded_value(name: str, *, unset: tuple[str, ...] = (NOTHING,)) -> Rule:
    """The operand `name` is what `load_reduce` loads, and `unset` with every other command."""

    def rule(call: Call) -> None:
        loads = call.facts["reduce_cmd"] is reduce_cmd.load_reduce
        if loads and call.facts[name] == NOTHING:
            call.refuse(
                "reduce_cmd.load_reduce",
                f"load_reduce loads {name}",
                f"pass {name}, or use reduce_cmd.reset_reduce",
            )
        if not loads and call.facts[name] not in unset:
            call.refuse(
                f"{name} with reduce_cmd.{call.facts['reduce_cmd'].name}",
                f"{name} is for reduce_cmd.load_reduce",
                f"leave {name} out, or use reduce_cmd.load_reduce",
            )

    return rule
