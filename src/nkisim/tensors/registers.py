"""NKIObject, the base class of everything a kernel passes around, and VirtualRegister."""

from __future__ import annotations

import inspect
from typing import Any

from nkisim.errors import NkiValidationError, UnsupportedError
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


class VirtualRegister(RefusesArithmetic, NKIObject):
    """A 32-bit scalar of an engine. `state` is its value; None when no value is known.

    `bounds` are the least and greatest value it takes, None if that is data; they differ for the
    counter of a loop that a shape-only run enters once. `loop` names that loop.
    """

    __slots__ = ("bounds", "frozen", "loop", "state")
    _remedy = "compute in an SBUF tile and nisa.register_load the result"

    def __init__(self, state: int | None = None, frozen: bool = False) -> None:  # noqa: FBT001, FBT002 (NKI's signature)
        self.state = state
        self.frozen = frozen
        self.bounds: tuple[int, int] | None = None if state is None else (state, state)
        self.loop: int | None = None

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

    def follow(self, other: VirtualRegister) -> None:
        """Take the value of `other`, and what is known of it as the counter of a loop."""
        self.move(other.state)
        self.bounds = other.bounds
        self.loop = other.loop

    def known(self, purpose: str) -> int:
        """The value, or a refusal that says what it was needed for."""
        if self.state is None:
            raise UnsupportedError(
                f"{purpose} needs the value of a register that is not known",
                limit="a shape-only run has no data, and an unset register has no value",
                remedy="run with values=True, or set the register before use",
            )
        return self.state

    def __eq__(self, other: object) -> bool:
        return False if other is None else self._refuse_operator()

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if self.frozen:
            raise NkiValidationError(
                "a loop counter as a Python condition",
                limit="a hardware loop's body is compiled once, for every value of its counter",
                remedy="peel the iteration that differs off the loop",
            )
        return self.known("a Python condition") != 0

    def __index__(self) -> int:
        raise NkiValidationError(
            "a register used as a Python integer",
            limit="register values exist on the device only",
            remedy="use it as scalar_offset, or as a bound of nl.fori_loop",
        )

    def __repr__(self) -> str:
        return f"VirtualRegister({self.state})"
