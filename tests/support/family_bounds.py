"""How far a correct member of the family may be from the exact one; `tolerance` has the proofs.

The linear part. With A the same convolution of absolute values (|bias| and a residual that comes
before the activation included), an output is a sum of at most n products and two more terms. As in
`tolerance`, each term picks up at most n + 3 factors 1 + d, |d| <= u = 2**-24, so that the float32
sum z obeys |z - exact| <= gamma(n + 3) * A, and so does the float64 reference with 2**-53.
If all operands are integers and A <= 2**24, every partial sum in every order is an integer that
float32 holds: then z is exact. Zeros of packed filters add nothing.

Filters. Where taps always read the same frame, their filters may be summed and rounded to their
type beforehand: each sum is off by a factor 1 + d, |d| <= s, half a step of that type at 1, and
the sum of |summed w| |x| is at most A. So z is off by s A more, and the rest holds for (1 + s) A.
Small integers stay exact.

The epilogue. An activation f with |f(a) - f(b)| <= L |a - b| turns the error e of z into at most L
e. f itself is evaluated in float32. nkisim computes it in float64 and rounds once, which is half a
step of float32, a factor 1 + d with |d| <= 2**-24. FUNCTION_ERROR allows one whole step, 2**-23:
the other half is far more than what the float64 evaluations here and there can differ by, some tens
of steps of 2**-53 each. Below the normal range a step is 2**-149, whatever the value. A residual
that comes after is one more addition in float32, then the output is rounded once to its type: half
a step of that type.

Composed activations. The Scalar engine multiplies a sum and the bias by the slope s of a leaky
ReLU, in float32, and adds them: three roundings and that of s, of terms below s A, so that s z is
off by 4 u s A more. An ELU takes 1 from exp(z), which is off by FUNCTION_ERROR exp(z), and rounds
once more: below 1.5 * 2**-23 for z <= 0. Above, exp(z) - 1 is taken only where it seems to be less
than z. It is more by z^2 / 2 at least, which is as much as those errors only below z = 6e-4, where
exp(z) < 1.001. So 2**-22 bounds both. Before a residual that comes after, both are rounded to the
type of the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from tolerance import FLOAT32_BITS, FLOAT32_SUBNORMAL, FLOAT64_BITS, output_rounding

FUNCTION_ERROR = 2.0**-23


def _sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))


def _gelu(z):
    normal = np.vectorize(lambda each: math.erfc(-each / math.sqrt(2)) / 2, otypes=[float])
    return z * normal(z)


def _gelu_tanh(z):
    return z * _sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))


# Each function in float64, and the largest slope it has, rounded up.
FUNCTIONS = {
    "identity": (lambda z: z, 1.0),
    "relu": (lambda z: np.maximum(z, 0.0), 1.0),
    "silu": (lambda z: z * _sigmoid(z), 1.0999),  # at z = 2.40
    "gelu": (_gelu, 1.129),  # at z = sqrt(2)
    "gelu_tanh": (_gelu_tanh, 1.1291),  # at z = 1.42
    "tanh": (np.tanh, 1.0),
    "sigmoid": (_sigmoid, 0.25),
    "softplus": (lambda z: np.logaddexp(0, z), 1.0),
    "mish": (lambda z: z * np.tanh(np.logaddexp(0, z)), 1.0885),  # at z = 1.49
}


def function_of(activation):
    """An activation in float64, and the largest slope it has."""
    name, _, slope = activation.partition(":")
    if name == "leaky_relu":
        return lambda z: np.where(z < 0, float(slope) * z, z), 1.0
    if name == "elu":
        return lambda z: np.where(z < 0, np.expm1(np.minimum(z, 0)), z), 1.0
    return FUNCTIONS[name]


def _composed_error(activation, magnitude):
    """What the instructions of a composed activation add; None if it is of one."""
    name, _, slope = activation.partition(":")
    if name == "leaky_relu":
        return 4 * 2.0**-FLOAT32_BITS * float(slope) * magnitude + FLOAT32_SUBNORMAL
    return 2.0**-22 * np.ones_like(magnitude) if name == "elu" else None


@dataclass(frozen=True)
class Sums:
    """Exact sums, the sums of their absolute values, and the most terms that one of them has."""

    exact: np.ndarray
    magnitude: np.ndarray
    terms: int
    integers: bool
    summed: float = 0.0  # half a step of the type of filters that may be sums of others

    def plus(self, term):
        """The same with one more term, already counted."""
        integers = self.integers and bool(np.array_equal(term, np.rint(term)))
        exact, magnitude = self.exact + term, self.magnitude + np.abs(term)
        return replace(self, exact=exact, magnitude=magnitude, integers=integers)

    def error(self):
        """The largest error of each float32 sum, and of the reference it is compared with."""
        if self.integers and self.magnitude.max() <= 2.0**FLOAT32_BITS:
            return np.zeros_like(self.exact)
        factors = self.terms + 3
        relative = _gamma(factors, FLOAT32_BITS) + _gamma(factors, FLOAT64_BITS)
        rounded = (relative * (1 + self.summed) + self.summed) * self.magnitude
        return rounded + self.terms * FLOAT32_SUBNORMAL / 2


def rounding_of_summed_filters(shape, dtype):
    """Half a step at 1 if two taps read the same frame for every output, else nothing."""
    if shape.modes[0] != "replicate":
        return 0.0
    pads = (shape.pad_before[0], shape.pad_after[0])
    frames = np.pad(np.arange(shape.size[0]), pads, mode="edge")
    last = (shape.out_size(0) - 1) * shape.stride[0] + 1
    starts = [tap * shape.dilation[0] for tap in range(shape.kernel[0])]
    reads = {tuple(frames[start : start + last : shape.stride[0]]) for start in starts}
    return float(ml_dtypes.finfo(dtype).eps) / 2 if len(reads) < shape.kernel[0] else 0.0


def sums_of(linear, operands, terms, summed=0.0):
    """`linear(*operands)` as exact sums; an operand that is None is not there."""
    given = [each for each in operands if each is not None]
    absolute = [None if each is None else np.abs(each) for each in operands]
    integers = all(np.array_equal(each, np.rint(each)) for each in given)
    return Sums(linear(*operands), linear(*absolute), terms, integers, summed)


def ended(sums, epilogue, residual, dtype):
    """What should come out after an end, and how far from it an output of this type may be."""
    added = None if residual is None else residual.astype(np.float64)
    if epilogue.residual == "before":
        sums = sums.plus(added)
    function, slope = function_of(epilogue.activation)
    exact, error = function(sums.exact), slope * sums.error()
    composed = _composed_error(epilogue.activation, sums.magnitude + error)
    if composed is not None:
        error = error + composed
        if epilogue.residual == "after":
            error = error + _rounding(np.abs(exact) + error, dtype)
    elif epilogue.activation not in ("identity", "relu"):  # those two are exact
        error = error + FUNCTION_ERROR * (np.abs(exact) + error) + FLOAT32_SUBNORMAL
    if epilogue.residual == "after":
        exact = exact + added
        is_exact = sums.integers and not error.any()
        error = error if is_exact else error + 2.0**-FLOAT32_BITS * (np.abs(exact) + error)
    return exact, error + _rounding(np.abs(exact) + error, dtype)


def _rounding(reach, dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    if reach.max() > largest:
        raise ValueError(f"outputs up to {reach.max():.3g}: {dtype} ends at {largest:.3g}.")
    return output_rounding(reach, dtype)


def _gamma(count, bits):
    accumulated = count * 2.0**-bits
    return accumulated / (1 - accumulated)
