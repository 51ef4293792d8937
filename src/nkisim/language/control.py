"""Loops, program ids and scheduling regions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from nkisim.errors import refuse
from nkisim.running.session import Session, current
from nkisim.tensors.registers import VirtualRegister
from nkisim.tensors.tensor import dynamic_slice

if TYPE_CHECKING:
    from nkisim.trace import Loop

Bound = int | VirtualRegister

ds = dynamic_slice


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """An unrolled loop."""
    return range(start) if stop is None else range(start, stop, step)


affine_range = static_range
sequential_range = static_range


def fori_loop(lower: Bound, upper: Bound, body_fun: Callable[..., None], step: int = 1) -> None:
    """A hardware loop: body_fun(i) for i in lower, lower + step, ... below upper.

    With values every iteration runs; a shape-only run enters the body once, with a counter that
    stands for all its values. The trace holds the body once in both, as its first iteration; of a
    loop whose bounds are data, a shape-only run does not know the trips.
    """
    for counter in _counted("nl.fori_loop", lower, upper, step):
        body_fun(counter)


def dynamic_range(
    start: Bound, stop: Bound | None = None, step: int = 1
) -> Iterator[VirtualRegister]:
    """The deprecated spelling of fori_loop, for `for i in nl.dynamic_range(...)`."""
    warnings.warn(
        "nl.dynamic_range is deprecated since NKI 0.6; use nl.fori_loop",
        DeprecationWarning,
        stacklevel=2,
    )
    if stop is None:
        return _counted("nl.dynamic_range", 0, start, step)
    return _counted("nl.dynamic_range", start, stop, step)


def while_loop(
    init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]
) -> None:
    """r = init; while r != 0: r = body_fun(r). A shape-only run enters the body once."""
    who = "nl.while_loop"
    core = _require_outside_no_reorder(who)
    _require_register(who, "init", init)
    if core.values:
        init.known(who)
    if init.state == 0:
        return
    loop = core.begin_loop(None, 0)
    register, trips = init, 0
    while True:
        register = body_fun(_copy(register))
        _require_register(who, "the result of the body", register)
        trips += 1
        if core.values and register.known(who) == 0:
            break
        if not core.values and trips == (2 if loop.meets else 1):
            break  # where the cores meet, what a turn does may race with the next
        if trips == 1:
            core.repeat_loop()
        else:
            core.finish_turn(loop)
    if core.values:
        loop.trips = trips
    core.end_loop(loop, repeated=trips > 1)


class _Range(NamedTuple):
    """The values a counter takes; `last` is None when a shape-only run cannot know it."""

    first: int | None
    last: int | None
    trips: int | None


def _counted(who: str, lower: Bound, upper: Bound, step: int) -> Iterator[VirtualRegister]:
    core = _require_outside_no_reorder(who)
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        refuse(who, f"step={step!r}", "a positive integer known at compile time", "fix the step")
    for name, bound in (("lower bound", lower), ("upper bound", upper)):
        if not isinstance(bound, int) or isinstance(bound, bool):
            _require_register(who, f"the {name}", bound)
    if core.values:
        values = _values(who, lower, upper, step)
        trips = None if core.follows_counter(lower, upper) else len(values)
        yield from _every_iteration(core, values, trips)
    else:
        found = _shape_only_range(core, lower, upper, step)
        if found.trips != 0:
            yield from _one_iteration(core, found, step)


def _values(who: str, lower: Bound, upper: Bound, step: int) -> range:
    known = [b if isinstance(b, int) else b.known(who) for b in (lower, upper)]
    return range(known[0], known[1], step)


def _every_iteration(core: Session, values: range, trips: int | None) -> Iterator[VirtualRegister]:
    if not values:
        return
    loop = core.begin_loop(trips, values.step)
    for position, value in enumerate(values):
        if position == 1:
            core.repeat_loop()
        elif position > 1:
            core.finish_turn(loop)
        counter = VirtualRegister(value, frozen=True)
        counter.loop = loop.number
        yield counter
    core.end_loop(loop, repeated=len(values) > 1)


def _shape_only_range(core: Session, lower: Bound, upper: Bound, step: int) -> _Range:
    least, greatest = _bounds(core, lower)[0], _bounds(core, upper)[1]
    if least is None or greatest is None:
        return _Range(least, None, None)
    values = range(least, greatest, step)
    trips = None if values and core.follows_counter(lower, upper) else len(values)
    return _Range(least, values[-1] if values else None, trips)


def _bounds(core: Session, bound: Bound) -> tuple[int | None, int | None]:
    """Least and greatest value of a loop bound."""
    if isinstance(bound, int):
        return bound, bound
    if bound.bounds is None:
        return None, None
    least, greatest = bound.bounds
    return (least if core.follows_counter(bound) else greatest), greatest


def _one_iteration(core: Session, values: _Range, step: int) -> Iterator[VirtualRegister]:
    loop = core.begin_loop(values.trips, step)
    counter = VirtualRegister(values.first, frozen=True)
    counter.loop = loop.number
    counter.bounds = None
    if values.first is not None and values.last is not None:
        counter.bounds = (values.first, values.last)
    yield counter
    if loop.meets:
        yield from _later_turns(core, loop, values)
    core.end_loop(loop, repeated=loop.meets)


def _later_turns(core: Session, loop: Loop, values: _Range) -> Iterator[VirtualRegister]:
    """A shape-only loop in which the cores meet: what one turn does may race with the next.

    All turns are run, or, where only the device knows how many there are, one more.
    """
    core.repeat_loop()
    for position in range(1, 2 if values.trips is None else values.trips):
        if position > 1:
            core.finish_turn(loop)
        known = None if values.first is None else values.first + position * loop.step
        counter = VirtualRegister(known, frozen=True)
        counter.loop = loop.number
        yield counter


def _require_register(who: str, what: str, value: object) -> None:
    if not isinstance(value, VirtualRegister):
        refuse(
            who,
            f"{what} is a {type(value).__name__}",
            "a register" if who == "nl.while_loop" else "an integer or a register",
            "allocate one with nisa.register_alloc and load it with nisa.register_load",
        )


def _copy(register: VirtualRegister) -> VirtualRegister:
    copied = VirtualRegister()
    copied.follow(register)
    return copied


def _require_outside_no_reorder(who: str) -> Session:
    core = current()
    if core.ordered_depth:
        refuse(
            who,
            "a dynamic loop inside nl.no_reorder()",
            "not supported by the compiler",
            "put no_reorder inside the body, or unroll the loop",
        )
    return core


def no_reorder() -> AbstractContextManager[None]:
    """`with nl.no_reorder():` instructions inside keep their order."""
    return _ordered()


@contextmanager
def _ordered() -> Iterator[None]:
    core = current()
    core.ordered_depth += 1
    try:
        yield
    finally:
        core.ordered_depth -= 1


def program_id(axis: int = 0) -> int:
    """This core's number in the launch grid."""
    _require_axis_0("nl.program_id", axis)
    program = current().program
    return program[0] if program else 0


def num_programs(axes: int = 0) -> int:
    """Cores in the launch grid."""
    _require_axis_0("nl.num_programs", axes)
    program = current().program
    return program[1] if program else 1


def program_ndim() -> int:
    """Dimensions of the launch grid: 0 without one."""
    return 0 if current().program is None else 1


def _require_axis_0(who: str, axis: int) -> None:
    if axis not in (0, (0,), [0], None):
        refuse(who, f"axis {axis}", "the launch grid has one axis, 0", "use axis 0")
