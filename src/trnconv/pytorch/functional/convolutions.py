"""The six functions: arguments as torch takes them, and the op that they come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from trnconv.errors import UnsupportedError
from trnconv.geometry import CIRCULAR, REFLECT, REPLICATE, ZEROS
from trnconv.problem.epilogue import IDENTITY, known_activation
from trnconv.problem.policy import BF16, Policy, policy_of
from trnconv.pytorch.backends.aten import finished
from trnconv.pytorch.backends.choice import Backend, asked_for
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.functional.arguments import (
    Axes,
    Operands,
    computed_type,
    forward_spec,
    is_empty,
    paddings,
    require_no_order,
    require_no_tangents,
    require_residual,
    steps_of,
    transposed_sizes,
    wants_gradient,
    with_batch,
)
from trnconv.pytorch.operators import gradients
from trnconv.pytorch.operators.gradients import fused_convolution
from trnconv.runtime.functional import named

_MODES = (ZEROS, REPLICATE, REFLECT, CIRCULAR)
Tensor = torch.Tensor


def _convolution(rank: int) -> Callable[..., Tensor]:
    def convolution(
        input: Tensor,  # noqa: A002 (torch's name)
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Axes = 1,
        padding: str | Axes = 0,
        dilation: Axes = 1,
        groups: int = 1,
        *,
        padding_mode: str = "zeros",
        activation: str = IDENTITY,
        residual: Tensor | None = None,
        accuracy: str | Policy = BF16,
        reproducible: bool = False,
        backend: str | Backend | None = None,
        machine: str | None = None,
        cores: int | None = None,
    ) -> Tensor:
        policy = policy_of(accuracy).text()
        asked = asked_for(backend, machine, cores)
        end = _CallOptions(padding_mode, activation, residual, policy, asked, reproducible)
        return _conv(rank, (input, weight, bias), (stride, padding, dilation, groups), end)

    return named(convolution, f"conv{rank}d", "torch.nn.functional.{}, on the kernels of trnconv.")


def _transposed_convolution(rank: int) -> Callable[..., Tensor]:
    def convolution(
        input: Tensor,  # noqa: A002 (torch's name)
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Axes = 1,
        padding: Axes = 0,
        output_padding: Axes = 0,
        groups: int = 1,
        dilation: Axes = 1,
        *,
        backend: str | Backend | None = None,
        machine: str | None = None,
        cores: int | None = None,
    ) -> Tensor:
        options = (stride, padding, output_padding, dilation, groups)
        asked = asked_for(backend, machine, cores)
        return _conv_transpose(rank, (input, weight, bias), options, asked)

    name = f"conv_transpose{rank}d"
    return named(convolution, name, "torch.nn.functional.{}, on the kernels of trnconv.")


@dataclass(frozen=True)
class _CallOptions:
    """What is ours of a call, checked."""

    padding_mode: str
    activation: str
    residual: Tensor | None
    accuracy: str  # as ops take it
    backend: str  # as ops take it
    reproducible: bool

    def __post_init__(self) -> None:
        if self.padding_mode not in _MODES:
            raise ValueError(f"padding_mode {self.padding_mode!r}: {', '.join(_MODES)}.")
        known_activation(self.activation)
        if self.reproducible and self.backend == Backend.torch.value:
            raise UnsupportedError(
                'reproducible=True on backend "torch": the order of its sums is its own. Ask for'
                " nkisim, or for a Neuron device."
            )

    def added_to(self, spec: ConvSpec, rank: int) -> ConvSpec:
        """A spec with this mode along its own axes, this activation and this policy."""
        modes = [ZEROS] * (3 - rank) + [self.padding_mode] * rank
        own = (modes[0], modes[1], modes[2])
        return replace(
            spec,
            modes=own,
            activation=self.activation,
            accuracy=self.accuracy,
            reproducible=self.reproducible,
        )


def _conv(
    rank: int,
    operands: Operands,
    options: tuple[Axes, str | Axes, Axes, int],
    epilogue: _CallOptions,
) -> Tensor:
    require_no_tangents(*operands, epilogue.residual)
    x, w, bias = _under_autocast(with_batch(operands[0], rank), *operands[1:])
    unbatched = operands[0].dim() == rank + 1
    if is_empty(x, w):
        empty = _of_nothing(rank, (x, w, bias), options, epilogue)
        return empty.squeeze(0) if unbatched else empty
    residual = epilogue.residual
    if unbatched and residual is not None:
        residual = residual.unsqueeze(0)
    moves, sizes = forward_spec(rank, (x, w, bias), options)
    shape = [x.shape[0], w.shape[0], *sizes]
    require_residual(residual, x, shape)
    spec = epilogue.added_to(moves, rank)
    x5, w5 = _in_3d(x), _in_3d(w)
    added = None if residual is None else _in_3d(residual)
    if wants_gradient(x, w, bias, residual) or (_is_traced() and not epilogue.reproducible):
        require_no_order(reproducible=epilogue.reproducible)
        y = finished(_plain(x5, w5, bias, spec, epilogue.backend), epilogue.activation, added)
    else:
        y = fused_convolution([x5], w5, bias, spec, added, epilogue.backend)
    y = y.reshape(shape)
    return y.squeeze(0) if unbatched else y


def _is_traced() -> bool:
    """Under torch.jit.trace: what is recorded may be asked for gradients later."""
    traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return traced


def _of_nothing(
    rank: int,
    operands: Operands,
    options: tuple[Axes, str | Axes, Axes, int],
    epilogue: _CallOptions,
) -> Tensor:
    """Where there is nothing to multiply: torch's own result, or its own error."""
    x, w, bias = operands
    stride, padding, dilation, groups = options
    if epilogue.padding_mode != ZEROS:
        before, after = paddings(padding, w, *steps_of(rank, stride, dilation, groups))
        sides = [side for pair in zip(before[::-1], after[::-1], strict=True) for side in pair]
        x, padding = torch.nn.functional.pad(x, sides, mode=epilogue.padding_mode), 0
    convolve = getattr(torch.nn.functional, f"conv{rank}d")
    y: Tensor = convolve(x, w, bias, stride, padding, dilation, groups)
    return finished(y, epilogue.activation, epilogue.residual)


def _plain(x: Tensor, w: Tensor, bias: Tensor | None, spec: ConvSpec, backend: str) -> Tensor:
    """A convolution that has gradients."""
    options = (spec.numbers(), backend, spec.accuracy, ",".join(spec.modes))
    y: Tensor = gradients.convolution(x, w, *options)
    return y if bias is None else y + bias.view(-1, 1, 1, 1)


def _in_3d(tensor: Tensor) -> Tensor:
    """[N, C, ...] with axes of one position before the others, so that there are three."""
    return tensor.reshape(*tensor.shape[:2], *[1] * (5 - tensor.dim()), *tensor.shape[2:])


def _conv_transpose(
    rank: int,
    operands: Operands,
    options: tuple[Axes, Axes, Axes, Axes, int],
    backend: str,
) -> Tensor:
    require_no_tangents(*operands)
    x, w, bias = _under_autocast(with_batch(operands[0], rank), *operands[1:])
    if is_empty(x, w):
        return _transposed_to_nothing(rank, operands, options)
    reached, zeros, spec = transposed_sizes(rank, (x, w, bias), options)
    if min(reached) < 1:
        return _transposed_to_nothing(rank, operands, options)
    shape = [x.shape[0], w.shape[1] * spec.groups, *reached]
    sizes = [*shape[:2], *[1] * (3 - rank), *reached]
    asked = [] if _is_traced() else sizes  # the op works them out: a trace takes other inputs too
    y: Tensor = gradients.input_gradient(_in_3d(x), _in_3d(w), asked, spec.numbers(), backend)
    y = y.reshape(shape)
    if any(zeros):
        behind = [side for count in reversed(zeros) for side in (0, count)]
        y = torch.nn.functional.pad(y, behind)
    if bias is not None:
        y = y + bias.view(-1, *[1] * rank)
    return y.squeeze(0) if operands[0].dim() == rank + 1 else y


def _transposed_to_nothing(
    rank: int, operands: Operands, options: tuple[Axes, Axes, Axes, Axes, int]
) -> Tensor:
    """Where no output is a sum of products: torch's own result, often empty, or its own error."""
    x, w, bias = operands
    stride, padding, output_padding, dilation, groups = options
    convolve = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    y: Tensor = convolve(x, w, bias, stride, padding, output_padding, groups, dilation)
    return y


def _under_autocast(x: Tensor, w: Tensor, bias: Tensor | None) -> Operands:
    """The operands in the type autocast asks for, if it is on."""
    return _cast(x), _cast(w), None if bias is None else _cast(bias)


def _cast(tensor: Tensor) -> Tensor:
    """What is no tensor is refused later."""
    return tensor.to(computed_type(tensor)) if isinstance(tensor, Tensor) else tensor


conv1d, conv2d, conv3d = (_convolution(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    _transposed_convolution(rank) for rank in (1, 2, 3)
)
