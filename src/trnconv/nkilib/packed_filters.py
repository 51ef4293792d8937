"""`pack`: filters for a `conv3d` inside of a kernel of somebody else's.

A kernel of ours reads filters in the order in which it uses them, and a recipe says what it does.
Both follow from the sizes of the input, so they are made on the host:

    packed = pack(filters, bias, x_shape=x.shape, padding=(0, 0, 1, 1, 1, 1))

    @nki.jit
    def block(x, weights, biases, places):  # as many tensors as `packed.tensors` has
        return conv3d(x, packed.inside(weights, biases, places), padding=(0, 0, 1, 1, 1, 1))

    block(x, *packed.tensors)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from nkisim.machine import find_machine
from trnconv.algorithms.program import Prepared
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.nkilib import on_arrays
from trnconv.nkilib.batch_norm import NO_NORM, BatchNorm, folded
from trnconv.nkilib.call import VendorCall, call_of, refuse_kind, require_one_type
from trnconv.nkilib.modes import BatchNormMode, ResidualAddLoc
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.launches import planned_parts, require_room
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.runtime.launch import prepare
from trnconv.runtime.plans import plans_for

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FiltersInKernel:
    """Packed filters and the tensors of a kernel that hold them."""

    call: VendorCall
    x_shape: tuple[int, ...]
    prepared: Prepared
    tensors: tuple[Any, ...]

    def compute(self, call: VendorCall, x: Any, bias: Any, residual: Any) -> Any:
        """The output in shared HBM, by the kernel of the plan; it must be the call packed for."""
        if bias is not None:
            raise UnsupportedError("bias inside of a kernel: give it to `pack`, where filters are.")
        on_these_cores = replace(call, cores=self.call.cores, machine=self.call.machine)
        if on_these_cores != self.call:
            raise ShapeError(
                f"filters packed for {self.call}: this call is {on_these_cores}. Pack for it."
            )
        if tuple(x.shape) != self.x_shape:
            raise ShapeError(
                f"filters packed for x_in {self.x_shape}: this one is {tuple(x.shape)}. Pack for"
                " it; every size has a plan of its own."
            )
        arguments = self.prepared.arguments((x,), self.tensors, residual)
        return self.prepared.kernel(1)(*arguments)


@dataclass(frozen=True)
class PackedFilters:
    """What `pack` made: `tensors` are arguments of the kernel around, of the filters' kind."""

    call: VendorCall
    x_shape: tuple[int, ...]
    prepared: Prepared
    tensors: tuple[Any, ...]

    def inside(self, *tensors: Any) -> FiltersInKernel:
        """The same inside of the kernel, where `tensors` are its own arguments."""
        if len(tensors) != len(self.tensors):
            raise ShapeError(
                f"{len(tensors)} tensors: {len(self.tensors)} were packed, and each is an argument"
                " of the kernel."
            )
        return FiltersInKernel(self.call, self.x_shape, self.prepared, tensors)


def pack(  # noqa: PLR0913 (the library's arguments)
    filters: Any,
    bias: Any = None,
    *,
    x_shape: Sequence[int],
    stride: tuple[int, ...] = (1, 1, 1),
    padding: tuple[int, ...] = (0, 0, 0, 0, 0, 0),
    dilation: tuple[int, ...] = (1, 1, 1),
    activation_fn: Enum | None = None,
    residual_add_loc: Enum = ResidualAddLoc.NONE,
    lnc_shard: bool = False,
    norm: BatchNorm = NO_NORM,
    machine: str = "trn2",
) -> PackedFilters:
    """Plan a convolution of an input of `x_shape`, and pack filters [Kd, Kh, Kw, C_in, C_out].

    With `lnc_shard`, for a kernel that is launched on two cores. `norm` is an EVAL batch norm that
    goes into the filters. A convolution that is several launches is refused: a kernel is one.
    """
    require_one_type(filters=filters, bias=bias)
    arrays, back = _on_host(filters, bias)
    if norm.mode is BatchNormMode.TRAINING:
        raise UnsupportedError("a TRAINING batch norm in `pack`: its statistics are not known yet.")
    if norm.mode is BatchNormMode.EVAL:
        arrays = folded(norm, on_arrays, *arrays)
    cores = None if lnc_shard else 1
    call = call_of(stride, padding, dilation, activation_fn, residual_add_loc, cores=cores)
    shape = call.shape(tuple(x_shape), filters.shape)
    problem = ConvProblem(
        shape,
        find_machine(machine),
        str(arrays[0].dtype),
        epilogue=call.epilogue,
        policy=ALWAYS_DIRECT,
    )
    prepared = _one_launch(problem, cores)
    packed = prepared.pack(on_arrays.torch_layout(arrays[0]), arrays[1])
    return PackedFilters(call, tuple(x_shape), prepared, tuple(back(array) for array in packed))


def _one_launch(problem: ConvProblem, cores: int | None) -> Prepared:
    require_room(problem)
    parts = list(planned_parts(problem, lambda part: prepare(plans_for(part, cores))))
    if len(parts) > 1:
        raise UnsupportedError(
            f"a convolution of {len(parts)} launches inside of a kernel: it is one. Call conv3d"
            " from a launcher, or split x_in."
        )
    return parts[0][1]


def _on_host(filters: Any, bias: Any) -> tuple[tuple[Array, Array | None], Any]:
    """Arrays of the operands, and how an array gets to where they are."""
    if isinstance(filters, np.ndarray):
        return (filters, bias), lambda array: array
    if not hasattr(filters, "__torch_function__"):
        raise refuse_kind("filters", filters)
    from trnconv.pytorch import nki_library_calls  # noqa: PLC0415 (torch is optional)

    return nki_library_calls.on_host(filters, bias)
