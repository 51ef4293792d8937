"""Loop consistency: a body is traced once, so every later iteration must repeat the first.

Running a body again is how nkisim gets its values; a compiler runs it once. Whatever Python state
makes an iteration differ from the first one, by a number, a tile or a branch, would be lost there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from nkisim.errors import NkiValidationError
from nkisim.source_lines import entry_arguments
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.scalars import NkiScalar
from nkisim.tensors.tensor import FreeIndex, NkiTensor, ScalarOffset, VectorOffset

if TYPE_CHECKING:
    from nkisim.trace import Instruction, Item, Loop

Counts = dict[int, int | None]  # of the counters of the loops that are running, by loop

_TRACED_ONCE = "the body is traced once: every iteration runs the same instructions"


class Issued:
    """One instruction of a body: what it is, and the arguments it was called with."""

    __slots__ = ("arguments", "instruction")

    def __init__(self, instruction: Instruction, counts: Counts) -> None:
        self.instruction = instruction
        given = entry_arguments()
        self.arguments = {name: _key(value, counts) for name, value in given.items()}


class Body:
    """What the first iteration of a loop issued, in order; loops inside are bodies of their own.

    An inner loop that the first iteration did not enter is None: nothing is known of its body.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Issued | Body | None] = []


class OpenLoop:
    """A loop that is running: its record, the items around it, and how far it has come."""

    __slots__ = (
        "allocated",
        "body",
        "checking",
        "count",
        "first",
        "iteration",
        "iterations",
        "loop",
        "outside",
        "position",
    )

    def __init__(self, loop: Loop, outside: list[Item], body: Body | None, *, first: bool) -> None:
        self.loop = loop
        self.outside = outside
        self.body = body  # None: the body is not known, so iterations are not compared
        self.first = first  # the iteration that is running is the one that others are held against
        self.position = 0
        self.iterations = 0  # that have ended
        self.checking = (
            False  # the iteration that is running is held against the first, and that is all
        )
        self.count: int | None = None  # the value of the counter
        self.iteration = object()  # the iteration that is running; what it allocates belongs to it
        self.allocated = (
            loop.allocations_before
        )  # tensors there are when the first iteration has ended

    def inner_body(self) -> Body | None:
        """The body of the loop that begins now, inside this one."""
        if self.body is None:
            return None
        if self.first:
            inner = Body()
            self.body.entries.append(inner)
            return inner
        recorded = self._next("a loop")
        if isinstance(recorded, Issued):
            _refuse_iteration(f"a loop, where the first one issued {recorded.instruction.op}")
        return recorded

    def skip_loop(self) -> None:
        """A loop inside this one runs no iteration."""
        if self.body is None:
            return
        if self.first:
            self.body.entries.append(None)
        elif isinstance(recorded := self._next("a loop"), Issued):
            _refuse_iteration(f"a loop, where the first one issued {recorded.instruction.op}")

    def issue(self, instruction: Instruction, counts: Counts) -> None:
        """An instruction of the body: recorded in the first iteration, compared in others."""
        if self.body is None:
            return
        issued = Issued(instruction, counts)
        if self.first:
            self.body.entries.append(issued)
            return
        recorded = self._next(instruction.op)
        if not isinstance(recorded, Issued):
            _refuse_iteration(f"{instruction.op}, where the first one ran a loop")
        _require_same(recorded, issued)
        instruction.index = recorded.instruction.index
        instruction.site = recorded.instruction.site

    def end_iteration(self, allocated: int) -> None:
        """The iteration has ended, with as many instructions as the first one had."""
        self.iterations += 1
        if self.iterations == 1:
            self.allocated = allocated
        if self.first:
            self.first = False
        elif self.body is not None and self.position != len(self.body.entries):
            count = len(self.body.entries)
            _refuse_iteration(f"{self.position} instructions, the first one {count}")
        self.position = 0
        self.iteration = object()

    def _next(self, what: str) -> Issued | Body | None:
        assert self.body is not None, "callers look first"
        if self.position >= len(self.body.entries):
            _refuse_iteration(f"{what}, where the first one issued nothing more")
        self.position += 1
        return self.body.entries[self.position - 1]


def _require_same(first: Issued, now: Issued) -> None:
    recorded, issued = first.instruction, now.instruction
    if recorded.op != issued.op:
        _refuse_iteration(f"{issued.op}, where the first one issued {recorded.op}")
    for name, value in now.arguments.items():
        known = first.arguments.get(name)
        if known != value:
            _refuse_iteration(
                f"{issued.op} with {name}={_text(value)}, where the first one had {_text(known)}"
            )
    if first.arguments.keys() != now.arguments.keys() or not recorded.same_program(issued):
        _refuse_iteration(f"{issued.op} with other operands or options than the first one")


def _refuse_iteration(what: str) -> NoReturn:
    raise NkiValidationError(
        f"a later iteration of a hardware loop issues {what}",
        instruction="nl.fori_loop",
        limit=_TRACED_ONCE,
        remedy="keep Python state that changes out of the body, and peel iterations that differ;"
        " what changes on the device lives in SBUF, HBM or a register",
    )


def refuse_foreign_iteration(tensor: NkiTensor, op: str) -> NoReturn:
    """A tensor that the body of a loop allocated is used after it, or in another iteration."""
    raise NkiValidationError(
        f"tensor {tensor.name!r}, which the body of a hardware loop allocated in an earlier"
        " iteration or loop",
        instruction=op,
        limit="what a body allocates belongs to one iteration of it, and ends with it",
        remedy="allocate the tensor before the loop",
    )


def _key(value: object, counts: Counts) -> Any:
    """What tells two arguments of an instruction apart, the same in every iteration if they are."""
    key = value
    if isinstance(value, NkiTensor):
        key = ("tensor", value.name, value.offset, value.layout, *_moving(value, counts))
    elif isinstance(value, RunTimeValue):
        key = ("value", type(value).__name__, *_course(value, counts))
    elif isinstance(value, (tuple, list)):
        key = tuple([_key(item, counts) for item in value])
    elif isinstance(value, dict):
        key = tuple([(name, _key(item, counts)) for name, item in value.items()])
    elif isinstance(value, (float, np.generic)):
        key = ("number", repr(value))  # a NaN is equal to itself
    elif type(value).__hash__ is None or type(value).__hash__ is object.__hash__:
        key = ("object", type(value).__name__)
    return key


def _moving(tensor: NkiTensor, counts: Counts) -> tuple[Any, ...]:
    indirection = tensor.indirection
    if indirection is None:
        return ()
    if isinstance(indirection, ScalarOffset):
        return (_key(indirection.source, counts), indirection.unit_elems)
    index = indirection.rows if isinstance(indirection, VectorOffset) else indirection.index
    return (FreeIndex if isinstance(indirection, FreeIndex) else VectorOffset, _key(index, counts))


def _course(value: RunTimeValue, counts: Counts) -> tuple[Any, ...]:
    """How a scalar follows the counters of loops, and what Python numbers add to it."""
    if not isinstance(value, NkiScalar):
        return ()  # a register has no arithmetic, and may hold another value in every iteration
    steps = tuple(value.loop_factors.values())
    rest = None if value.is_data else value.state
    for number, factor in value.loop_factors.items():
        count = counts.get(number)
        if rest is None or factor is None or count is None:
            return steps
        rest -= factor * count
    return (*steps, rest)


def _text(key: Any) -> str:
    match key:
        case ("tensor", name, offset, *_):
            return f"{name!r} from element {offset} on"
        case ("number" | "object", text):
            return str(text)
        case ("value", kind, *course):
            return f"a {kind} of course {course}"
        case _:
            return repr(key)
