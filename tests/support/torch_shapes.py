"""Drawn shapes (`benchmarks/drawn_shapes.py`) as calls that can be checked."""

from __future__ import annotations

from benchmarks.drawn_shapes import EVERY, KINDS, TARGETS, drawn_shape, is_small
from random_family import Member
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import PLAIN_EPILOGUE

__all__ = ["EVERY", "KINDS", "TARGETS", "is_small", "problem_of", "torch_shape"]


def torch_shape(number: int) -> Member:
    """The convolution of this number: what a user calls, with what, and where."""
    one = drawn_shape(number)
    called = (one.number, one.kind, one.shape, one.rank, one.dtype, one.bias, one.machine)
    return Member(*called, 1, False, PLAIN_EPILOGUE)


def problem_of(member: Member) -> ConvProblem:
    """What the planner is asked for it."""
    return drawn_shape(member.number).problem()
