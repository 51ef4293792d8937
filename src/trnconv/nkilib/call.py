"""VendorCall: a convolution as the library's arguments describe it, in integers and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import ConvShape, Triple
from trnconv.nkilib.modes import ResidualAddLoc, activation_of, member_of
from trnconv.problem.epilogue import AFTER, BEFORE, IDENTITY, NO_RESIDUAL, Epilogue, epilogue_of
from trnconv.problem.policy import DIRECT

_SIDES = 6  # of padding: before and after depth, height and width
_PLACES = {
    ResidualAddLoc.NONE: NO_RESIDUAL,
    ResidualAddLoc.PRE_ACT: BEFORE,
    ResidualAddLoc.POST_ACT: AFTER,
}


@dataclass(frozen=True)
class VendorCall:
    """How taps move, what follows the sum, and where it runs."""

    stride: Triple
    before: Triple
    after: Triple
    dilation: Triple
    activation: str = IDENTITY
    residual: str = NO_RESIDUAL
    cores: int | None = 1  # None: as many as a launch has
    machine: str | None = None  # without: trn2, or what the tensor's device is
    accuracy: str = DIRECT

    def shape(self, x: Sequence[int], filters: Sequence[int]) -> ConvShape:
        """The problem, for x [B, C_in, D, H, W] and filters [Kd, Kh, Kw, C_in, C_out]."""
        if len(x) != 5 or len(filters) != 5:
            raise ShapeError(
                f"x_in {tuple(x)} and filters {tuple(filters)}: [B, C_in, D, H, W] and"
                " [Kd, Kh, Kw, C_in, C_out] are needed."
            )
        if filters[3] != x[1]:
            raise ShapeError(
                f"x_in has {x[1]} channels and filters [Kd, Kh, Kw, C_in, C_out] {filters[3]}: both"
                " must be the same; the library has no groups."
            )
        return ConvShape(
            batch=x[0],
            c_in=x[1],
            c_out=filters[4],
            size=(x[2], x[3], x[4]),
            kernel=(filters[0], filters[1], filters[2]),
            stride=self.stride,
            dilation=self.dilation,
            pad_before=self.before,
            pad_after=self.after,
        )

    @property
    def epilogue(self) -> Epilogue:
        """What a kernel fuses."""
        return epilogue_of(self.activation, self.residual, "")


def call_of(
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    activation_fn: Enum | None = None,
    residual_add_loc: Enum = ResidualAddLoc.NONE,
    **ours: Any,
) -> VendorCall:
    """A call, if its numbers are as many as the library's."""
    place = member_of(ResidualAddLoc, "residual_add_loc", residual_add_loc)
    sides = _numbers("padding", padding, _SIDES)
    return VendorCall(
        _triple("stride", stride),
        (sides[0], sides[2], sides[4]),
        (sides[1], sides[3], sides[5]),
        _triple("dilation", dilation),
        activation_of(activation_fn),
        _PLACES[place],
        **ours,
    )


def _triple(name: str, values: Sequence[int]) -> Triple:
    first, second, third = _numbers(name, values, 3)
    return (first, second, third)


def _numbers(name: str, values: Sequence[int], count: int) -> tuple[int, ...]:
    if isinstance(values, int) or len(values) != count:
        raise ShapeError(f"{name}={values}: nki-library takes {count} numbers.")
    return tuple(values)


def require_one_type(**tensors: Any) -> None:
    """The library's rule: all tensors of a call have the type of the first."""
    given = {name: tensor.dtype for name, tensor in tensors.items() if tensor is not None}
    (first, kind), *others = given.items()
    for name, other in others:
        if other != kind:
            raise ShapeError(f"{first} is {kind} and {name} {other}: both must be the same.")


def refuse_kind(name: str, tensor: Any) -> UnsupportedError:
    """What is said of an operand that is neither an array nor a tensor."""
    return UnsupportedError(
        f"{name} is a {type(tensor).__name__}: NumPy arrays and torch tensors are taken, by a"
        " launcher. Inside of a kernel, filters are packed on the host before:"
        " trnconv.nkilib.pack(...), its `tensors` are arguments of your kernel, and"
        " conv3d(x, packed.inside(*tensors)) computes."
    )
