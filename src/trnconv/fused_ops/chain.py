"""What a pipeline of steps takes: every step goes through the same stages, engines overlap.

Each engine works on another step, so between the first and the last step the busiest one decides.
An engine starts when the first step has reached it, and what is behind it goes on after its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Stage:
    """What a step takes of one engine, and how long the stage after it waits for that."""

    resource: str
    busy_ns: float
    latency_ns: float
    late: int = 1  # steps by which it is issued behind the first stage of the same engine


Stages = tuple[Stage, ...]


def busy_of(stages: Stages) -> dict[str, float]:
    """What a step takes of every engine."""
    busy: dict[str, float] = {}
    for stage in stages:
        busy[stage.resource] = busy.get(stage.resource, 0.0) + stage.busy_ns
    return busy


def chain_ns(
    widths: Sequence[int],
    stages_of: Callable[[int], Stages],
    once: Mapping[str, float] = MappingProxyType({}),
) -> float:
    """Steps of these widths through an empty pipeline, from the first load to the last store.

    `once`: what an engine does before its last stage of the first step, as soon as it is free.
    """
    first, last = stages_of(widths[0]), stages_of(widths[-1])
    busy = {resource: _unhidden(first, resource, ns) for resource, ns in once.items()}
    behind = -first[-1].busy_ns  # last stages of all others, one after the other
    for width, count in Counter(widths).items():
        stages = stages_of(width)
        behind += count * stages[-1].busy_ns
        for resource, ns in busy_of(stages).items():
            busy[resource] = busy.get(resource, 0.0) + count * ns
    alone = once if len(widths) == 1 else {}  # then it is done while the engine waits
    ends = [
        _before(first, resource) + ns + _after(last, resource, alone.get(resource, 0.0))
        for resource, ns in busy.items()
    ]
    delays = (max(0.0, ns - _idle(first, resource)) for resource, ns in once.items())
    return max(*ends, sum(stage.latency_ns for stage in first) + sum(delays) + behind)


def _places(stages: Stages, resource: str) -> list[int]:
    return [n for n, stage in enumerate(stages) if stage.resource == resource]


def _unhidden(stages: Stages, resource: str, ns: float) -> float:
    """What is left of work that an engine may do before the first step comes to it.

    Not if it has two stages: it is then done between these.
    """
    if len(_places(stages, resource)) > 1:
        return ns
    return max(0.0, ns - _before(stages, resource))


def _idle(stages: Stages, resource: str) -> float:
    """How long an engine waits for its last stage of a step that is alone."""
    *others, last = _places(stages, resource)
    before = stages[others[-1] + 1 : last] if others else stages[:last]
    return sum(stage.latency_ns for stage in before)


def _before(stages: Stages, resource: str) -> float:
    """Until the first step has come to an engine."""
    total = 0.0
    for stage in stages:
        if stage.resource == resource:
            break
        total += stage.latency_ns
    return total


def _after(stages: Stages, resource: str, meanwhile_ns: float) -> float:
    """From the end of an engine's work on the last step to the end of the step.

    An engine that a step comes back to waits for what is between, less its work for another step.
    """
    places = _places(stages, resource)
    last = places[-1]
    tail = sum(stage.latency_ns for stage in stages[last:]) - stages[last].busy_ns
    between = sum(stage.latency_ns for stage in stages[places[0] + 1 : last])
    if len(places) == 1:
        return tail
    return tail + max(0.0, between - stages[last].late * stages[last].busy_ns - meanwhile_ns)
