"""The launches of a call in words: one, or what each kind of several takes; one core, or two."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from trnconv.ask.cores import cores_in_words, cores_of
from trnconv.ask.launches import planned_parts, require_room
from trnconv.ask.question import Question, Shape
from trnconv.ask.words import shape_in_words
from trnconv.forms.form import Plan
from trnconv.planner.best import choose
from trnconv.planner.explain import explain_choice, explain_plan
from trnconv.planner.shares import pair_ns, shared_plans

_TWO_CORES = (
    "Each of two cores has its part, both by what wins on one core, or directly. On one core:"
)
_PARTS = {
    "rows_of": "rows",
    "columns_of": "columns",
    "lines_of": "lines of images and channels",
    "outputs_of": "outputs of every line",
    "outs_of": "output channels",
    "ins_of": "input channels",
    "strips_of": "halves of strips",
}
_NOT_HALVED = "it cannot be halved: both cores compute all of it and write the same"


@dataclass(frozen=True)
class _Explained:
    """One launch: its modelled time, the plan and what lost to it, and other forms."""

    ns: float
    words: tuple[str, str]


def explained(question: Question, cores: int | None = None) -> tuple[str, str]:
    """The plan and what lost to it; then every form. Of several launches, of the longest."""
    launched = cores_of(question.machine, cores)
    require_room(question)
    parts = list(planned_parts(question, lambda part: _explained(part, launched)))
    if len(parts) == 1:
        return parts[0][1].words
    times = {launch.shape: explanation.ns for launch, explanation in parts}
    longest = max((explanation for _, explanation in parts), key=lambda launch: launch.ns)
    counts = Counter(launch.shape for launch, _ in parts)
    lines = [_line(shape, counts[shape], ns) for shape, ns in times.items()]
    total = sum(explanation.ns for _, explanation in parts)
    first = f"{len(parts)} launches, {total / 1e3:.1f} us together; the longest is explained"
    details, forms = longest.words
    return "\n".join([first, *lines, details]), forms


def _line(shape: Shape, count: int, ns: float) -> str:
    return f"  {count} x {shape_in_words(shape)}: {ns / 1e3:.1f} us each"


def _explained(question: Question, cores: int) -> _Explained:
    choice = choose(question)
    words = explain_choice(choice)
    if cores == 1:
        return _Explained(choice.taken.cost.total_ns, words)
    both = shared_plans(question)
    first, second = (priced.plan for priced in both)
    split = _NOT_HALVED if first == second else f"core 0 has {describe_split(first, second)}"
    lines = [f"{cores_in_words(cores)}: {split}"]
    lines += [
        f"core {core} of {cores}: {explain_plan(priced, question.budget)}"
        for core, priced in enumerate(both)
    ]
    return _Explained(pair_ns(both), ("\n".join(lines), "\n".join([_TWO_CORES, *words])))


def describe_split(first: Plan, second: Plan) -> str:
    """What the first core has, where it differs from what the second has."""
    for field in fields(first):
        ours, theirs = (getattr(plan, field.name) for plan in (first, second))
        if field.name.endswith("_of") and ours != theirs:
            return f"{_PARTS[field.name]} from {ours[0]}, before {ours[1]}"
    return "half of the output channels"
