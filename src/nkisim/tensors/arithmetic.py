"""Python operators on tensors and registers, refused with what to write instead.

A kernel's Python runs while it is compiled, when neither has a value. Left to Python, some of them
would raise a bare TypeError, and a comparison would quietly be False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from nkisim.errors import ArgumentError, RunTimeValueError

_OPERATORS: Final = {
    "+": "nl.add",
    "-": "nl.subtract",
    "*": "nl.multiply",
    "/": "nl.divide",
    "**": "nl.power",
    "&": "nl.bitwise_and",
    "|": "nl.bitwise_or",
    "^": "nl.bitwise_xor",
    "<<": "nl.left_shift",
    ">>": "nl.right_shift",
    "<": "nl.less",
    "<=": "nl.less_equal",
    ">": "nl.greater",
    ">=": "nl.greater_equal",
    "==": "nl.equal",
}  # what an instruction takes as `op` in their place


def _refusing(symbol: str) -> Callable[..., NoReturn]:
    def refuse(self: RefusesDivision, *_: Any) -> NoReturn:
        self._refuse_operator(symbol)

    return refuse


class RefusesDivision:
    """Mixin: what even a scalar of NKI 0.7 cannot do raises; `_remedy` says what to do instead."""

    __slots__ = ()
    _remedy = ""

    def _remedy_for(self, symbol: str) -> str:  # noqa: ARG002 (for those to whom it matters)
        return self._remedy

    def _refuse_operator(self, symbol: str = "==") -> NoReturn:
        raise RunTimeValueError(
            f"a Python operator on {self!r}: {symbol}",
            limit="its value exists on the device only; Python runs when the kernel is compiled",
            remedy=self._remedy_for(symbol),
        )

    __truediv__ = __rtruediv__ = _refusing("/")
    __floordiv__ = __rfloordiv__ = _refusing("//")
    __mod__ = __rmod__ = _refusing("%")
    __pow__ = __rpow__ = _refusing("**")
    __matmul__ = __rmatmul__ = _refusing("@")
    __and__ = __rand__ = _refusing("&")
    __or__ = __ror__ = _refusing("|")
    __xor__ = __rxor__ = _refusing("^")
    __lshift__ = __rlshift__ = _refusing("<<")
    __rshift__ = __rrshift__ = _refusing(">>")
    __pos__, __invert__, __abs__ = _refusing("+"), _refusing("~"), _refusing("abs()")
    __int__, __float__ = _refusing("int()"), _refusing("float()")


class RefusesArithmetic(RefusesDivision):
    """Mixin: every arithmetic operator and ordering raises."""

    __slots__ = ()

    __add__ = __radd__ = _refusing("+")
    __sub__ = __rsub__ = __neg__ = _refusing("-")
    __mul__ = __rmul__ = _refusing("*")
    __lt__, __le__ = _refusing("<"), _refusing("<=")
    __gt__, __ge__ = _refusing(">"), _refusing(">=")


class TensorOperators(RefusesArithmetic):
    """The same for tensors, and what else Python would do with a value: compare, count, branch."""

    __slots__ = ()

    def _remedy_for(self, symbol: str) -> str:
        operator = _OPERATORS.get(symbol)
        if symbol == "@":
            return "issue nisa.nc_matmul(dst, stationary, moving)"
        if symbol in {"int()", "float()"}:
            return "nisa.register_load one element into a register, for offsets and loop bounds"
        if operator is None:
            return "issue an instruction: nisa.tensor_tensor, nisa.tensor_scalar ..."
        issue = f"issue nisa.tensor_tensor(dst, a, b, op={operator}) or, with a number,"
        issue += f" nisa.tensor_scalar(dst, a, op0={operator}, operand0=number)"
        return f"{issue}; it gives 1.0 or 0.0. {_NO_BRANCH}" if symbol in _COMPARE else issue

    def __bool__(self) -> bool:
        """True: shipped kernels write `if bias:` for a tensor that may have been left out."""
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, float, np.number, np.ndarray)):
            self._refuse_operator("==")
        return self is other

    __hash__ = object.__hash__

    def __len__(self) -> int:  # noqa: PLE0303 (it has none)
        self._refuse_sequence("len()")

    def __iter__(self) -> NoReturn:
        self._refuse_sequence("iterating")

    def _refuse_sequence(self, use: str) -> NoReturn:
        raise ArgumentError(
            f"{use} on {self!r}",
            limit="a tensor is not iterable",
            remedy="use tensor.shape[0], and index: for row in range(tensor.shape[0])",
        )


_COMPARE: Final = frozenset({"<", "<=", ">", ">=", "=="})
_NO_BRANCH: Final = (
    "Python cannot branch on it: choose per element with nisa.tensor_copy_predicated, or loop on"
    " the device with nl.fori_loop and nl.while_loop"
)
