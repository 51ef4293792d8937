"""How far kernels between convolutions may be from exact values. Nothing here is tuned.

`UNIT` is the relative error of rounding to a type once: half a step at 1, 2**-p for p significant
bits. SINGLE stands for a handful of float32 roundings, and for functions that engines compute to a
few units in the last place.
"""

from math import erf

import numpy as np

from conv_arrays import numpy_dtype
from nkisim.device_rules.rule import Strength
from nkisim.device_rules.rulebook import RULES

UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
SMALLEST = {"bfloat16": 2.0**-134, "float16": 2.0**-25, "float32": 2.0**-150}
SINGLE = 2.0**-20
SLOPE = 1.1  # the steepest that SiLU gets
# Every rule there is: what one report supports is refused, the others are named.
EVERY_RULE = (
    "strict",
    *sorted(rule.name for rule in RULES.values() if rule.strength in (Strength.W, Strength.X)),
)


def silu(z):
    return z / (1 + np.exp(-z))


def slope_and_curvature(activation, u):
    """act'(u), and the most that it changes by for a change of u."""
    if activation == "silu":
        s = 1 / (1 + np.exp(-u))
        return s * (1 + u * (1 - s)), 0.5
    if activation == "gelu":
        phi = np.exp(-u * u / 2) / np.sqrt(2 * np.pi)
        return 0.5 * (1 + np.vectorize(erf)(u / np.sqrt(2))) + u * phi, 0.8
    return np.ones_like(u), 0.0


def normal(seed, *sizes, dtype="float32"):
    values = np.random.default_rng([7, seed, *sizes]).standard_normal(sizes)
    return values.astype(numpy_dtype(dtype))


def rounded(bound, exact, dtype):
    """The bound of a result that is then rounded to its type."""
    return bound + UNIT[dtype] * (np.abs(exact) + bound) + SMALLEST[dtype]


def worst(y, exact, bound):
    """The largest error, in bounds: at most 1 where all is well, infinite for what is no number."""
    error = np.abs(y.astype(np.float64) - exact)
    return float(np.max(np.where(np.isfinite(error), error / bound, np.inf)))
