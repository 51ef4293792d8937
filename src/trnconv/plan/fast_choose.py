"""Choosing between the direct convolution and fast ones, under an accuracy policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from nkisim.machine import CONSTANTS_VERSION
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape, with_axis
from trnconv.plan.accuracy import DEFAULT_POLICY, DIRECT, HALF, LIMITS, Policy
from trnconv.plan.choose import DEFAULT_BUDGET, Choice, Priced, choose, request_for
from trnconv.plan.fast_candidates import FastRequest, PricedFast, fast_candidates, rolled
from trnconv.plan.fast_channels import out_channels
from trnconv.plan.fast_cost import estimate
from trnconv.plan.fast_error import expected_ratio, range_limit
from trnconv.plan.fast_legality import why_not
from trnconv.plan.fast_plan import DEPTH, HEIGHT, WIDTH, FastPlan
from trnconv.plan.fast_transforms import TRANSFORMS, Transform

_WORTH_IT = 0.98  # a fast plan has to be modelled that much faster than the direct one
_KEPT = 16  # plans of a kind; the others will not be asked for


@dataclass(frozen=True)
class FastChoice:
    """The direct plan, fast plans by transform and axis (the best of each), and why some are not.

    `taken` is one of them.
    """

    request: FastRequest
    policy: Policy
    taken: Priced | PricedFast
    direct: Choice | None  # None: no program is short enough
    fast: tuple[PricedFast, ...]
    refused: tuple[str, ...]


def best_of(
    request: FastRequest,
    policy: Policy = DEFAULT_POLICY,
    budget: int = DEFAULT_BUDGET,
    *,
    reproducible: bool = False,
) -> FastChoice:
    """The fastest plan that the policy allows; PlanError if no program is short enough.

    With `reproducible`, what is taken does not depend on frames, pieces or images: tiles are rows,
    and the form is the one that wins for a single frame.
    """
    direct = _direct(request, budget, reproducible)
    found: list[PricedFast] = []
    refused: list[str] = []
    for transform in TRANSFORMS.values():
        broken = broken_promise(transform, request.dtype, policy)
        if broken:
            refused.append(broken)
            continue
        for axis in (HEIGHT,) if reproducible else (DEPTH, HEIGHT):
            priced = price_fast(request, transform.name, axis, budget)
            kept = _alike(priced) if reproducible else priced
            found += kept[:1]
            refused += [] if kept else [_none(request, transform, axis)]
    found.sort(key=_weighed_ns)
    best = found[0] if found else None
    if reproducible and request.shape != one_frame(request.shape):
        best = _as_for_one_frame(request, policy, budget)
    elif best and isinstance(direct, Choice) and not _is_worth_it(best, direct):
        best = None
    if best is None and isinstance(direct, PlanError):
        raise direct
    known = direct if isinstance(direct, Choice) else None
    taken = best or (known.taken if known else None)
    assert taken is not None
    return FastChoice(request, policy, taken, known, tuple(found), tuple(refused))


def _is_worth_it(best: PricedFast, direct: Choice) -> bool:
    return best.cost.total_ns < _WORTH_IT * direct.taken.cost.total_ns


@lru_cache(maxsize=100)
def _direct(
    request: FastRequest,
    budget: int,
    reproducible: bool,  # noqa: FBT001
) -> Choice | PlanError:
    """The direct plan, or why there is none: a fast one may still be short enough."""
    asked = request_for(
        request.shape,
        request.machine,
        request.dtype,
        pieces=request.pieces,
        reproducible=reproducible,
    )
    try:
        return choose(replace(asked, end=request.end), budget)
    except PlanError as error:
        return error


def _as_for_one_frame(request: FastRequest, policy: Policy, budget: int) -> PricedFast | None:
    """The same form that an output frame by itself would get; None: the direct one."""
    alone = replace(request, shape=one_frame(request.shape), pieces=())
    single = best_of(alone, policy, budget, reproducible=True)
    if isinstance(single.taken, Priced):
        return None
    alike = _alike(price_fast(request, single.taken.plan.transform, HEIGHT, budget))
    if not alike:
        raise PlanError(
            f"{request.shape}: one frame is computed by {single.taken.plan.transform} along rows,"
            ' and so many frames cannot be. Ask for accuracy="direct", or for fewer frames at once.'
        )
    return alike[0]


def one_frame(shape: ConvShape) -> ConvShape:
    """The convolution that makes a single frame of a single image."""
    return replace(
        shape,
        batch=1,
        size=with_axis(shape.size, DEPTH, shape.kernel[DEPTH]),
        pad_before=with_axis(shape.pad_before, DEPTH, 0),
        pad_after=with_axis(shape.pad_after, DEPTH, 0),
    )


def _alike(priced: tuple[PricedFast, ...]) -> tuple[PricedFast, ...]:
    return tuple(one for one in priced if sums_alike(one.plan))


def sums_alike(plan: FastPlan) -> bool:
    """Whether every output is summed in an order that depends on its row and column only.

    Output channels that share a matmul with those of the next column are summed by whether their
    column is the first or the second: blocks must not begin between the two.
    """
    stacked = any(tile.stack > 1 for tile in out_channels(plan))
    whole = plan.columns >= plan.shape.out_size(WIDTH)
    return plan.by_rows and (not stacked or whole or plan.columns % 2 == 0)


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
    return one.cost.weighed_ns


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
    ]
    if choice.direct is not None:
        direct = choice.direct.taken
        lines.append(_line(direct.cost.total_ns, "direct", 1.0, choice.taken is direct))
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
