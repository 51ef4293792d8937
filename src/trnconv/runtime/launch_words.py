"""The launches of a call in words: one, or what each kind of several takes; one core, or two."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trnconv.ask.launches import planned_parts, require_room
from trnconv.ask.question import Question, Shape
from trnconv.ask.words import shape_in_words
from trnconv.planner.best import choose
from trnconv.planner.explain import explain_choice, explain_plan
from trnconv.planner.shares import shared_plans
from trnconv.runtime.plans import require_cores

_TWO_CORES = "Each of two cores computes its half, both by what wins on one core, or directly."


@dataclass(frozen=True)
class _Explained:
    """One launch: its modelled time, the plan and what lost to it, and other forms."""

    ns: float
    words: tuple[str, str]


def explained(question: Question, cores: int = 1) -> tuple[str, str]:
    """The plan and what lost to it; then every form. Of several launches, of the longest."""
    require_cores(question.machine, cores)
    require_room(question)
    parts = list(planned_parts(question, lambda part: _explained(part, cores)))
    if len(parts) == 1:
        return parts[0][1].words
    times = {launch.shape: one.ns for launch, one in parts}
    longest = max((one for _, one in parts), key=lambda one: one.ns)
    counts = Counter(launch.shape for launch, _ in parts)
    lines = [_line(shape, counts[shape], ns) for shape, ns in times.items()]
    total = sum(one.ns for _, one in parts)
    first = f"{len(parts)} launches, {total / 1e3:.1f} us together; the longest is explained"
    details, forms = longest.words
    return "\n".join([first, *lines, details]), forms


def _line(shape: Shape, count: int, ns: float) -> str:
    return f"  {count} x {shape_in_words(shape)}: {ns / 1e3:.1f} us each"


def _explained(question: Question, cores: int) -> _Explained:
    if cores == 1:
        choice = choose(question)
        return _Explained(choice.taken.cost.total_ns, explain_choice(choice))
    both = shared_plans(question)
    texts = [
        f"core {core} of {cores}: {explain_plan(priced, question.budget)}"
        for core, priced in enumerate(both)
    ]
    return _Explained(max(priced.cost.total_ns for priced in both), ("\n".join(texts), _TWO_CORES))
