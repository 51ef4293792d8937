"""torch's convolutions on NumPy arrays, with its order of arguments and its defaults.

`accuracy` is what a kernel may give for speed: "direct", "bf16", "fast", "half" (ask/policy.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from nkisim.machine import find_machine
from trnconv.ask.policy import BF16, Policy, policy_of
from trnconv.ask.question import Question
from trnconv.errors import ShapeError
from trnconv.geometry import Axes, Padding, conv_shape, transposed_shape
from trnconv.planner.explain import explain_question
from trnconv.runtime.convolve import LaunchOptions, convolve, convolve_transposed

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
_SIZES = ("L", "H, W", "D, H, W")


def named(function: Callable[..., Result], name: str, contract: str) -> Callable[..., Result]:
    """A function of one rank under its own name; `contract` has a place for the name."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = contract.format(name)
    return function


def _convolution(rank: int) -> Callable[..., Array]:
    def convolution(
        input: Array,  # noqa: A002 (torch's name)
        weight: Array,
        bias: Array | None = None,
        stride: Axes = 1,
        padding: Padding = 0,
        dilation: Axes = 1,
        groups: int = 1,
        *,
        target: str = "trn2",
        accuracy: str | Policy = BF16,
    ) -> Array:
        _require_rank(f"conv{rank}d", input, rank)
        return convolve(
            input,
            weight,
            bias,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            launch=LaunchOptions(target, policy=policy_of(accuracy)),
        ).y

    sizes = _SIZES[rank - 1]
    contract = f"input [N, C_in, {sizes}], weight [C_out, C_in / groups, ...] -> [N, C_out, ...]."
    return named(convolution, f"conv{rank}d", contract)


def _transposed_convolution(rank: int) -> Callable[..., Array]:
    def convolution(
        input: Array,  # noqa: A002 (torch's name)
        weight: Array,
        bias: Array | None = None,
        stride: Axes = 1,
        padding: Axes = 0,
        output_padding: Axes = 0,
        groups: int = 1,
        dilation: Axes = 1,
        *,
        target: str = "trn2",
    ) -> Array:
        options = {"stride": stride, "padding": padding, "output_padding": output_padding}
        options |= {"groups": groups, "dilation": dilation}
        return _conv_transpose(rank, (input, weight, bias), target, **options)

    sizes = _SIZES[rank - 1]
    contract = f"input [N, C_in, {sizes}], weight [C_in, C_out / groups, ...] -> [N, C_out, ...]."
    return named(convolution, f"conv_transpose{rank}d", contract)


def _conv_transpose(
    rank: int, operands: tuple[Array, Array, Array | None], target: str, **options: Any
) -> Array:
    x, w, bias = operands
    _require_rank(f"conv_transpose{rank}d", x, rank)
    shape = transposed_shape(x.shape, w.shape, **options)
    x5 = x.reshape(shape.batch, shape.c_in, *shape.size)
    w5 = w.reshape(shape.c_in, -1, *shape.kernel)
    y = convolve_transposed(x5, w5, bias, shape, LaunchOptions(target)).y
    return y.reshape(shape.batch, shape.c_out, *shape.out[3 - rank :])


def _require_rank(name: str, x: Array, rank: int) -> None:
    if x.ndim != rank + 2:
        raise ShapeError(
            f"{name} of an input with {x.ndim} dimensions: it takes {rank + 2}: [N, C_in, ...]."
        )


def explain(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    target: str = "trn2",
    dtype: str = "bfloat16",
    accuracy: str | Policy = BF16,
) -> str:
    """The plan of a convolution in words: decisions, modelled time, memory, what lost and why.

    Where other forms are looked for, what each of them would give follows.
    """
    shape = conv_shape(input_shape, weight_shape, stride=stride, padding=padding, dilation=dilation)
    question = Question(shape, find_machine(target), dtype, policy=policy_of(accuracy))
    return "\n\n".join(explain_question(question))


conv1d, conv2d, conv3d = (_convolution(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    _transposed_convolution(rank) for rank in (1, 2, 3)
)
