"""How long a whole model takes: on the planned launch, and what that says of fewer and more cores.

One source for every figure: the plan's own seconds. What was not planned is a bound, and says which
way. One core is at most as slow as both halves of a launch one after the other. More cores are at
best a share each: rows to exchange, uneven bands and layers on whole tensors come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.model_plan.operations import as_written_ns
from trnconv.model_plan.plans import ModelPlan
from trnconv.problem.cores import describe_cores

MODELLED, AT_MOST, AT_LEAST = "", "at most", "at least"
_MANY = (8, 64)  # cores: a chip of trn2, and half of its largest instance


@dataclass(frozen=True)
class Latency:
    """Seconds on so many cores; `bound` is empty if they were planned."""

    cores: int
    seconds: float
    bound: str
    how: str


def latencies(plan: ModelPlan) -> tuple[Latency, ...]:
    """One core, the two of a launch, 8 and 64."""
    planned, seconds = plan.options.launch_cores, plan.whole_seconds
    known = [Latency(planned, seconds, MODELLED, f"planned for {describe_cores(planned)}")]
    if planned > 1:
        halves = "both halves one after the other; --cores 1 plans it"
        known.insert(0, Latency(1, planned * seconds, AT_MOST, halves))
    if planned < plan.options.machine.lnc_max:
        both = "half of it; --cores 2 plans it"
        known.append(Latency(2, seconds * planned / 2, AT_LEAST, both))
    ideal = "an even share each; exchange and uneven bands come on top"
    known += [Latency(cores, seconds * planned / cores, AT_LEAST, ideal) for cores in _MANY]
    return tuple(known)


@dataclass(frozen=True)
class Between:
    """What the part that is not ours may make of the whole, seconds."""

    least: float  # convolutions alone
    most: float  # all else by torch's operators, one by one


def between(plan: ModelPlan) -> Between:
    """The whole if all else cost nothing, and if nothing of it was fused."""
    trace, options = plan.trace, plan.options
    apart = as_written_ns(trace.operations_unfused, options.machine, options.launch_cores)
    return Between(plan.seconds, plan.seconds + apart / 1e9)


def shares_by_bound(plan: ModelPlan) -> tuple[tuple[str, float], ...]:
    """What bounds the convolutions: shares of their time, the largest first."""
    spent: dict[str, float] = {}
    for layer in plan.layers:
        spent[layer.price.bound] = spent.get(layer.price.bound, 0.0) + layer.ns
    whole = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    return tuple((bound, ns / whole) for bound, ns in ordered) if whole else ()
