"""Choosing between the direct convolution and fast ones, under an accuracy policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from nkisim.machine import CONSTANTS_VERSION
from trnconv.errors import PlanError
from trnconv.geometry import with_axis
from trnconv.plan.choose import DEFAULT_BUDGET, Choice, Priced, choose, request_for
from trnconv.plan.fast_candidates import FastRequest, PricedFast, fast_candidates, rolled
from trnconv.plan.fast_cost import estimate
from trnconv.plan.fast_error import expected_ratio, range_limit
from trnconv.plan.fast_legality import why_not
from trnconv.plan.fast_plan import DEPTH, HEIGHT, FastPlan
from trnconv.plan.fast_transforms import TRANSFORMS, Transform
from trnconv.plan.problem import fold

DIRECT, BF16, FAST, HALF = "direct", "bf16", "fast", "half"
# The expected RMS error may be this many times that of a direct bf16 convolution. HALF is for
# float32 data whose owner accepts products of fp16: it has no such limit, and only F(2,3).
LIMITS = {DIRECT: 1.0, BF16: 1.05, FAST: 1.2, HALF: float("inf")}
_WORTH_IT = 0.98  # a fast plan has to be modelled that much faster than the direct one
_TRAFFIC_WEIGHT = 0.06  # what hides behind the Tensor engine in the model may not on a device
_VECTOR_WEIGHT = 0.03
_KEPT = 16  # plans of a kind; the others will not be asked for


@dataclass(frozen=True)
class Policy:
    """What a caller accepts.

    `x_max` is the largest |x| that was seen (`runtime.calibrate`); without it every call checks
    its data. `reproducible` takes only what does not depend on how many frames a call has.
    """

    accuracy: str = BF16
    x_max: float | None = None
    reproducible: bool = False

    def __post_init__(self) -> None:
        if self.accuracy not in LIMITS:
            raise PlanError(f"accuracy={self.accuracy!r}: one of {', '.join(LIMITS)}.")


DEFAULT_POLICY = Policy()


@dataclass(frozen=True)
class FastChoice:
    """The direct plan, fast plans by transform and axis (the best of each), and why some are not.

    `taken` is one of them.
    """

    request: FastRequest
    policy: Policy
    taken: Priced | PricedFast
    direct: Choice
    fast: tuple[PricedFast, ...]
    refused: tuple[str, ...]


def best_of(
    request: FastRequest, policy: Policy = DEFAULT_POLICY, budget: int = DEFAULT_BUDGET
) -> FastChoice:
    """The fastest plan that the policy allows."""
    direct = _direct(request, budget)
    found: list[PricedFast] = []
    refused: list[str] = []
    for transform in TRANSFORMS.values():
        broken = broken_promise(transform, request.dtype, policy)
        if broken:
            refused.append(broken)
            continue
        for axis in _axes(policy):
            priced = price_fast(request, transform.name, axis, budget)
            found += priced[:1]
            refused += [] if priced else [_none(request, transform, axis)]
    found.sort(key=_weighed_ns)
    taken: Priced | PricedFast = direct.taken
    if found and _is_worth_it(request, policy, direct, found[0]):
        taken = found[0]
    return FastChoice(request, policy, taken, direct, tuple(found), tuple(refused))


@lru_cache(maxsize=100)
def _direct(request: FastRequest, budget: int) -> Choice:
    asked = request_for(request.shape, request.machine, request.dtype)
    problem = fold(request.shape, request.pieces)
    return choose(replace(asked, end=request.end, problem=problem), budget)


def _axes(policy: Policy) -> tuple[int, ...]:
    return (HEIGHT,) if policy.reproducible else (DEPTH, HEIGHT)


def _is_worth_it(request: FastRequest, policy: Policy, direct: Choice, best: PricedFast) -> bool:
    """Whether a fast plan wins; if it must not depend on frames, whether it does on one frame."""
    depth = request.shape.kernel[DEPTH]
    if not policy.reproducible or request.shape.size[DEPTH] == depth:
        return best.cost.total_ns < _WORTH_IT * direct.taken.cost.total_ns
    one = replace(
        request.shape,
        size=with_axis(request.shape.size, DEPTH, depth),
        pad_before=with_axis(request.shape.pad_before, DEPTH, 0),
        pad_after=with_axis(request.shape.pad_after, DEPTH, 0),
    )
    single = best_of(replace(request, shape=one, pieces=()), policy)
    chosen = single.taken
    return isinstance(chosen, PricedFast) and chosen.plan.transform == best.plan.transform


def broken_promise(transform: Transform, dtype: str, policy: Policy) -> str:
    """Why a policy does not allow a transform; empty if it does."""
    if policy.accuracy == DIRECT:
        return f"{transform.name}: the policy is direct"
    ratio = expected_ratio(transform, dtype)
    if policy.accuracy == HALF and transform.outputs > 2:
        return f"{transform.name}: half is for F(2,3)"
    if ratio > LIMITS[policy.accuracy]:
        return (
            f"{transform.name}: expected error {ratio:.3f}x that of a direct {dtype} convolution,"
            f" {policy.accuracy} allows {LIMITS[policy.accuracy]}x"
        )
    limit = range_limit(transform)
    if policy.x_max is not None and policy.x_max > limit:
        return f"{transform.name}: |x| up to {policy.x_max:.4g}, fp16 transforms take {limit:.0f}"
    return ""


@lru_cache(maxsize=100)
def price_fast(
    request: FastRequest, transform: str, axis: int, budget: int = DEFAULT_BUDGET
) -> tuple[PricedFast, ...]:
    """Legal plans of one transform along one axis within the budget, the fastest first."""
    if why_not(request.shape, axis):
        return ()
    plans = fast_candidates(request, transform, axis)
    priced = sorted((PricedFast(plan, estimate(plan)) for plan in plans), key=_weighed_ns)
    within = [one for one in priced if one.cost.instructions <= budget]
    if priced and within[:1] != priced[:1]:
        within += rolled(priced, budget)
    return tuple(sorted(within, key=_weighed_ns)[:_KEPT])


def _weighed_ns(one: PricedFast) -> float:
    """The fastest first; where times are close, the one that moves less and waits less."""
    cost = one.cost
    return cost.total_ns + _TRAFFIC_WEIGHT * cost.dma_ns + _VECTOR_WEIGHT * cost.vector_ns


def _none(request: FastRequest, transform: Transform, axis: int) -> str:
    reasons = why_not(request.shape, axis) or ["no block within SBUF and the budget"]
    return f"{transform.name} along {'rows' if axis else 'frames'}: {'; '.join(reasons)}"


def explain_fast(choice: FastChoice) -> str:
    """What was taken and what each alternative would give, with modelled times."""
    shape, machine = choice.request.shape, choice.request.machine
    sizes, taps = ("x".join(map(str, value)) for value in (shape.size, shape.kernel))
    lines = [
        (
            f"{shape.c_in} -> {shape.c_out} channels, {taps} taps, on {shape.batch} x {sizes}"
            f" {choice.request.dtype}, accuracy {choice.policy.accuracy} ({machine.name}, constants"
            f" {CONSTANTS_VERSION}, default reading; every time is modelled in closed form)"
        ),
        _line(
            choice.direct.taken.cost.total_ns, "direct", 1.0, choice.taken is choice.direct.taken
        ),
    ]
    for one in choice.fast:
        ratio = expected_ratio(one.plan.algorithm, choice.request.dtype)
        name = f"{in_words(one.plan)}, bound by {one.cost.bound}, {one.cost.hbm_bytes / 1e6:.0f} MB"
        lines.append(_line(one.cost.total_ns, name, ratio, choice.taken is one))
    lines += [f"  not possible  {reason}" for reason in choice.refused]
    return "\n".join(lines)


def _line(ns: float, name: str, ratio: float, taken: bool) -> str:  # noqa: FBT001
    mark = "taken" if taken else "     "
    return f"  {mark} {ns / 1e3:9.1f} us  expected error {ratio:.3f}x  {name}"


def in_words(plan: FastPlan) -> str:
    """A fast plan in a few words."""
    along = "rows" if plan.by_rows else "frames"
    loop = "a hardware loop" if plan.rolled else "unrolled"
    weights = "weights streamed" if plan.streamed else "weights in SBUF"
    return (
        f"{plan.transform} along {along}, blocks of {plan.units} units x {plan.rows} rows x"
        f" {plan.columns} columns, {weights}, {loop}"
    )
