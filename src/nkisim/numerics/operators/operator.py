"""What an operator of NKI is: a token for the `op` parameters, and a function of nki.language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Any, Final, TypeAlias

import numpy as np

from nkisim.errors import NkiValidationError
from nkisim.numerics.narrow_floats import Array, Float32Array

ArrayFunction: TypeAlias = Callable[..., Array]
Reducer: TypeAlias = Callable[..., Array]
"""reducer(array, axis, keepdims=...), as the `reduce` of a NumPy ufunc."""


def _signature(*names: str, **defaults: object) -> Signature:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    required = [Parameter(name, kind) for name in names]
    return Signature([*required, *(Parameter(n, kind, default=d) for n, d in defaults.items())])


UNARY: Final = _signature("x", dtype=None)
BINARY: Final = _signature("x", "y", dtype=None)
REDUCTION: Final = _signature("x", "axis", dtype=None, keepdims=False)


@dataclass(eq=False, repr=False)
class Operator:
    """One operator: `nl.add` is both the value of `op=nl.add` and the function `nl.add(x, y)`.

    An operator is what it can do, so the four functions are optional:

    - `on_floats`, by `apply`: an ALU operator on values converted to float32 (`arithmetic`, except
      that `nl.max` and `nl.min`, which only reduce, have it for their accumulators);
    - `on_bits`, by `apply_bits`: an ALU operator on integer bit patterns (`bitvec`);
    - `on_axes`, by `reduce`: folds the elements of some axes;
    - `on_scalar_engine`, by `activate`: an activation function (`activation`).

    `reduction` says that every instruction that reduces may take it; an operator with `on_axes`
    but without `reduction` is legal only in instructions that name it. `identity` is the value that
    leaves a reduction unchanged. `minimum_generation` is the first NeuronCore generation whose ALU
    has the operator; activation functions exist on all of them. `valid_range` bounds the argument
    of `activate`, or its magnitude if `bounds_magnitude`.

    There is one instance per name: operators compare by identity, and copies and pickles are the
    operator itself. `eager`, the function behind a call, is set by nkisim.language.
    """

    name: str
    arity: int
    on_floats: ArrayFunction | None = None
    on_bits: ArrayFunction | None = None
    on_axes: Reducer | None = None
    on_scalar_engine: ArrayFunction | None = None
    reduction: bool = False
    identity: float | None = None
    minimum_generation: int = 2
    valid_range: tuple[float, float] | None = None
    bounds_magnitude: bool = False
    signature: Signature | None = None
    eager: Callable[..., Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.__name__ = self.name
        self.__qualname__ = self.name
        self.__module__ = "nkisim.numerics.operators"
        self.__signature__ = self.signature or (UNARY if self.arity == 1 else BINARY)

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __reduce__(self) -> str:
        # A string is the name of a global of `__module__`: loading gives that very object.
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What nki.language gives this function to do."""
        if self.eager is None:
            raise NkiValidationError(
                f"{self!r}(...) was called",
                limit=f"{self!r} is an operator that nki.language offers no function for",
                remedy=f"pass it as an `op` of an instruction: op={self!r}",
            )
        return self.eager(*args, **kwargs)

    @property
    def bitvec(self) -> bool:
        """Whether it works on integer bit patterns."""
        return self.on_bits is not None

    @property
    def arithmetic(self) -> bool:
        """Whether it is an element-wise ALU operator on float32 values."""
        return self.on_floats is not None and self.signature is not REDUCTION

    @property
    def activation(self) -> bool:
        """Whether it is a function of the Scalar engine."""
        return self.on_scalar_engine is not None

    def apply(self, *operands: Float32Array | float) -> Float32Array:
        """The arithmetic result in float32; comparisons and logic give 1.0 or 0.0."""
        if self.on_floats is None:
            raise self._refusal("an arithmetic operator")
        self._check_operands(operands)
        with np.errstate(all="ignore"):
            arrays = [np.asarray(operand, dtype=np.float32) for operand in operands]
            return np.asarray(self.on_floats(*arrays), dtype=np.float32)

    def apply_bits(self, *operands: Array | int) -> Array:
        """The result on integer bit patterns, of the widest array's dtype.

        A Python int, and a narrower array, takes that width first, in two's complement.
        """
        if self.on_bits is None:
            raise self._refusal("a bitvec operator")
        self._check_operands(operands)
        result = self._widest(operands)
        unsigned = np.dtype(f"uint{8 * result.itemsize}")
        return np.asarray(
            self.on_bits(*(np.asarray(operand).astype(unsigned) for operand in operands))
        ).view(result)

    def reduce(self, array: Array, axes: int | Sequence[int], *, keepdims: bool = False) -> Array:
        """`array` folded over `axes` in row-major order: float32, or integer for a bitvec."""
        if self.on_axes is None:
            raise self._refusal("a reduction")
        axis = (axes,) if isinstance(axes, int) else tuple(axes)
        dtype = self._widest((array,)) if self.bitvec else np.dtype(np.float32)
        with np.errstate(all="ignore"):
            return np.asarray(
                self.on_axes(np.asarray(array, dtype), axis, keepdims=keepdims), dtype=dtype
            )

    def activate(self, x: Float32Array, relu_param: Array | float = 0.0) -> Float32Array:
        """The activation function of `x` in float32; `relu_param` is the slope that prelu reads."""
        if self.on_scalar_engine is None:
            raise self._refusal("an activation function")
        slope = (relu_param,) if self.name == "prelu" else ()
        with np.errstate(all="ignore"):
            values = np.asarray(x, dtype=np.float32)
            return np.asarray(self.on_scalar_engine(values, *slope), dtype=np.float32)

    def out_of_range(self, x: Float32Array) -> bool:
        """Whether an element lies outside the valid range of `activate`; NaN is no element."""
        if self.valid_range is None:
            return False
        low, high = np.float32(self.valid_range[0]), np.float32(self.valid_range[1])
        values = np.abs(x) if self.bounds_magnitude else x
        return bool(np.any((values < low) | (values > high)))

    def _check_operands(self, operands: Sequence[object]) -> None:
        if len(operands) != self.arity:
            raise NkiValidationError(
                f"{self!r} of {len(operands)} operands",
                limit=f"it takes {self.arity}",
                remedy="pass one operand to unary operators and two to binary ones",
            )

    def _widest(self, operands: Sequence[Array | int]) -> np.dtype[Any]:
        dtypes = [operand.dtype for operand in operands if not isinstance(operand, int)]
        if not dtypes or any(dtype.kind not in "iu" for dtype in dtypes):
            raise NkiValidationError(
                f"{self!r} of {', '.join(map(str, dtypes)) or 'Python numbers only'}",
                limit="bitvec operators work on arrays of integers",
                remedy="view the operands as integers, or use an arithmetic operator",
            )
        return max(dtypes, key=lambda dtype: dtype.itemsize)

    def _refusal(self, wanted: str) -> NkiValidationError:
        roles = {
            "an arithmetic operator": self.on_floats is not None,
            "a bitvec operator": self.bitvec,
            "a reduction": self.on_axes is not None,
            "an activation function": self.activation,
        }
        has = " and ".join(role for role, held in roles.items() if held)
        return NkiValidationError(
            f"{self!r} as {wanted}", limit=f"it is {has}", remedy="choose another operator"
        )
