"""The library's enums: its names and values. Members of its own enums are taken by their names."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from trnconv.errors import UnsupportedError
from trnconv.problem.epilogue import IDENTITY


class BatchNormMode(Enum):
    """What of a batch norm goes into the call."""

    NONE = 0
    EVAL = 1  # by the running statistics that are given
    TRAINING = 2  # by those of this output; running ones are updated


class ResidualAddLoc(Enum):
    """On which side of the activation a residual is added."""

    NONE = 0
    PRE_ACT = 1
    POST_ACT = 2


class ActFnType(Enum):
    """The activations of the library."""

    SiLU = 0
    GELU = 1
    GELU_Tanh_Approx = 2
    Swish = 3


_ACTIVATIONS = {
    ActFnType.SiLU: "silu",
    ActFnType.GELU: "gelu",
    ActFnType.GELU_Tanh_Approx: "gelu_tanh",
    ActFnType.Swish: "silu",  # of slope 1
}
Member = TypeVar("Member", bound=Enum)


def member_of(kind: type[Member], name: str, value: Enum) -> Member:
    """Our member for one of ours or of the library's; `name` is the argument's."""
    for member in kind:
        if value is member or (isinstance(value, Enum) and value.name == member.name):
            return member
    known = ", ".join(member.name for member in kind)
    raise UnsupportedError(f"{name}={value!r}: one of {kind.__name__}: {known}.")


def activation_of(value: Enum | None) -> str:
    """An activation as epilogues call it."""
    if value is None:
        return IDENTITY
    return _ACTIVATIONS[member_of(ActFnType, "activation_fn", value)]
