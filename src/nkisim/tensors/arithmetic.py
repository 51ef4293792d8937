"""Python operators on tensors and registers, refused with what to write instead.

A kernel's Python runs while it is compiled, when neither has a value. Left to Python, some of them
would raise a bare TypeError, and a comparison would quietly be False.
"""

from __future__ import annotations

from typing import Any, NoReturn

from nkisim.errors import RunTimeValueError


class RefusesDivision:
    """Mixin: what even a scalar of NKI 0.7 cannot do raises; `_remedy` says what to do instead."""

    __slots__ = ()
    _remedy = ""

    def _refuse_operator(self, *_: Any) -> NoReturn:
        raise RunTimeValueError(
            f"a Python operator on {self!r}",
            limit="its value exists on the device only; Python runs when the kernel is compiled",
            remedy=self._remedy,
        )

    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refuse_operator
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse_operator
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse_operator
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse_operator
    __pos__ = __invert__ = __abs__ = _refuse_operator
    __int__ = __float__ = _refuse_operator


class RefusesArithmetic(RefusesDivision):
    """Mixin: every arithmetic operator and ordering raises."""

    __slots__ = ()

    def _refuse_arithmetic(self, *_: Any) -> NoReturn:
        self._refuse_operator()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse_arithmetic
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_arithmetic
