"""Kinds of passes: strips, and passes of them, that cost alike are counted together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trnconv.algorithms.weight_gradient.plan import HEIGHT, WIDTH, GradientStrip, WeightGradientPlan


@dataclass(frozen=True)
class PassKind:
    """Passes that differ in nothing that costs."""

    strips: tuple[tuple[GradientStrip, int], ...]  # one of each kind, and how many there are
    outs: int
    with_bias: bool
    times: int


def pass_kinds(plan: WeightGradientPlan) -> list[PassKind]:
    """All passes, those together that cost alike."""
    strips = plan.strips()
    _, high, wide = plan.shape.kernel
    outside = [rows_outside(plan, tap) for tap in range(high)]
    cut = [cut_ends(plan, tap) for tap in range(wide)]
    looks = [_strip_look(plan, strip, outside, cut) for strip in strips]
    examples = dict(zip(looks, strips, strict=True))
    counted: Counter[tuple[frozenset[tuple[tuple[object, ...], int]], bool]] = Counter()
    for first in range(0, len(strips), plan.pass_strips):
        part = Counter(looks[first : first + plan.pass_strips])
        counted[frozenset(part.items()), first == 0 and plan.makes_bias] += 1
    whole, rest = divmod(plan.most_outs, plan.outs)
    packs = len(plan.own_packs)
    kinds = []
    for (looked, with_bias), passes in counted.items():
        alike = tuple((examples[look], count) for look, count in looked)
        kinds.append(PassKind(alike, plan.outs, with_bias, packs * whole * passes))
        if rest:
            kinds.append(PassKind(alike, rest, with_bias, packs * passes))
    return kinds


def _strip_look(
    plan: WeightGradientPlan, strip: GradientStrip, outside: list[int], cut: list[int]
) -> tuple[object, ...]:
    """All of a strip that costs; by tap, rows in the padding and ends of rows there."""
    sizes = (strip.frame_tap, strip.row_taps, strip.channels)
    if plan.has_sheets:
        return (*sizes, strip.channel, strip.column_taps)
    if not plan.by_dma:
        return (*sizes, strip.column_tap == 0 and strip.row_tap == 0)
    edges = outside[strip.row_tap : strip.row_tap + strip.row_taps]
    return (*sizes, cut[strip.column_tap], *edges)


def cut_ends(plan: WeightGradientPlan, tap: int) -> int:
    """Ends of a row at which a tap lies in the padding."""
    shape = plan.shape
    first = shape.in_position(WIDTH, 0, tap)
    last = shape.in_position(WIDTH, shape.out_size(WIDTH) - 1, tap)
    return (first < 0) + (last >= shape.size[WIDTH])


def rows_outside(plan: WeightGradientPlan, tap: int) -> int:
    """Output rows that a row tap finds in the padding."""
    shape = plan.shape
    rows, stride = shape.out_size(HEIGHT), shape.stride[HEIGHT]
    shift = shape.in_position(HEIGHT, 0, tap)
    first, end = max(0, -(shift // stride)), (shape.size[HEIGHT] - 1 - shift) // stride + 1
    return rows - max(0, min(end, rows) - first)
