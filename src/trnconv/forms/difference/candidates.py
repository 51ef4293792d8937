"""Which plans by differences are worth pricing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from trnconv.ask.question import Question, Share
from trnconv.forms.difference.blocks import span_counts
from trnconv.forms.difference.cost import cost_of
from trnconv.forms.difference.plan import HEIGHT, WIDTH, DifferencePlan
from trnconv.forms.difference.rules import broken_rules
from trnconv.forms.difference.terms import TIMES
from trnconv.geometry import ConvShape

_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48)
_PARTS = (1, 2, 3, 4, 6, 8)  # that rows are cut into
_TURNS = 3  # lengths of a turn that are tried


def candidates(question: Question) -> Iterator[DifferencePlan]:
    """Plans within the question's budget, hardware loops included."""
    shape, share = question.shape, question.share
    assert isinstance(shape, ConvShape)
    width = shape.size[WIDTH]
    for rows in _ROWS:
        for columns in sorted({-(-width // parts) for parts in _PARTS}):
            for streamed in (False, True):
                base = DifferencePlan(
                    shape,
                    question.machine.name,
                    question.dtype,
                    rows=min(rows, shape.size[HEIGHT]),
                    columns=columns,
                    streamed=streamed,
                    rows_of=share.rows if share else None,
                    end=question.end,
                )
                if not broken_rules(base):
                    yield from _variants(base, question.budget)
        if rows >= shape.size[HEIGHT]:
            break


def _variants(base: DifferencePlan, budget: int) -> Iterator[DifferencePlan]:
    """The same with work for the GpSimd engine and loops chosen."""
    shares = [
        base.but(gpsimd_rows=rows, gpsimd_sums=sums)
        for rows, sums in product((False, True), repeat=2)
    ]
    plan = min(shares, key=lambda one: cost_of(one).weighed_ns)
    if cost_of(plan).instructions <= budget:
        yield plan
    elif plan.target.accepts.loops:
        yield from _rolled(plan, budget)


def _rolled(plan: DifferencePlan, budget: int) -> Iterator[DifferencePlan]:
    """The longest turns that the budget allows."""
    alike = span_counts(plan).alike
    found = 0
    before = 0
    for turns in range(2, alike + 1):
        spans = alike // turns
        if spans == before or spans < 1:
            continue
        before = spans
        rolled = plan.but(turn_spans=spans)
        if cost_of(rolled).instructions <= budget and not broken_rules(rolled):
            yield rolled
            found += 1
            if found == _TURNS:
                return


def halves(question: Question) -> list[tuple[Question, Question]]:
    """Two cores with half of the rows each, cut between two pairs of outputs."""
    shape = question.shape
    assert isinstance(shape, ConvShape)
    height = shape.out_size(HEIGHT)
    missing = 1 - shape.pad_before[HEIGHT]
    middle = -(-(height + missing) // (2 * TIMES)) * TIMES - missing
    if not 0 < middle < height:
        return []
    shares = (Share((0, middle), (0, shape.c_out)), Share((middle, height), (0, shape.c_out)))
    first, second = (replace(question, share=share) for share in shares)
    return [(first, second)]
