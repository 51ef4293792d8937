"""Which plans by differences are worth pricing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from trnconv.algorithms.winograd_upsample.blocks import span_counts
from trnconv.algorithms.winograd_upsample.cost import cost_of
from trnconv.algorithms.winograd_upsample.plan import HEIGHT, WIDTH, UpsamplePlan
from trnconv.algorithms.winograd_upsample.rules import violations
from trnconv.algorithms.winograd_upsample.terms import TIMES
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem, CoreSplit

_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48)
_PARTS = (1, 2, 3, 4, 6, 8)  # that rows are cut into
_ITERATIONS = 3  # lengths of an iteration that are tried


def candidates(problem: ConvProblem) -> Iterator[UpsamplePlan]:
    """Plans within the problem's budget, hardware loops included."""
    shape, share = problem.shape, problem.core_split
    assert isinstance(shape, ConvShape)
    width = shape.size[WIDTH]
    for rows in _ROWS:
        for columns in sorted({-(-width // parts) for parts in _PARTS}):
            for streamed in (False, True):
                base = UpsamplePlan(
                    shape,
                    problem.machine.name,
                    problem.dtype,
                    rows=min(rows, shape.size[HEIGHT]),
                    columns=columns,
                    streamed=streamed,
                    rows_of=share.rows if share else None,
                    epilogue=problem.epilogue,
                )
                if not violations(base):
                    yield from _variants(base, problem.budget)
        if rows >= shape.size[HEIGHT]:
            break


def _variants(base: UpsamplePlan, budget: int) -> Iterator[UpsamplePlan]:
    """The same with work for the GpSimd engine and loops chosen."""
    shares = [
        base.but(gpsimd_rows=rows, gpsimd_sums=sums)
        for rows, sums in product((False, True), repeat=2)
    ]
    plan = min(shares, key=lambda share: cost_of(share).weighed_ns)
    if cost_of(plan).instructions <= budget:
        yield plan
    elif plan.machine.accepts.loops:
        yield from _looped(plan, budget)


def _looped(plan: UpsamplePlan, budget: int) -> Iterator[UpsamplePlan]:
    """The longest iterations that the budget allows."""
    alike = span_counts(plan).alike
    yielded = 0
    before = 0
    for iterations in range(2, alike + 1):
        spans = alike // iterations
        if spans == before or spans < 1:
            continue
        before = spans
        looped = plan.but(iteration_spans=spans)
        if cost_of(looped).instructions <= budget and not violations(looped):
            yield looped
            yielded += 1
            if yielded == _ITERATIONS:
                return


def halves(problem: ConvProblem) -> list[tuple[ConvProblem, ConvProblem]]:
    """Two cores with half of the rows each, cut between two pairs of outputs."""
    shape = problem.shape
    assert isinstance(shape, ConvShape)
    height = shape.out_size(HEIGHT)
    missing = 1 - shape.pad_before[HEIGHT]
    middle = -(-(height + missing) // (2 * TIMES)) * TIMES - missing
    if not 0 < middle < height:
        return []
    shares = (
        CoreSplit((0, middle), (0, shape.c_out)),
        CoreSplit((middle, height), (0, shape.c_out)),
    )
    first, second = (replace(problem, core_split=share) for share in shares)
    return [(first, second)]
