"""Affine patterns on the GpSimd engine: iota writes one, affine_select compares one with 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nkisim import enums
from nkisim.errors import refuse
from nkisim.isa.call import Call
from nkisim.isa.contract import SBUF, Contract, Operand
from nkisim.isa.element_types import INTEGERS, NUMBERS
from nkisim.isa.indirect_views import not_indirect, with_indices
from nkisim.isa.operands import NkiInstruction, floats, held, store_floats, store_held
from nkisim.isa.operator_rules import one_of
from nkisim.isa.rules import same_elements, same_partitions
from nkisim.isa.scalars import NUMBERS as NUMBER_KINDS
from nkisim.isa.scalars import as_float32, kind
from nkisim.numerics import dtypes, operators
from nkisim.numerics.operators.operator import Operator
from nkisim.running.session import current
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from nkisim.isa.call import Rule
    from nkisim.isa.contract import Facts
    from nkisim.isa.operands import Array

Pattern: TypeAlias = Sequence[Sequence[int]]

_MAX_DIMS = 4
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class _Affine:
    """offset + partition * channel_multiplier + the sum of step * index over `pattern`."""

    pattern: tuple[tuple[int, ...], ...]  # (step, count), outermost first
    channel_multiplier: int
    offset: int | RunTimeValue

    @property
    def facts(self) -> Facts:
        """What rules look at."""
        return (
            ("pattern", self.pattern),
            ("channel_multiplier", _int32_or_repr(self.channel_multiplier)),
            ("offset", _int32_or_repr(self.offset)),
        )

    def values(self, partitions: int) -> Array:
        """[partitions, elements] values in 32-bit arithmetic, which wraps around."""
        offset = self.offset
        first = offset.known("the offset") if isinstance(offset, RunTimeValue) else offset
        row = np.full(1, first, np.int64)
        for step, count in self.pattern:
            row = (row[:, np.newaxis] + step * np.arange(count)).reshape(-1)
        column = self.channel_multiplier * np.arange(partitions)
        return (column[:, np.newaxis] + row).astype(np.int32)


def _int32_or_repr(value: object) -> str:
    """The words "int32" or "register", else what was given instead."""
    if isinstance(value, RunTimeValue) and getattr(value, "dtype", "int32") == "int32":
        return "register"
    whole = isinstance(value, (int, np.integer)) and _INT32.min <= value <= _INT32.max
    return "int32" if whole else repr(value)


def _read_pattern(instruction: str, pattern: Pattern) -> tuple[tuple[int, ...], ...]:
    """The pattern as tuples; a refusal if it is no list of [step, count] pairs."""
    pairs = isinstance(pattern, (list, tuple)) and all(
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and all(isinstance(number, (int, np.integer)) for number in pair)
        for pair in pattern
    )
    if not pairs:
        refuse(
            instruction,
            f"pattern={pattern!r}",
            "a list of [step, count] pairs of integers",
            "write for example [[1, 512]]",
        )
    return tuple(tuple(pair) for pair in pattern)


def _legal_pattern(call: Call) -> None:
    pattern, elems = call.facts["pattern"], call["dst"].layout.elems
    if not 1 <= len(pattern) <= _MAX_DIMS:
        call.refuse(
            f"a pattern of {len(pattern)} dimensions",
            f"1 to {_MAX_DIMS} dimensions",
            "merge dimensions, or issue several instructions",
        )
    counts = [count for _, count in pattern]
    if min(counts) < 1 or prod(counts) != elems:
        call.refuse(
            f"pattern counts {counts} make {prod(counts)} elements",
            f"dst has {elems} elements per partition, and every count is at least 1",
            "let the counts multiply to the elements per partition",
        )


def _integers(*names: str, or_register: tuple[str, ...] = ()) -> Rule:
    def rule(call: Call) -> None:
        for name in names:
            legal = ("int32", "register") if name in or_register else ("int32",)
            if call.facts[name] not in legal:
                call.refuse(
                    f"{name} is {call.facts[name]}",
                    f"{name} is a 32-bit integer",
                    "pass a Python integer in the range of int32",
                )

    return rule


IOTA = Contract(
    "iota",
    (enums.engine.gpsimd,),
    (Operand("dst", SBUF, NUMBERS, writes=True),),
    (
        _legal_pattern,
        _integers("channel_multiplier", "offset", or_register=("offset",)),
        not_indirect,
    ),
)


def iota(
    dst: NkiTensor,
    pattern: Pattern,
    offset: int | RunTimeValue = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = offset + partition * channel_multiplier + sum of step * index over the pattern.

    Computed in 32-bit integers and cast to the type of dst; narrower integers saturate.
    """
    core = current()
    affine = _Affine(_read_pattern("iota", pattern), channel_multiplier, offset)
    where = IOTA.check(core, enums.engine.unknown, (dst,), affine.facts)
    handle = core.issue("iota", where, (dst,), with_indices((dst,)), (), name)
    if core.values:
        values = affine.values(dst.shape[0])
        if dst.dtype in INTEGERS:
            limits = np.iinfo(dtypes.held_dtype(dst.dtype))
            store_held(dst, values.astype(np.int64).clip(limits.min, limits.max))
        else:
            store_floats(dst, values.astype(np.float32))
    return NkiInstruction(handle)


def _number_on_false(call: Call) -> None:
    if call.facts["on_false_value"] not in NUMBER_KINDS:
        call.refuse(
            f"on_false_value is {call.facts['on_false_value']}",
            "on_false_value is a float32 constant",
            "pass a Python number",
        )


AFFINE_SELECT = Contract(
    "affine_select",
    (enums.engine.gpsimd,),
    (Operand("dst", SBUF, NUMBERS, writes=True), Operand("on_true_tile", SBUF, NUMBERS)),
    (
        one_of(
            "cmp_op",
            (
                *(operators.equal, operators.not_equal, operators.less, operators.less_equal),
                *(operators.greater, operators.greater_equal),
            ),
        ),
        _legal_pattern,
        _integers("channel_multiplier", "offset"),
        _number_on_false,
        same_partitions("dst", "on_true_tile"),
        same_elements("dst", "on_true_tile"),
        not_indirect,
    ),
)


def affine_select(
    dst: NkiTensor,
    pattern: Pattern,
    channel_multiplier: int,
    on_true_tile: NkiTensor,
    on_false_value: float,
    cmp_op: Operator = operators.equal,
    offset: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true_tile where `affine <cmp_op> 0`, else on_false_value; affine is iota's value.

    Elements of equal types are copied bit for bit, others are cast through float32.
    """
    core = current()
    affine = _Affine(_read_pattern("affine_select", pattern), channel_multiplier, offset)
    facts = (("cmp_op", cmp_op), ("on_false_value", kind(on_false_value)), *affine.facts)
    where = AFFINE_SELECT.check(core, enums.engine.unknown, (dst, on_true_tile), facts)
    reads = with_indices((dst,), on_true_tile)
    handle = core.issue("affine_select", where, (dst,), reads, (("cmp_op", cmp_op.name),), name)
    if core.values:
        assert cmp_op.on_floats is not None, "the contract admits comparisons only"
        chosen = cmp_op.on_floats(affine.values(dst.shape[0]), 0).reshape(dst.shape)
        other = as_float32(on_false_value)
        if dst.dtype == on_true_tile.dtype:
            other = dtypes.from_float32(other, dst.dtype, precise=dst.storage.precise)
            store_held(dst, np.where(chosen, held(on_true_tile).reshape(dst.shape), other))
        else:
            store_floats(dst, np.where(chosen, floats(on_true_tile).reshape(dst.shape), other))
    return NkiInstruction(handle)
