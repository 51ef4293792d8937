"""An algorithm that a stranger might write: a convolution of one tap is a matrix product.

It is as small as an algorithm can be: one plan for a problem, one matmul for a bank of PSUM. It
says it takes a nanosecond, so that it is taken wherever it can be.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from trnconv._nki import NKIObject, nisa, nl
from trnconv.algorithms.algorithm import Algorithm, ArraySpec, Cost, Lowered, Plan
from trnconv.geometry import ConvShape, conv_shape
from trnconv.problem.epilogue import PLAIN_EPILOGUE

PRICE_NS = 1.0


@dataclass(frozen=True)
class PointPlan(Plan):
    """So many positions in a matmul."""

    algorithm: ClassVar[str] = "point"

    columns: int

    def block(self):
        return (1, 1, self.columns)

    def in_words(self):
        return f"point by point, {self.columns} columns"


@dataclass(frozen=True)
class PointRecipe(NKIObject):
    """Columns of each matmul: where it begins, and how many."""

    columns: tuple[tuple[int, int], ...]


def point(x, w, bias, recipe):
    """x [N, C_in, D, H, W], w [C_in, C_out], bias [C_out, 1] -> y [N, C_out, D, H, W]."""
    images, c_in, depth, height, width = x.shape
    c_out = w.shape[1]
    y = nl.ndarray((images, c_out, depth, height, width), dtype=x.dtype, buffer=nl.shared_hbm)
    filters = nl.ndarray((c_in, c_out), dtype=w.dtype, buffer=nl.sbuf)
    column = nl.ndarray((c_out, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=filters, src=w)
    nisa.dma_copy(dst=column, src=bias)
    lines = x.reshape((images, c_in, depth * height * width))
    outs = y.reshape((images, c_out, depth * height * width))
    for image in range(images):
        for first, count in recipe.columns:
            moving = nl.ndarray((c_in, count), dtype=x.dtype, buffer=nl.sbuf)
            sums = nl.ndarray((c_out, count), dtype=nl.float32, buffer=nl.psum)
            done = nl.ndarray((c_out, count), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=moving, src=lines[image, :, nl.ds(first, count)])
            nisa.nc_matmul(dst=sums, stationary=filters, moving=moving)
            nisa.tensor_scalar(dst=done, data=sums, op0=nl.add, operand0=column)
            nisa.dma_copy(dst=outs[image, :, nl.ds(first, count)], src=done)
    return y


def parts(plan):
    """Columns of each matmul of an image: where it begins, and how many."""
    positions = prod(plan.shape.size)
    firsts = range(0, positions, plan.columns)
    return tuple((first, min(plan.columns, positions - first)) for first in firsts)


def refuses(problem, family):
    shape = problem.shape
    if not isinstance(shape, ConvShape) or problem.epilogue != PLAIN_EPILOGUE:
        return f"{family}: outputs of plain convolutions only"
    sizes = (shape.batch, shape.c_in, *shape.size), (shape.c_out, shape.c_in, 1, 1, 1)
    if shape != conv_shape(*sizes) or problem.pieces or problem.core_split:
        return f"{family}: one tap, one tensor and one core only"
    return ""


def candidates(problem, family):
    del family
    room = problem.machine.psum_bank_fp32_elems
    positions = prod(problem.shape.size)
    for columns in (min(room, positions), 2 * room):
        yield PointPlan(problem.shape, problem.machine.name, problem.dtype, columns)


def cost(plan):
    count = plan.shape.batch * len(parts(plan))
    moved = plan.shape.batch * prod(plan.shape.size) * (plan.shape.c_in + plan.shape.c_out)
    return Cost(
        PRICE_NS, PRICE_NS, (("tensor", PRICE_NS),), plan.item_bytes * moved, 0, 4 * count + 2
    )


def violations(plan):
    machine = plan.machine
    broken = []
    if plan.columns > machine.psum_bank_fp32_elems:
        broken.append(f"{plan.columns} columns: a bank has {machine.psum_bank_fp32_elems}")
    if max(plan.shape.c_in, plan.shape.c_out) > machine.partitions:
        broken.append(f"more channels than the {machine.partitions} partitions")
    return broken


def lower(plan):
    shape = plan.shape
    arrays = (
        ArraySpec((shape.c_in, shape.c_out), plan.dtype),
        ArraySpec((shape.c_out, 1), "float32"),
    )
    outputs = ((shape.batch, shape.c_out, *shape.size),)
    return Lowered(plan, PointRecipe(parts(plan)), arrays, plan.input_specs(), outputs)


def pack(lowered, w, bias):
    shape = lowered.plan.shape
    column = np.zeros(shape.c_out) if bias is None else bias
    filters = np.ascontiguousarray(w.reshape(shape.c_out, shape.c_in).T)
    return filters, column.astype(np.float32).reshape(-1, 1)


POINT = Algorithm(
    name=PointPlan.algorithm,
    plan_type=PointPlan,
    families=lambda _: (PointPlan.algorithm,),
    unsupported=refuses,
    candidates=candidates,
    cost=cost,
    violations=violations,
    moved=lambda plan, problem: replace(plan, shape=problem.shape),
    lower=lower,
    pack=pack,
    kernels=(point,),
)
