"""torch's convolutions on NumPy arrays, with its order of arguments and its defaults.

As in torch, an input without a batch is one image, and no images make no launch. What is ours is
keyword-only: `padding_mode` ("zeros", "replicate", "reflect", "circular"), the machine (`machine`),
the `cores` of a launch (without: two on trn2 and trn3, one on trn1), `accuracy`, what a kernel may
give for speed: "direct", "bf16", "fast", "fastest", "half" (ask/policy.py), and `reproducible`: the
same bits however the input is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from nkisim.machine import find_machine
from trnconv.errors import ShapeError
from trnconv.geometry import ZEROS, Axes, Padding, conv_shape, transposed_shape
from trnconv.problem.conv_problem import ConvProblem, Shape
from trnconv.problem.policy import BF16, Policy, policy_of
from trnconv.runtime.compute import require_shape
from trnconv.runtime.convolve import LaunchOptions, convolve, convolve_transposed
from trnconv.runtime.describe import explained

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
        padding_mode: str = ZEROS,
        machine: str = "trn2",
        cores: int | None = None,
        accuracy: str | Policy = BF16,
        reproducible: bool = False,
    ) -> Array:
        options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
        options |= {"groups": groups, "padding_mode": padding_mode}
        launch = LaunchOptions(
            machine, cores, reproducible=reproducible, policy=policy_of(accuracy)
        )

        x = _images(f"conv{rank}d", input, rank)
        if x.shape[0] == 0:
            y = _of_none(conv_shape((1, *x.shape[1:]), weight.shape, **options), x, bias)
        else:
            y = convolve(x, weight, bias, **options, launch=launch).y
        return y if input.ndim == x.ndim else y[0]

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
        machine: str = "trn2",
        cores: int | None = None,
    ) -> Array:
        options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
        options |= {"groups": groups, "output_padding": output_padding}
        x = _images(f"conv_transpose{rank}d", input, rank)
        if x.shape[0] == 0:
            y = _of_none(transposed_shape((1, *x.shape[1:]), weight.shape, **options), x, bias)
        else:
            y = _conv_transpose((x, weight, bias), LaunchOptions(machine, cores), **options)
        return y if input.ndim == x.ndim else y[0]

    sizes = _SIZES[rank - 1]
    contract = f"input [N, C_in, {sizes}], weight [C_in, C_out / groups, ...] -> [N, C_out, ...]."
    return named(convolution, f"conv_transpose{rank}d", contract)


def _conv_transpose(
    operands: tuple[Array, Array, Array | None], launch: LaunchOptions, **options: Any
) -> Array:
    x, w, bias = operands
    shape = transposed_shape(x.shape, w.shape, **options)
    x5 = x.reshape(shape.batch, shape.c_in, *shape.size)
    w5 = w.reshape(shape.c_in, -1, *shape.kernel)
    y = convolve_transposed(x5, w5, bias, shape, launch).y
    return y.reshape(shape.batch, shape.c_out, *shape.out[5 - x.ndim :])


def _whole(name: str, sizes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The sizes of an input [N, C_in, ...]; without a batch, it is one image."""
    if len(sizes) == rank + 1:
        return (1, *sizes)
    if len(sizes) != rank + 2:
        raise ShapeError(
            f"{name} of an input with {len(sizes)} dimensions: it takes {rank + 2}: [N, C_in, ...],"
            f" or {rank + 1} without a batch."
        )
    return tuple(sizes)


def _images(name: str, x: Array, rank: int) -> Array:
    return x.reshape(_whole(name, x.shape, rank))


def _of_none(image: Shape, x: Array, bias: Array | None) -> Array:
    """The output for no images, in the sizes of the output for one."""
    if bias is not None:
        require_shape("bias", bias, (image.c_out,))
    return np.empty((0, image.c_out, *image.out_sizes()[5 - x.ndim :]), x.dtype)


def explain(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
    padding_mode: str = ZEROS,
    transposed: bool = False,
    output_padding: Axes = 0,
    machine: str = "trn2",
    cores: int | None = None,
    dtype: str = "bfloat16",
    accuracy: str | Policy = BF16,
) -> str:
    """The plan of a convolution in words: decisions, modelled time, memory, what lost and why.

    Where other algorithms are considered, what each of them would give follows. It takes what
    `conv*` takes; with `transposed`, what `conv_transpose*` takes: the weight is [C_in, C_out /
    groups, ...]. Where a call is several launches, each kind of them is listed, and the longest
    explained.
    """
    sizes = _whole("explain", input_shape, len(weight_shape) - 2)
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "groups": groups}
    shape: Shape
    if transposed:
        _require_numbers(padding, padding_mode)
        options |= {"padding": padding, "output_padding": output_padding}
        shape = transposed_shape(sizes, weight_shape, **options)
    else:
        if output_padding != 0:
            raise ShapeError(f"output_padding={output_padding}: of transposed convolutions only.")
        options |= {"padding": padding, "padding_mode": padding_mode}
        shape = conv_shape(sizes, weight_shape, **options)
    problem = ConvProblem(shape, find_machine(machine), dtype, policy=policy_of(accuracy))
    return "\n\n".join(explained(problem, cores))


def _require_numbers(padding: Padding, padding_mode: str) -> None:
    if isinstance(padding, str) or padding_mode != ZEROS:
        raise ShapeError(
            f"padding={padding!r}, padding_mode={padding_mode!r} of a transposed convolution: it"
            " takes numbers, which crop its output, and no mode."
        )


conv1d, conv2d, conv3d = (_convolution(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    _transposed_convolution(rank) for rank in (1, 2, 3)
)
