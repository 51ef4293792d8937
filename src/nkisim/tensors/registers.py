"""NKIObject, the base of all a kernel passes around, and values that only the device knows."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

from nkisim.errors import NkiValidationError, RunTimeValueError, UnsupportedError
from nkisim.tensors.arithmetic import RefusesArithmetic


class NKIObject:
    """Base of user classes inside kernels; keyword arguments become attributes.

    NKI takes every assignment in a class body for a field, dataclasses only annotated ones. So that
    `@dataclass` finds them all, the others get an annotation.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = {name: Any for name, value in vars(cls).items() if _is_field(name, value)}
        annotated = inspect.get_annotations(cls)
        if fields.keys() - annotated.keys():
            cls.__annotations__ = annotated | {n: Any for n in fields if n not in annotated}

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)


def _is_field(name: str, value: object) -> bool:
    """Whether a class attribute is a field: not special, not a method, not a mutable default."""
    own = not name.startswith("__") and not hasattr(value, "__get__")
    return own and type(value).__hash__ is not None


class RunTimeValue(NKIObject):
    """An integer that only the device knows. `state` is its value; None when it is not known.

    `bounds` are the least and greatest value it takes, None if that is data; they differ for the
    counter of a loop that a shape-only run enters once. `loop` names that loop.
    """

    __slots__ = ("bounds", "loop", "state")
    _kind = "run-time value"

    def __init__(self, state: int | None = None) -> None:
        self.state = state
        self.bounds: tuple[int, int] | None = None if state is None else (state, state)
        self.loop: int | None = None

    @property
    def loop_factors(self) -> dict[int, int | None]:
        """How much the value grows when each loop's counter grows by 1; None: not evenly."""
        return {} if self.loop is None else {self.loop: 1}

    def known(self, purpose: str) -> int:
        """The value, or a refusal that says what it was needed for."""
        if self.state is None:
            raise UnsupportedError(
                f"{purpose} needs the value of a {self._kind} that is not known",
                limit=f"a shape-only run has no data, and an unset {self._kind} has no value",
                remedy=f"run with values=True, or set the {self._kind} before use",
            )
        return self.state

    def refuse_python_value(self, use: str) -> NoReturn:
        """Refuse `if`, `while`, int(), range() ... on a value that Python cannot have."""
        if self.loop is not None:
            raise RunTimeValueError(
                f"a loop counter as {use}",
                limit="a hardware loop's body is compiled once, for every value of its counter",
                remedy="peel the iteration that differs off the loop",
            )
        raise RunTimeValueError(
            f"a {self._kind} used as {use}",
            limit="its value exists on the device only; Python runs while the kernel is traced",
            remedy="use it as scalar_offset, as a bound of nl.fori_loop, or choose on the device"
            " (nl.while_loop, nisa.select_reduce)",
        )

    def __bool__(self) -> bool:  # noqa: PLE0304 (it never returns)
        self.refuse_python_value("a Python condition")

    def __index__(self) -> int:  # noqa: PLE0305 (it never returns)
        self.refuse_python_value("a Python integer")


class VirtualRegister(RunTimeValue, RefusesArithmetic):
    """A 32-bit scalar of an engine.

    `traced`: NKI 0.7, where it has no value for Python's `if` and `while`. NKI 0.6's parser reads
    both as branches on the device, so there a run with values lets Python take them.
    """

    __slots__ = ("frozen", "traced")
    _kind = "register"
    _remedy = "compute in an SBUF tile and nisa.register_load the result"

    def __init__(self, state: int | None = None, frozen: bool = False) -> None:  # noqa: FBT001, FBT002 (NKI's signature)
        super().__init__(state)
        self.frozen = frozen
        self.traced = False

    def move(self, state: int | None) -> None:
        """Set the value; loop counters are read-only."""
        if self.frozen:
            raise NkiValidationError(
                "write to a loop counter",
                limit="the induction register of a dynamic loop is read-only",
                remedy="allocate a register with nisa.register_alloc and move the value there",
            )
        self.state = state
        self.bounds = None if state is None else (state, state)
        self.loop = None

    def load(self, state: int | None) -> None:
        """Set the value to data: a run without values would not know it, so it has no bounds."""
        self.move(state)
        self.bounds = None

    def follow(self, other: RunTimeValue) -> None:
        """Take the value of `other`, and what is known of it as the counter of a loop."""
        self.move(other.state)
        self.bounds = other.bounds
        evenly = other.loop is not None and other.loop_factors == {other.loop: 1}
        self.loop = other.loop if evenly else None

    def __eq__(self, other: object) -> bool:
        return False if other is None else self._refuse_operator()

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if self.traced or self.frozen:
            self.refuse_python_value("a Python condition")
        return self.known("a Python condition") != 0

    def __repr__(self) -> str:
        return f"VirtualRegister({self.state})"
