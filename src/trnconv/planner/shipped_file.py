"""ShippedFile: plans that come with the package, as JSON: a file for a machine, cores and a model.

An entry has a problem's digest as its key, and a plan's decisions alone: what follows from the
problem is not stored, and the second core's plan is what differs from the first one's. Where the
search found nothing, and a convolution is cut into several launches, that is stored. Keys of
shorter programs than usual end with the instructions that they may have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from trnconv.algorithms.algorithm import Algorithm, Plan, Priced
from trnconv.algorithms.search import by_schedule
from trnconv.errors import PlanError, TrnconvError
from trnconv.planner.table import ALGORITHMS, algorithm_of, priced
from trnconv.planner.tuned_file import violations_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.describe import describe_call
from trnconv.problem.limits import DEFAULT_BUDGET, SHORTER_BUDGETS
from trnconv.records import RecordError, fields_as_json, from_json, to_json

REFUSED = "refused"
_NAME_BYTES = 12
# Fields of a problem as the keys of stored plans were made with: a digest outlives their names.
_DIGEST_NAMES = {"epilogue": "end", "prologue": "start"}
_STAMPED = ("code", "constants", "library")
Entry = dict[str, Any]
Answer = tuple[Priced, ...]  # plans of a launch, one for each core


class ShippedError(TrnconvError):
    """Shipped plans that are not what they should be."""


@dataclass(frozen=True)
class ShippedFile:
    """The plans of a model's convolutions on a launch of a machine."""

    machine: str
    cores: int
    model: str
    stamp: Mapping[str, str]  # of the constants and sources that they were tuned with
    plans: Mapping[str, Entry]

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.machine}_{self.cores}_{self.model}.json"

    def text(self) -> str:
        """The file: a line for each plan, in the order of their keys."""
        heading = {name: getattr(self, name) for name in ("machine", "cores", "model")}
        heading["stamp"] = dict(self.stamp)
        lines = [f"{json.dumps(name)}: {_compact(value)}" for name, value in heading.items()]
        rows = [f" {json.dumps(key)}: {_compact(self.plans[key])}" for key in sorted(self.plans)]
        lines.append('"plans": {\n' + ",\n".join(rows) + "\n}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def parse(text: str, where: str) -> ShippedFile:
    """The plans of a file that `ShippedFile.text` wrote."""
    try:
        document = json.loads(text)
        file = ShippedFile(**document)
        known = all(isinstance(file.stamp[name], str) for name in _STAMPED)
    except (ValueError, TypeError, KeyError) as error:
        raise ShippedError(f"{where}: not a file of shipped plans ({error}). {_AGAIN}") from error
    if not known or not isinstance(file.plans, dict):
        raise ShippedError(f"{where}: its stamp or its plans are no such thing. {_AGAIN}")
    return file


_AGAIN = "Make it again: trnconv tune --registry."


def digest_of(problem: ConvProblem) -> str:
    """The key of a problem: all that decides its plans but machine and cores."""
    return _keyed(_name_of(replace(problem, budget=DEFAULT_BUDGET)), problem.budget)


@lru_cache(maxsize=1024)  # a model that does not fit a graph is asked for with several budgets
def _name_of(problem: ConvProblem) -> str:
    document = to_json(problem, but=("machine", "budget"))
    text = json.dumps(
        {_DIGEST_NAMES.get(name, name): value for name, value in document.items()}, sort_keys=True
    )
    return hashlib.blake2b(text.encode(), digest_size=_NAME_BYTES).hexdigest()


def _keyed(name: str, budget: int) -> str:
    return name if budget == DEFAULT_BUDGET else f"{name}-{budget}"


def stored_key(problem: ConvProblem, entries: Mapping[str, Entry]) -> str | None:
    """Of this budget, or of the next longer one that is stored: its plans may be short enough."""
    name = _name_of(replace(problem, budget=DEFAULT_BUDGET))
    longer = (limit for limit in reversed(SHORTER_BUDGETS) if limit > problem.budget)
    keys = (_keyed(name, budget) for budget in (problem.budget, *longer, DEFAULT_BUDGET))
    return next((key for key in keys if key in entries), None)


def entry_of(problem: ConvProblem, answer: Answer, tried: int) -> Entry:
    """Plans as they are stored, one for each core; `tried`: with how many candidates."""
    algorithm, plan = algorithm_of(answer[0].plan), answer[0].plan
    implied = fields_as_json(algorithm.plan_type, **_fields_of_problem(algorithm, problem))
    every = _every_field(plan)
    chosen = to_json(plan)
    entry: Entry = {
        "algorithm": algorithm.name,
        "plan": {
            name: value
            for name, value in every.items()
            if (implied[name] != value if name in implied else name in chosen)
        },
        "tried": tried,
    }
    if len(answer) > 1:
        other = _every_field(answer[1].plan)
        entry["second"] = {name: other[name] for name in other if other[name] != every[name]}
    if answer[0].cost.scheduled:
        entry["scheduled"] = True
    return entry


def refusal() -> Entry:
    """What is stored of a problem that has no plan."""
    return {REFUSED: True}


def is_short(answers: Answer, problem: ConvProblem) -> bool:
    """Whether plans keep to a problem's budget."""
    return max(answer.cost.instructions for answer in answers) <= problem.budget


def answer_of(problem: ConvProblem, entry: Entry) -> Answer:
    """The plans of an entry, one for each core, with today's prices.

    A ShippedError if they are illegal, a PlanError where there is none.
    """
    if REFUSED in entry:
        raise PlanError(
            f"{describe_call(problem)}: no plan with at most {problem.budget} static"
            " instructions: raise the budget, or split the problem."
        )
    answers = tuple(replace(priced(plan), shipped=True) for plan in plans_of(problem, entry))
    for answer in answers:
        broken = violations_of(problem, answer.plan)
        if broken:
            raise ShippedError(f"a shipped plan: {'; '.join(broken)}. {_AGAIN}")
    if entry.get("scheduled"):
        answers = tuple(by_schedule(algorithm_of(answer.plan), answer) for answer in answers)
    return answers


def plans_of(problem: ConvProblem, entry: Entry) -> tuple[Plan, ...]:
    """The plans of an entry, as they are."""
    algorithm = next(
        (algorithm for algorithm in ALGORITHMS if algorithm.name == entry.get("algorithm")), None
    )
    if algorithm is None:
        raise ShippedError(f"a shipped plan of the algorithm {entry.get('algorithm')}. {_AGAIN}")
    first, implied = entry["plan"], _fields_of_problem(algorithm, problem)
    documents = [first, {**first, **entry["second"]}] if "second" in entry else [first]
    try:
        return tuple(from_json(algorithm.plan_type, document, **implied) for document in documents)
    except RecordError as error:
        raise ShippedError(f"a shipped plan: {error} {_AGAIN}") from error


def _fields_of_problem(algorithm: Algorithm[Any], problem: ConvProblem) -> dict[str, Any]:
    """Fields of a plan that follow from the problem."""
    problem_fields = {
        name: getattr(problem, name) for name in ("dtype", "epilogue", "prologue", "pieces")
    }
    known = {field.name for field in fields(algorithm.plan_type)}
    plan_fields = {name: value for name, value in problem_fields.items() if name in known}
    return {
        "machine_name": problem.machine.name,
        **plan_fields,
        **algorithm.problem_fields(problem),
    }


def _every_field(plan: Plan) -> dict[str, Any]:
    """A plan as JSON, with the fields that have their default."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return fields_as_json(type(plan), **values)


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
