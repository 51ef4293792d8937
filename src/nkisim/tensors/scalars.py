"""NkiScalar: one integer on the device, with arithmetic (NKI 0.7)."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub
from typing import Any, Final

import numpy as np

from nkisim.errors import refuse
from nkisim.tensors.arithmetic import RefusesDivision
from nkisim.tensors.registers import RunTimeValue

SCALAR_DTYPES: Final = ("int32", "int64")
_Combine = Callable[[int, int], int]
_Factors = dict[int, int | None]


class NkiScalar(RunTimeValue, RefusesDivision):
    """One int32 or int64 that the device computes; arithmetic on it makes new scalars.

    `+`, `-` and `*` take a Python integer or a scalar of the same dtype. The width never grows:
    values wrap around. An int32 comparison makes a scalar that nothing can use, as in NKI; an int64
    one is refused. Scalars come from nisa.scalar_load and from loops, never from this constructor.
    """

    __slots__ = ("_factors", "dtype", "is_comparison", "is_data")
    _kind = "scalar"
    _remedy = "scalars have + - * only; compute in an SBUF tile and nisa.scalar_load the result"

    def __init__(
        self,
        state: int | None,
        dtype: str | None = None,
        is_comparison: bool = False,  # noqa: FBT001, FBT002 (NKI's signature)
    ) -> None:
        super().__init__(state)
        self.dtype = dtype or "int32"
        self.is_comparison = is_comparison
        self.is_data = False  # whether memory has a part in the value
        self._factors: _Factors = {}

    @classmethod
    def loaded(cls, state: int | None, dtype: str) -> NkiScalar:
        """A scalar that is data: a run without values would not know it, so it has no bounds."""
        scalar = cls(state, dtype)
        scalar.bounds = None
        scalar.is_data = True
        return scalar

    @classmethod
    def counter(cls, state: int | None, loop: int, bounds: tuple[int, int] | None) -> NkiScalar:
        """The counter of a loop."""
        scalar = cls(state)
        scalar.bounds = bounds
        scalar.loop = loop
        scalar._factors = {loop: 1}
        return scalar

    @property
    def loop_factors(self) -> _Factors:
        """How much the value grows when each loop's counter grows by 1; None: not evenly."""
        return self._factors

    @property
    def is_constant(self) -> bool:
        """Whether the value is known while the kernel is traced."""
        return not self.is_data and not self._factors

    def require_usable(self, who: str) -> None:
        """Refuse the result of a comparison wherever a value is needed."""
        if self.is_comparison:
            refuse(
                who,
                "the result of comparing scalars",
                "NKI traces the comparison of scalars but has no use for its result",
                "compare in an SBUF tile, or bound a loop by the scalar",
            )

    def __add__(self, other: object) -> NkiScalar:
        return self._combined("+", add, other)

    def __radd__(self, other: object) -> NkiScalar:
        return self._combined("+", add, other)

    def __sub__(self, other: object) -> NkiScalar:
        return self._combined("-", sub, other)

    def __rsub__(self, other: object) -> NkiScalar:
        return (-self)._combined("-", add, other)

    def __mul__(self, other: object) -> NkiScalar:
        return self._combined("*", mul, other)

    def __rmul__(self, other: object) -> NkiScalar:
        return self._combined("*", mul, other)

    def __neg__(self) -> NkiScalar:
        return self._combined("-", mul, -1)

    def __lt__(self, other: object) -> NkiScalar:
        return self._compared("<", other)

    def __le__(self, other: object) -> NkiScalar:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> NkiScalar:
        return self._compared(">", other)

    def __ge__(self, other: object) -> NkiScalar:
        return self._compared(">=", other)

    def __eq__(self, other: object) -> Any:
        return False if other is None else self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return True if other is None else self._compared("!=", other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"NkiScalar({self.state}, {self.dtype!r})"

    def _combined(self, sign: str, operation: _Combine, other: object) -> NkiScalar:
        right = self._operand(sign, other)
        result = NkiScalar(None, self.dtype)
        if self.state is not None and right.state is not None:
            result.state = _wrapped(operation(self.state, right.state), self.dtype)
        result.bounds = _bounds(operation, self, right)
        result.is_data = self.is_data or right.is_data
        result._factors = _factors(operation, self, right)
        if len(result._factors) == 1:
            (result.loop,) = result._factors
        return result

    def _compared(self, sign: str, other: object) -> NkiScalar:
        self._operand(sign, other)
        if self.dtype == "int64":
            refuse(
                "NkiScalar",
                f"{self!r} {sign} {other!r}",
                "int64 scalars have + - * only",
                "load an int32 scalar, or compare in an SBUF tile",
            )
        return NkiScalar(None, self.dtype, is_comparison=True)

    def _operand(self, sign: str, other: object) -> NkiScalar:
        """The right side as a scalar of the same width."""
        self.require_usable(f"NkiScalar {sign}")
        if isinstance(other, NkiScalar):
            other.require_usable(f"NkiScalar {sign}")
            if other.dtype == self.dtype:
                return other
            given = f"{self.dtype} {sign} {other.dtype}"
            refuse("NkiScalar", given, "scalars of one dtype", "load both from tiles of one dtype")
        whole = isinstance(other, (int, np.integer)) and not isinstance(other, bool)
        if not whole or _wrapped(int(other), self.dtype) != other:  # type: ignore[call-overload]
            refuse(
                "NkiScalar",
                f"{self.dtype} scalar {sign} {other!r}",
                f"a Python integer in the range of {self.dtype}, or a scalar of that dtype",
                "load the value with nisa.scalar_load",
            )
        return NkiScalar(int(other), self.dtype)


def _wrapped(value: int, dtype: str) -> int:
    bits = np.iinfo(dtype).bits
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _bounds(operation: _Combine, left: NkiScalar, right: NkiScalar) -> tuple[int, int] | None:
    """Least and greatest result; None where that is data, or where a value could wrap around."""
    if left.bounds is None or right.bounds is None:
        return None
    ends = [operation(bound, other) for bound in left.bounds for other in right.bounds]
    if any(_wrapped(end, left.dtype) != end for end in ends):
        return None
    return min(ends), max(ends)


def _factors(operation: _Combine, left: NkiScalar, right: NkiScalar) -> _Factors:
    """How the result follows the counters that its operands follow."""
    one, other = left.loop_factors, right.loop_factors
    if operation is mul:
        return _multiplied(left, right)
    sign = -1 if operation is sub else 1
    total = dict(one)
    for loop, factor in other.items():
        before = total.get(loop, 0)
        total[loop] = None if factor is None or before is None else before + sign * factor
    return {loop: factor for loop, factor in total.items() if factor != 0}


def _multiplied(left: NkiScalar, right: NkiScalar) -> _Factors:
    """Factors of a product: even only where one side is a constant."""
    if left.is_constant:
        left, right = right, left
    by = right.state if right.is_constant else None
    factors = {**right.loop_factors, **left.loop_factors}
    if by == 0:
        return {}
    return {
        loop: None if by is None or factor is None else by * factor
        for loop, factor in factors.items()
    }
