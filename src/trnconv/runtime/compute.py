"""A convolution from operands to a result: split into launches, each prepared and launched.

Written once, for arrays in nkisim and for tensors on a device: both are sliced the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from trnconv.algorithms.program import Prepared
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.planner.table import algorithm_of
from trnconv.problem.conv_problem import ConvProblem, Shape
from trnconv.problem.describe import describe_call, describe_shape
from trnconv.problem.launches import LaunchPart, planned_parts, require_room
from trnconv.problem.prologue import FACTORS
from trnconv.runtime.launch import MOST_PIECES, LaunchOperands, with_joined_pieces


class Device(Protocol):
    """Who launches: it prepares what is asked, calls kernels, and has memory for results."""

    def prepared(self, problem: ConvProblem) -> Prepared:
        """Planned and lowered."""

    def launch(self, prepared: Prepared, operands: LaunchOperands) -> tuple[Any, ...]:
        """What the kernel returns."""

    def joined(self, pieces: tuple[Any, ...]) -> Any:
        """Pieces along the frames as one."""

    def empty(self, sizes: tuple[int, ...], like: Any, dtype: str) -> Any:
        """An array or tensor; the type of `like` if `dtype` is empty."""


def convolution(problem: ConvProblem, operands: LaunchOperands, device: Device) -> Any:
    """y [N, C_out, D', H', W']; transposed if the shape says so. With a norm, a tuple of tensors.

    Kernels have an argument for each piece of x; if there are more pieces, they are joined first.
    """
    _require_sizes(problem, operands)
    if len(operands.inputs) > MOST_PIECES:
        _require_one_scale(operands)
        operands = replace(operands, inputs=(device.joined(operands.inputs),))
    problem = with_joined_pieces(problem)
    if problem.epilogue.norm is not None:
        return _with_norm(problem, operands, device)
    y: Any = None
    for part, prepared in launches_of(problem, device):
        part_operands = operands if part.shape == problem.shape else _operands(part, operands)
        require_whole_phases(prepared, part_operands)
        (done,) = device.launch(prepared, part_operands)
        done = _cropped(done, part.shape)
        if part.shape == problem.shape:
            return done
        if y is None:
            sizes = (problem.shape.batch, problem.shape.c_out, *problem.shape.out_sizes())
            y = device.empty(sizes, operands.inputs[0], problem.epilogue.dtype)
        part.output_of(y)[...] = done
    return y


def _with_norm(problem: ConvProblem, operands: LaunchOperands, device: Device) -> tuple[Any, ...]:
    """y, if it is stored, and the tensors of its norm: all channels at once, in one launch."""
    ((_, prepared),) = launches_of(problem, device)
    return device.launch(prepared, operands)


def _require_one_scale(operands: LaunchOperands) -> None:
    if operands.factors is not None:
        raise UnsupportedError(
            f"factors of an input in {len(operands.inputs)} pieces: a kernel takes {MOST_PIECES}."
            " Scale the input before, or join some of its pieces."
        )


def launches_of(problem: ConvProblem, device: Device) -> Iterator[tuple[LaunchPart, Prepared]]:
    """The parts of what is asked for, each as the device prepares it; mostly there is one."""
    require_room(problem)
    yield from planned_parts(problem, _planned(problem, device))


def weight_gradient(
    problem: ConvProblem, operands: LaunchOperands, device: Device
) -> tuple[Any, Any]:
    """dw [C_out, C_in / groups, KD, KH, KW] and db [C_out], summed over the launches."""
    x, dy = operands.inputs
    total: tuple[Any, Any] | None = None
    for part, prepared in launches_of(problem, device):
        (part_x,) = part.inputs_of((x,))
        folded = prepared.lowered[0].inputs
        folded_operands = (
            part_x.reshape(folded[0].shape),
            part.output_of(dy).reshape(folded[1].shape),
        )
        dw, db = prepared.algorithm.results(
            prepared.lowered[0], device.launch(prepared, LaunchOperands(folded_operands))
        )
        if part.shape == problem.shape:
            return dw, db
        if total is None:
            whole = (problem.shape.c_out, *dw.shape[1:])
            total = (device.empty(whole, dw, ""), device.empty(whole[:1], db, ""))
            for gradient in total:
                gradient[...] = 0
        for gradient, done in zip(total, (dw, db), strict=True):
            part.channels_of(gradient)[...] += done
    assert total is not None
    return total


def _require_sizes(problem: ConvProblem, operands: LaunchOperands) -> None:
    shape = problem.shape
    require_shape("weight", operands.w, (shape.c_out, shape.c_in // shape.groups, *shape.kernel))
    if operands.bias is not None:
        require_shape("bias", operands.bias, (shape.c_out,))
    if operands.residual is not None:
        require_shape("residual", operands.residual, _residual_sizes(problem))
    if operands.factors is not None:
        factors = (shape.c_in, FACTORS * len(operands.inputs))
        require_shape("factors of the input", operands.factors, factors)
    if operands.scales is not None:
        require_shape("scales of the norm", operands.scales, (shape.c_out, FACTORS))


def _residual_sizes(problem: ConvProblem) -> tuple[int, ...]:
    shape, coarse = problem.shape, problem.epilogue.coarse
    sizes = (shape.batch, shape.c_out, *shape.out_sizes())
    return sizes if coarse is None else coarse.sizes(sizes)


def require_whole_phases(prepared: Prepared, operands: LaunchOperands) -> None:
    """A kernel adds a residual to all it stores, which may be more than the output."""
    stored, residual = prepared.lowered[0].outputs[0], operands.residual
    coarse = prepared.plans[0].epilogue.coarse
    needed = stored if coarse is None else coarse.sizes(stored)
    if residual is not None and tuple(residual.shape) != needed:
        raise UnsupportedError(
            f"a residual of {tuple(residual.shape)} where whole phases of {stored} are computed and"
            " cropped: add it afterwards."
        )


def require_shape(name: str, tensor: Any, expected: tuple[int, ...]) -> None:
    """Refuse an array or tensor that would have to be reshaped to fit."""
    if tuple(tensor.shape) != expected:
        raise ShapeError(f"{name} {tuple(tensor.shape)}: {expected} is needed.")


def _planned(problem: ConvProblem, device: Device) -> Callable[[ConvProblem], Prepared]:
    def planned(part: ConvProblem) -> Prepared:
        prepared = device.prepared(part)
        plan = prepared.plans[0]
        if problem.reproducible and not algorithm_of(plan).sums_alike(part, problem):
            raise UnsupportedError(
                f"reproducible=True for {describe_call(problem)}: it needs several launches, one"
                f" with {part.shape.c_out} output channels: they would be summed in another order."
                " Split the input."
            )
        if not prepared.algorithm.fits(plan, part):
            raise PlanError(
                f"a plan for {describe_shape(plan.shape)}: it is for its own shape, and this is"
                f" {describe_shape(part.shape)}."
            )
        return prepared

    return planned


def _operands(part: LaunchPart, whole: LaunchOperands) -> LaunchOperands:
    """What a part reads of each."""
    return LaunchOperands(
        part.inputs_of(whole.inputs),
        part.channels_of(whole.w),
        None if whole.bias is None else part.channels_of(whole.bias),
        None if whole.residual is None else part.output_of(whole.residual),
        None if whole.factors is None else part.input_channels_of(whole.factors),
    )


def _cropped(y: Any, shape: Shape) -> Any:
    """The output without what was computed to make phases whole."""
    depth, height, width = shape.out_sizes()
    return y[:, :, :depth, :height, :width]
