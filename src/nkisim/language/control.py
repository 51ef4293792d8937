"""Loops, program ids and scheduling regions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from nkisim.errors import refuse
from nkisim.registers import VirtualRegister
from nkisim.session import Session, current
from nkisim.tensor import dynamic_slice

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
    stands for all its values. The trace holds the body once in both.
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
    core = _require_outside_no_reorder("nl.while_loop")
    if core.values and init.known("nl.while_loop") == 0:
        return
    loop = core.begin_loop(None, 0)
    trips = 0
    register = init
    while True:
        register = body_fun(_copy(register))
        trips += 1
        if not core.values or register.known("nl.while_loop") == 0:
            break
        if trips == 1:
            core.repeat_loop()
    core.end_loop(loop, repeated=trips > 1)


def _counted(who: str, lower: Bound, upper: Bound, step: int) -> Iterator[VirtualRegister]:
    core = _require_outside_no_reorder(who)
    if not isinstance(step, int) or step < 1:
        refuse(who, f"step={step!r}", "a positive integer known at compile time", "fix the step")
    first, end = _value(core, lower, who), _value(core, upper, who)
    if first is None or end is None:
        yield from _unknown_trips(core, step)
        return
    values = range(first, end, step)
    if not values:
        return
    loop = core.begin_loop(len(values), step)
    for value in values if core.values else values[:1]:
        counter = VirtualRegister(value, frozen=True)
        counter.loop = loop.number
        counter.bounds = (value, value) if core.values else (first, values[-1])
        if core.values and value == first + step:
            core.repeat_loop()
        yield counter
    core.end_loop(loop, repeated=core.values and len(values) > 1)


def _unknown_trips(core: Session, step: int) -> Iterator[VirtualRegister]:
    """A shape-only run of a loop whose bounds are data: the body once, trips unknown."""
    loop = core.begin_loop(None, step)
    counter = VirtualRegister(None, frozen=True)
    counter.loop = loop.number
    yield counter
    core.end_loop(loop, repeated=False)


def _value(core: Session, bound: Bound, who: str) -> int | None:
    if not isinstance(bound, VirtualRegister):
        return bound
    return bound.known(who) if core.values else bound.state


def _copy(register: VirtualRegister) -> VirtualRegister:
    copied = VirtualRegister(register.state)
    copied.bounds = register.bounds
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
