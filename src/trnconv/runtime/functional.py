"""torch's convolutions on NumPy arrays, with its order of arguments and its defaults.

`accuracy` is what a kernel may give for speed: "direct", "bf16", "fast", "half" (plan/accuracy.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkisim.machine import find_machine
from trnconv.errors import ShapeError
from trnconv.geometry import Axes, Padding, conv_shape, transposed_shape
from trnconv.plan.accuracy import BF16, Policy, policy_of
from trnconv.plan.explain_question import explain_question
from trnconv.plan.question import Question
from trnconv.runtime.convolve import LaunchOptions, convolve, convolve_transposed

Array = np.ndarray[Any, Any]


def conv1d(
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
    """input [N, C_in, L], weight [C_out, C_in, K] -> [N, C_out, L']."""
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _conv(1, (input, weight, bias), _launch(target, accuracy), **options)


def conv2d(
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
    """input [N, C_in, H, W], weight [C_out, C_in, KH, KW] -> [N, C_out, H', W']."""
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _conv(2, (input, weight, bias), _launch(target, accuracy), **options)


def conv3d(
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
    """input [N, C_in, D, H, W], weight [C_out, C_in, KD, KH, KW] -> [N, C_out, D', H', W']."""
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _conv(3, (input, weight, bias), _launch(target, accuracy), **options)


def conv_transpose1d(
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
    """input [N, C_in, L], weight [C_in, C_out / groups, K] -> [N, C_out, L']."""
    options = {"stride": stride, "padding": padding, "output_padding": output_padding}
    options |= {"groups": groups, "dilation": dilation}
    return _conv_transpose(1, (input, weight, bias), target, **options)


def conv_transpose2d(
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
    """input [N, C_in, H, W], weight [C_in, C_out / groups, KH, KW] -> [N, C_out, H', W']."""
    options = {"stride": stride, "padding": padding, "output_padding": output_padding}
    options |= {"groups": groups, "dilation": dilation}
    return _conv_transpose(2, (input, weight, bias), target, **options)


def conv_transpose3d(
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
    """input [N, C_in, D, H, W], weight [C_in, C_out / groups, KD, KH, KW] -> [N, C_out, ...]."""
    options = {"stride": stride, "padding": padding, "output_padding": output_padding}
    options |= {"groups": groups, "dilation": dilation}
    return _conv_transpose(3, (input, weight, bias), target, **options)


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


def _launch(target: str, accuracy: str | Policy) -> LaunchOptions:
    return LaunchOptions(target, policy=policy_of(accuracy))


def _conv(
    rank: int, operands: tuple[Array, Array, Array | None], launch: LaunchOptions, **options: Any
) -> Array:
    x, w, bias = operands
    _require_rank(f"conv{rank}d", x, rank)
    return convolve(x, w, bias, launch=launch, **options).y


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

    Where fast forms are looked for, what each of them would give follows.
    """
    shape = conv_shape(input_shape, weight_shape, stride=stride, padding=padding, dilation=dilation)
    question = Question(shape, find_machine(target), dtype, policy=policy_of(accuracy))
    return "\n\n".join(explain_question(question))
