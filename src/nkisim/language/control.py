"""Loops, program ids and scheduling regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from nkisim.errors import refuse
from nkisim.running.session import Session, current
from nkisim.source_lines import warn_user
from nkisim.tensors.indexing import dynamic_slice
from nkisim.tensors.registers import RunTimeValue, VirtualRegister
from nkisim.tensors.scalars import NkiScalar

if TYPE_CHECKING:
    from nkisim.trace import Loop

Bound = int | RunTimeValue

_CHECKED_ITERATIONS = 2  # of a shape-only run: the one that is recorded, and one held against it

ds = dynamic_slice


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """An unrolled loop."""
    return range(start) if stop is None else range(start, stop, step)


affine_range = static_range
sequential_range = static_range


def fori_loop(lower: Bound, upper: Bound, body_fun: Callable[..., None], step: int = 1) -> None:
    """A hardware loop: body_fun(i) for i in lower, lower + step, ... below upper.

    With values every iteration runs; a shape-only run enters the body twice, with a counter that
    stands for all its values, to hold the second time against the first. The trace holds the body
    once in both, as its first iteration; of a loop whose bounds are data, a shape-only run does not
    know the trips. The counter is a scalar, or a register where a bound is one; NKI 0.6 has
    registers only.
    """
    for counter in _counted("nl.fori_loop", lower, upper, step):
        body_fun(counter)


def dynamic_range(start: Bound, stop: Bound | None = None, step: int = 1) -> Iterator[Any]:
    """NKI 0.6's deprecated spelling of fori_loop: `for i in nl.dynamic_range(...)`."""
    if current().traced:
        refuse(
            "nl.dynamic_range",
            "a Python `for` over a run-time range",
            "NKI 0.7 traces the kernel: Python's `for` cannot run on the device",
            "use nl.fori_loop, or install(version='0.6')",
        )
    warn_user(
        "nl.dynamic_range is deprecated since NKI 0.6; use nl.fori_loop",
        DeprecationWarning,
    )
    if stop is None:
        return _counted("nl.dynamic_range", 0, start, step)
    return _counted("nl.dynamic_range", start, stop, step)


def while_loop(init: RunTimeValue, body_fun: Callable[[Any], RunTimeValue]) -> None:
    """r = init; while r != 0: r = body_fun(r). A shape-only run enters the body twice.

    Registers; under NKI 0.7 scalars as well, which is an assumption: no page that says so was seen.
    """
    who = "nl.while_loop"
    core = _require_outside_no_reorder(who)
    _require_bound(who, "init", init)
    if core.values:
        init.known(who)
    if init.state == 0:
        core.skip_loop(who)
        return
    loop = core.begin_loop(who, None, 0)
    register, trips = init, 0
    while True:
        register = body_fun(_copy(register))
        _require_bound(who, "the result of the body", register)
        trips += 1
        over = register.known(who) == 0 if core.values else trips == _CHECKED_ITERATIONS
        if over:
            break
        core.next_iteration(only_checked=not core.values and not loop.meets)
    if core.values:
        loop.trips = trips
    core.end_loop(who, loop)


class _Range(NamedTuple):
    """The values a counter takes; `last` is None when a shape-only run cannot know it."""

    first: int | None
    last: int | None
    trips: int | None


class _Iteration(NamedTuple):
    """An iteration: its counter's value, the loop's number, and the values it stands for."""

    value: int | None
    loop: int
    bounds: tuple[int, int] | None


def _counted(who: str, lower: Bound, upper: Bound, step: int) -> Iterator[Any]:
    core = _require_outside_no_reorder(who)
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        refuse(who, f"step={step!r}", "a positive integer known at compile time", "fix the step")
    for name, bound in (("lower bound", lower), ("upper bound", upper)):
        if not isinstance(bound, int) or isinstance(bound, bool):
            _require_bound(who, f"the {name}", bound)
        elif bound.bit_length() >= (63 if core.traced else 32):
            refuse(who, f"{name} {bound}", "counters have 32 bits, scalars 64", "split the loop")
    registers = not core.traced or any(isinstance(b, VirtualRegister) for b in (lower, upper))
    if core.values:
        values = _values(who, lower, upper, step)
        trips = None if core.follows_counter(lower, upper) else len(values)
        iterations = _every_iteration(core, who, values, trips)
    else:
        iterations = _one_iteration(core, who, _shape_only_range(core, lower, upper, step), step)
    for iteration in iterations:
        core.count(iteration.value)
        yield _register_of(core, iteration) if registers else _scalar_of(iteration)


def _values(who: str, lower: Bound, upper: Bound, step: int) -> range:
    known = [b if isinstance(b, int) else b.known(who) for b in (lower, upper)]
    return range(known[0], known[1], step)


def _register_of(core: Session, iteration: _Iteration) -> VirtualRegister:
    """The counter as a register: read-only in NKI 0.6, a copy of its own in 0.7."""
    counter = VirtualRegister(iteration.value, frozen=not core.traced)
    counter.traced = core.traced
    counter.loop = iteration.loop
    counter.bounds = iteration.bounds
    return counter


def _scalar_of(iteration: _Iteration) -> NkiScalar:
    return NkiScalar.counter(iteration.value, iteration.loop, iteration.bounds)


def _every_iteration(
    core: Session, who: str, values: range, trips: int | None
) -> Iterator[_Iteration]:
    if not values:
        core.skip_loop(who)
        return
    loop = core.begin_loop(who, trips, values.step)
    for position, value in enumerate(values):
        if position:
            core.next_iteration()
        yield _Iteration(value, loop.number, (value, value))
    core.end_loop(who, loop)


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


def _one_iteration(core: Session, who: str, values: _Range, step: int) -> Iterator[_Iteration]:
    """The body once, with a counter for all values; and again, held against the first time."""
    if values.trips == 0:
        core.skip_loop(who)
        return
    loop = core.begin_loop(who, values.trips, step)
    bounds = None
    if values.first is not None and values.last is not None:
        bounds = (values.first, values.last)
    yield _Iteration(values.first, loop.number, bounds)
    if loop.meets:
        yield from _later_iterations(core, loop, values)
    elif values.trips != 1:
        core.next_iteration(only_checked=True)
        yield _Iteration(values.first, loop.number, bounds)
    core.end_loop(who, loop)


def _later_iterations(core: Session, loop: Loop, values: _Range) -> Iterator[_Iteration]:
    """A shape-only loop in which the cores meet: what one iteration does may race with the next.

    All iterations are run, or, where only the device knows how many there are, one more.
    """
    for position in range(1, _CHECKED_ITERATIONS if values.trips is None else values.trips):
        core.next_iteration()
        known = None if values.first is None else values.first + position * loop.step
        yield _Iteration(known, loop.number, None if known is None else (known, known))


def _require_bound(who: str, what: str, value: object) -> None:
    """Refuse anything but a register or an int32 scalar."""
    if isinstance(value, NkiScalar):
        value.require_usable(who)
        if value.dtype != "int32":
            refuse(
                who,
                f"{what} is an {value.dtype} scalar",
                "32 bits: compare-and-branch has no 64-bit form",
                "load the bound from an int32 tile; int64 scalars are for offsets in the body",
            )
    elif not isinstance(value, VirtualRegister):
        refuse(
            who,
            f"{what} is a {type(value).__name__}",
            "a register" if who == "nl.while_loop" else "an integer, a register or a scalar",
            "allocate one with nisa.register_alloc and load it with nisa.register_load",
        )


def _copy(register: Any) -> Any:
    """What the body gets: a register of its own; a scalar cannot be changed."""
    if isinstance(register, NkiScalar):
        return register
    copied = VirtualRegister()
    copied.traced = register.traced
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
