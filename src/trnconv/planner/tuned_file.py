"""TunedFile: plans that won when the best candidates were timed in nkisim, as reviewed JSON.

A file holds plans for one machine, and says which constants and which version of the library they
were timed with; it can be used only if both are those of this process. Every plan is checked again
when it is asked for: it answers the problem, keeps what was promised, and the machine can run it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from nkisim.version import __version__
from trnconv.algorithms.algorithm import Plan
from trnconv.errors import PlanError, TrnconvError
from trnconv.planner.table import ALGORITHMS, algorithm_of, priced
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.describe import describe_call
from trnconv.records import RecordError, from_json, to_json

_DIGEST_BYTES = 16


class TunedError(TrnconvError):
    """A file of tuned plans that cannot be used."""


@dataclass(frozen=True)
class TunedPlan:
    """A winner: what it answers, the plan, its scheduled time and that of the planner's choice."""

    key: str
    plan: Plan
    scheduled_ns: float
    planned_ns: float  # of the plan that the cost model would take, scheduled alike
    tried: int


@dataclass(frozen=True)
class TunedFile:
    """The plans of one file, by the problem they answer."""

    path: Path
    machine: str
    entries: Mapping[str, dict[str, Any]]
    digest: str  # of its text

    def plan_for(self, problem: ConvProblem) -> Plan | None:
        """The stored plan, checked again; None if there is none that is short enough."""
        entry = self.entries.get(key_of(problem))
        if entry is None or problem.machine.name != self.machine:
            return None
        plan = _checked(self.path, problem, entry)
        short = priced(plan).cost.instructions <= problem.budget
        return plan if short else None


def key_of(problem: ConvProblem) -> str:
    """A problem as text: all that decides a plan but the machine and the budget."""
    return json.dumps(to_json(problem, but=("machine", "budget")), sort_keys=True)


def violations_of(problem: ConvProblem, plan: Plan) -> list[str]:
    """Why a stored plan is not one for a problem, in words; empty if it is."""
    algorithm = algorithm_of(plan)
    broken = algorithm.violations_for(plan, problem) or algorithm.violations(plan)
    wanted = (problem.machine.name, problem.dtype, problem.epilogue, problem.prologue)
    planned = (plan.machine_name, plan.dtype, plan.epilogue, plan.prologue)
    if planned != wanted or not algorithm.fits(plan, problem):
        return ["it is of another problem", *broken]
    lacks = algorithm.unsupported_operands(problem)
    return [lacks, *broken] if lacks else list(broken)


def _checked(path: Path, problem: ConvProblem, entry: dict[str, Any]) -> Plan:
    """A plan of a file: read whole, of this very problem, and legal."""
    plan = _read_plan(path, problem, entry)
    try:
        broken = violations_of(problem, plan)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        broken = [f"its numbers make no sense ({type(error).__name__}: {error})"]
    if broken:
        raise PlanError(
            f"a tuned plan in {path} for {describe_call(problem)}: {'; '.join(broken)}. Tune it"
            " again, or remove it."
        )
    return plan


def _read_plan(path: Path, problem: ConvProblem, entry: dict[str, Any]) -> Plan:
    """What follows from the problem is not stored."""
    said = entry.get("plan")
    stored = dict(said) if isinstance(said, dict) else {}
    name = stored.pop("algorithm", "")
    algorithm = next((algorithm for algorithm in ALGORITHMS if algorithm.name == name), None)
    if algorithm is None:
        known = ", ".join(algorithm.name for algorithm in ALGORITHMS)
        raise TunedError(f"{path}: a plan whose algorithm is none of {known}. Tune again.")
    try:
        implied = algorithm.problem_fields(problem)
        chosen = {name: value for name, value in stored.items() if name not in implied}
        plan: Plan = from_json(algorithm.plan_type, chosen, **implied)
    except RecordError as error:
        raise TunedError(f"{path}: {error} Tune again.") from error
    return plan


def stamp(machine: str) -> dict[str, str]:
    """What tuned plans hold for."""
    return {"constants": CONSTANTS_VERSION, "library": __version__, "machine": machine}


def written(machine: str, winners: Iterable[TunedPlan], before: TunedFile | None = None) -> str:
    """A file of these plans, and of those of `before` that they do not replace; keys in order."""
    entries = dict(before.entries) if before else {}
    entries.update({winner.key: _entry(winner) for winner in winners})
    lines = [_block(key, entries[key]) for key in sorted(entries)]
    return (
        f'{{\n"stamp": {json.dumps(stamp(machine), sort_keys=True)},\n"plans": [\n'
        + ",\n".join(lines)
        + "\n]\n}\n"
    )


def _entry(tuned: TunedPlan) -> dict[str, Any]:
    plan = {"algorithm": tuned.plan.algorithm, **to_json(tuned.plan, but=("reduced", "shape"))}
    times = {"planned_ns": round(tuned.planned_ns, 1), "scheduled_ns": round(tuned.scheduled_ns, 1)}
    return {"plan": plan, "tried": tuned.tried, **times}


def _block(key: str, entry: dict[str, Any]) -> str:
    named = {"problem": json.loads(key), **entry}
    rows = [
        f"  {json.dumps(name)}: {json.dumps(named[name], sort_keys=True)}" for name in sorted(named)
    ]
    return " {\n" + ",\n".join(rows) + "\n }"


def read(path: Path) -> TunedFile:
    """The plans of a file; a TunedError says why it cannot be used here."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        written_with = document["stamp"]
        machine = str(written_with["machine"])
        entries = {_key(plan): _without_problem(plan) for plan in document["plans"]}
    except OSError as error:
        raise TunedError(f"tuned plans in {path}: {error.strerror}. Name another file.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TunedError(
            f"tuned plans in {path}: not a file that `trnconv tune` wrote ({error}). Tune again."
        ) from error
    if written_with != stamp(machine):
        raise TunedError(
            f"tuned plans in {path}: of {_describe_stamp(written_with)}, and this is"
            f" {_describe_stamp(stamp(machine))}. Tune again."
        )
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return TunedFile(path, machine, entries, digest)


def _key(entry: dict[str, Any]) -> str:
    return json.dumps(entry["problem"], sort_keys=True)


def _without_problem(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "problem"}


def _describe_stamp(stamped: dict[str, Any]) -> str:
    return f"trnconv {stamped.get('library')}, constants {stamped.get('constants')}"
