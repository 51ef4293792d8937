"""Depthwise plans worth pricing: groups of pieces, and blocks of so many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from trnconv.algorithms.depthwise.plan import (
    DepthwisePlan,
    PositionBox,
    least_outs,
    least_windows,
    valid_span,
)
from trnconv.algorithms.depthwise.rules import violations
from trnconv.algorithms.depthwise.shares import part_of
from trnconv.geometry import ConvShape, Triple
from trnconv.problem.conv_problem import ConvProblem

_GROUPS = ((2, 0), (1, 0), (2, 1), (3, 1), (3, 2))  # Vector and GpSimd pieces
_PIECES_OF_A_BLOCK = (1, 2, 4, 8, 16)
# Unrolled programs that long are beyond every budget, and each instruction would be looked at.
MOST_INSTRUCTIONS = 100_000


def candidates(problem: ConvProblem) -> Iterator[DepthwisePlan]:
    """Plans with as few windows and outputs in SBUF as their groups can do with, or one more."""
    for tight in _tight(problem):
        roomy = replace(tight, windows=tight.windows + 1)
        plan = tight if violations(roomy) else roomy
        if _least_instructions(plan) <= MOST_INSTRUCTIONS:
            yield plan


def shortest(problem: ConvProblem) -> int:
    """About how many static instructions a plan has at least."""
    return min(_least_instructions(plan) for plan in _tight(problem))


def _least_instructions(plan: DepthwisePlan) -> int:
    """One for each tap of each piece, but for outputs that find padding there."""
    met = prod(_outputs_of_taps(plan, axis) for axis in range(3))
    return met // prod(plan.piece) * plan.line_tiles * plan.multiplier


def _outputs_of_taps(plan: DepthwisePlan, axis: int) -> int:
    """The outputs of an axis that each tap meets the input for, all taps together."""
    begin, stop = plan.outputs.span(axis)
    valid = [valid_span(plan.shape, axis, tap) for tap in range(plan.shape.kernel[axis])]
    return sum(max(0, min(end, stop) - max(first, begin)) for first, end in valid)


def _tight(problem: ConvProblem) -> Iterator[DepthwisePlan]:
    shape, machine = problem.shape, problem.machine
    assert isinstance(shape, ConvShape)
    share = problem.core_split
    outputs = part_of(shape, share) if share else None
    whole = PositionBox(*outputs).sizes if outputs else shape.out_sizes()
    for vector, gpsimd in _GROUPS:
        sums = machine.psum_bank_fp32_elems * (machine.psum_banks // (2 * vector))
        seen = set()
        for count in _PIECES_OF_A_BLOCK:
            block = _part(whole, count * sums)
            piece = _part(block, sums)
            if (block, piece) in seen:
                continue
            seen.add((block, piece))
            plan = DepthwisePlan(
                shape,
                machine.name,
                problem.dtype,
                block,
                piece,
                vector,
                gpsimd,
                windows=0,
                outs=0,
                lines_of=share.lines if share else None,
                outputs_of=outputs,
            )
            yield replace(plan, windows=least_windows(plan), outs=least_outs(plan))


def _part(whole: Triple, most: int) -> Triple:
    """At most so many outputs that follow each other in memory, in equal parts."""
    depth, height, width = whole
    if width >= most:
        return (1, 1, _equal(width, most))
    if height * width >= most:
        return (1, _equal(height, most // width), width)
    return (_equal(depth, most // (height * width)), height, width)


def _equal(size: int, most: int) -> int:
    """The largest of equal parts of at most `most`."""
    parts = -(-size // most)
    return -(-size // parts)
