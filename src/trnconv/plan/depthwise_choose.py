"""Which engines compute a depthwise convolution: the Tensor engine, or the three others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from nkisim.machine import CONSTANTS_VERSION, Machine
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape, Triple
from trnconv.plan.choose import DEFAULT_BUDGET, Choice, choose, request_for
from trnconv.plan.depthwise import DepthwisePlan, broken_rules, least_outs, least_windows
from trnconv.plan.depthwise_cost import DepthwiseEstimate, estimate

ANY, TENSOR, OTHERS = "any", "tensor", "vector"
_GROUPS = ((2, 0), (1, 0), (2, 1), (3, 1), (3, 2))  # Vector and GpSimd pieces
_PIECES_OF_A_BLOCK = (1, 2, 4, 8, 16)
_ALTERNATIVES = 3


@dataclass(frozen=True)
class PricedDepthwise:
    """A legal plan and its cost."""

    plan: DepthwisePlan
    cost: DepthwiseEstimate


@dataclass(frozen=True)
class DepthwiseChoice:
    """Plans without the Tensor engine, the fastest first, and the plans with it.

    `why_not` says why there is none of the first kind.
    """

    shape: ConvShape
    machine: Machine
    dtype: str
    priced: tuple[PricedDepthwise, ...]
    tensor: Choice | None
    why_not: str = ""

    @property
    def on_tensor_engine(self) -> bool:
        """Whether the Tensor engine is modelled to be faster."""
        if self.tensor is None or not self.priced:
            return self.tensor is not None
        return self.tensor.taken.cost.total_ns < self.priced[0].cost.total_ns


def choose_depthwise(
    shape: ConvShape,
    machine: Machine,
    dtype: str,
    engines: str = ANY,
    budget: int = DEFAULT_BUDGET,
) -> DepthwiseChoice:
    """The best plans on the engines asked for: ANY, TENSOR, or OTHERS without that one."""
    if engines not in (ANY, TENSOR, OTHERS):
        raise PlanError(f"engines={engines!r}: one of {ANY!r}, {TENSOR!r}, {OTHERS!r}.")
    priced, why_not = ([], "") if engines == TENSOR else _priced(shape, machine, dtype, budget)
    if engines == OTHERS and not priced:
        raise PlanError(f"{why_not} Use the Tensor engine (engines={TENSOR!r}).")
    tensor = None if engines == OTHERS else choose(request_for(shape, machine, dtype), budget)
    return DepthwiseChoice(shape, machine, dtype, tuple(priced), tensor, why_not)


def _priced(
    shape: ConvShape, machine: Machine, dtype: str, budget: int
) -> tuple[list[PricedDepthwise], str]:
    """Legal plans within the budget, the fastest first; or why there is none."""
    asked = f"a depthwise convolution of {shape.taps()} taps on {machine.name}"
    found: list[PricedDepthwise] = []
    broken: set[str] = set()
    shortest = 0
    for tight in _candidates(shape, machine, dtype):
        roomy = replace(tight, windows=tight.windows + 1)
        plan = tight if broken_rules(roomy) else roomy
        reasons = broken_rules(plan)
        if reasons:
            broken.update(reasons)
            continue
        count = _least_instructions(plan)
        if count <= budget:
            one = PricedDepthwise(plan, estimate(plan))
            count = one.cost.instructions
            found += [one] if count <= budget else []
        shortest = min(shortest or count, count)
    if found:
        return sorted(found, key=lambda one: (one.cost.total_ns, one.cost.instructions)), ""
    if shortest:
        return [], (
            f"{asked}: some {shortest} static instructions on Vector, Scalar and GpSimd engine, and"
            f" the budget is {budget}."
        )
    return [], f"{asked}: {'; '.join(sorted(broken)) or 'no plan'}."


def _least_instructions(plan: DepthwisePlan) -> int:
    """Half the taps of each piece, before any is looked at: borders may save the others."""
    boxes = [len(range(0, n, b)) for n, b in zip(plan.shape.out_sizes(), plan.piece, strict=True)]
    return prod(boxes) * plan.line_tiles * plan.multiplier * max(1, plan.shape.taps() // 2)


def _candidates(shape: ConvShape, machine: Machine, dtype: str) -> Iterator[DepthwisePlan]:
    """Plans with as few windows and outputs in SBUF as their groups can do with."""
    whole = shape.out_sizes()
    for vector, gpsimd in _GROUPS:
        sums = machine.psum_bank_fp32_elems * (machine.psum_banks // (2 * vector))
        seen = set()
        for count in _PIECES_OF_A_BLOCK:
            block = _part(whole, count * sums)
            piece = _part(block, sums)
            if (block, piece) in seen:
                continue
            seen.add((block, piece))
            plan = DepthwisePlan(shape, machine.name, dtype, block, piece, vector, gpsimd, 0, 0)
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


def explain_depthwise(choice: DepthwiseChoice) -> str:
    """The choice in words, with modelled times."""
    shape = choice.shape
    sizes, taps = ("x".join(map(str, value)) for value in (shape.size, shape.kernel))
    problem = (
        f"{shape.c_in} -> {shape.c_out} channels, depthwise, {taps} taps, on {shape.batch} x"
        f" {sizes} {choice.dtype} ({choice.machine.name}, constants {CONSTANTS_VERSION}, default"
        " reading; every time is modelled in closed form)"
    )
    taken = "Tensor engine" if choice.on_tensor_engine else "Vector, Scalar and GpSimd engine"
    lines = [problem, f"  taken     {taken}"]
    if choice.tensor is not None:
        cost = choice.tensor.taken.cost
        lines.append(f"  {cost.total_ns / 1e3:9.1f} us  Tensor engine, bound by {cost.bound}")
    lines += [_in_words(one) for one in choice.priced[: 1 + _ALTERNATIVES]]
    if choice.why_not:
        lines.append(f"  no plan without the Tensor engine: {choice.why_not}")
    return "\n".join(lines)


def _in_words(one: PricedDepthwise) -> str:
    plan, cost = one.plan, one.cost
    busy = ", ".join(f"{name} {ns / 1e3:.1f}" for name, ns in cost.busy_ns().items())
    block, piece = ("x".join(map(str, value)) for value in (plan.block, plan.piece))
    group = f"{plan.vector_pieces} Vector + {plan.gpsimd_pieces} GpSimd"
    return (
        f"  {cost.total_ns / 1e3:9.1f} us  {group} pieces of {piece}, blocks of {block}:"
        f" bound by {cost.bound} ({busy} us),"
        f" {cost.hbm_bytes / 1e6:.1f} MB, {cost.instructions} instructions"
    )
