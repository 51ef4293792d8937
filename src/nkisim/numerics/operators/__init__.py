"""Every operator of NKI, once: the ALU operators and the Scalar engine's activation functions.

The table follows NKI's own two: operators, with the legal reductions, and activation functions,
with their valid ranges. An operator of both is one object with both meanings.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from nkisim.numerics.operators import activation_functions as functions
from nkisim.numerics.operators import alu
from nkisim.numerics.operators.operator import REDUCTION, Operator

OPERATORS: Final[dict[str, Operator]] = {}


def _enter(operator: Operator) -> Operator:
    OPERATORS[operator.name] = operator
    return operator


def _bitvec(name: str, ufunc: np.ufunc, **traits: Any) -> Operator:
    return _enter(Operator(name, ufunc.nin, on_bits=ufunc, **traits))


def _binary(name: str, function: Any, **traits: Any) -> Operator:
    return _enter(Operator(name, 2, on_floats=function, **traits))


def _folding(ufunc: np.ufunc) -> dict[str, Any]:
    """The traits of an operator that may reduce, its ufunc being associative."""
    return {"on_axes": ufunc.reduce, "reduction": True}


def _activation(name: str, function: Any, **traits: Any) -> Operator:
    return _enter(Operator(name, 1, on_scalar_engine=function, **traits))


def _unary(name: str, function: Any, **traits: Any) -> Operator:
    """An activation function that is an ALU operator as well."""
    return _activation(name, function, on_floats=function, **traits)


invert = _bitvec("invert", np.invert)
bitwise_and = _bitvec("bitwise_and", np.bitwise_and, identity=-1, **_folding(np.bitwise_and))
bitwise_or = _bitvec("bitwise_or", np.bitwise_or, identity=0, **_folding(np.bitwise_or))
bitwise_xor = _bitvec("bitwise_xor", np.bitwise_xor, identity=0, **_folding(np.bitwise_xor))
left_shift = _bitvec("left_shift", np.left_shift)
right_shift = _bitvec("right_shift", np.right_shift)

add = _binary("add", np.add, identity=0.0, **_folding(np.add))
subtract = _binary(
    "subtract", np.subtract, identity=0.0, on_axes=alu.fold(np.subtract), reduction=True
)
multiply = _binary("multiply", np.multiply, identity=1.0, **_folding(np.multiply))
maximum = _binary("maximum", np.maximum, identity=-math.inf, **_folding(np.maximum))
minimum = _binary("minimum", np.minimum, identity=math.inf, **_folding(np.minimum))
logical_and = _binary("logical_and", np.logical_and, identity=1.0, **_folding(np.logical_and))
logical_or = _binary("logical_or", np.logical_or, identity=0.0, **_folding(np.logical_or))
logical_xor = _binary("logical_xor", np.logical_xor, identity=0.0, **_folding(np.logical_xor))
equal = _binary("equal", np.equal)
not_equal = _binary("not_equal", np.not_equal)
greater_equal = _binary("greater_equal", np.greater_equal)
greater = _binary("greater", np.greater)
less_equal = _binary("less_equal", np.less_equal)
less = _binary("less", np.less)
power = _binary("power", alu.power)
abs_max = _binary(
    "abs_max", alu.abs_max, identity=0.0, on_axes=alu.fold(alu.abs_max), minimum_generation=4
)
abs_min = _binary(
    "abs_min", alu.abs_min, identity=math.inf, on_axes=alu.fold(alu.abs_min), minimum_generation=4
)
bypass = _binary("bypass", alu.first, minimum_generation=4)

max = _binary(  # noqa: A001
    "max", np.maximum, identity=-math.inf, signature=REDUCTION, **_folding(np.maximum)
)
min = _binary(  # noqa: A001
    "min", np.minimum, identity=math.inf, signature=REDUCTION, **_folding(np.minimum)
)
average = _enter(Operator("average", 1, on_axes=alu.average, signature=REDUCTION))

abs = _unary("abs", functions.absolute)  # noqa: A001
square = _unary("square", functions.square, minimum_generation=4)
relu = _unary("relu", functions.relu, minimum_generation=4)
rsqrt = _unary("rsqrt", functions.rsqrt, valid_range=(2.0**-87, 2.0**97))
reciprocal = _unary(
    "reciprocal", functions.reciprocal, valid_range=(2.0**-42, 2.0**42), bounds_magnitude=True
)

copy = _activation("copy", functions.copy)
prelu = _activation("prelu", functions.prelu)
sigmoid = _activation("sigmoid", functions.sigmoid)
silu = _activation("silu", functions.silu)
silu_dx = _activation("silu_dx", functions.silu_dx)
gelu = _activation("gelu", functions.gelu)
gelu_dx = _activation("gelu_dx", functions.gelu_dx)
gelu_apprx_tanh = _activation("gelu_apprx_tanh", functions.gelu_apprx_tanh)
gelu_apprx_sigmoid = _activation("gelu_apprx_sigmoid", functions.gelu_apprx_sigmoid)
gelu_apprx_sigmoid_dx = _activation("gelu_apprx_sigmoid_dx", functions.gelu_apprx_sigmoid_dx)
tanh = _activation("tanh", functions.tanh)
softplus = _activation("softplus", functions.softplus)
mish = _activation("mish", functions.mish)
erf = _activation("erf", functions.erf)
erf_dx = _activation("erf_dx", functions.erf_dx)
exp = _activation("exp", functions.exp)
sign = _activation("sign", functions.sign)
log = _activation("log", functions.log, valid_range=(2.0**-64, 2.0**64))
sin = _activation("sin", functions.sin, valid_range=(-math.pi, math.pi))
arctan = _activation("arctan", functions.arctan, valid_range=(-math.pi / 2, math.pi / 2))
sqrt = _activation("sqrt", functions.sqrt, valid_range=(2.0**-116, 2.0**118))
