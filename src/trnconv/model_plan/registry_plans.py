"""Plans of the registry's models as they are shipped: made model by model, and gone on with.

First those of the usual length; then, where a model's do not fit a graph together, the shorter ones
that planning it asks for.

A file under way lies beside the one it will replace, with the ending `.part`; whoever makes plans
again with the same constants goes on with it.

A launch is searched if it has no plan yet, or `again`. Of what is found, what was stored before and
what is stored for other machines, the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from nkisim.machine import find_machine
from trnconv import cache
from trnconv.errors import PlanError
from trnconv.model_plan.plans import PlanOptions, plan_trace
from trnconv.model_plan.prices import Prices
from trnconv.model_plan.traces import planned_sizes
from trnconv.models import ModelEntry, Size
from trnconv.planner.shipped_file import (
    Answer,
    Entry,
    ShippedError,
    ShippedFile,
    answer_of,
    digest_of,
    entry_of,
    is_short,
    parse,
    refusal,
    stored_key,
)
from trnconv.planner.shipped_plans import narrower_answer, plans_in_making, shipped_set
from trnconv.problem.conv_problem import ConvProblem, without_norm
from trnconv.problem.launches import planned_parts
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.problem.policy import policy_of
from trnconv.runtime.launch import with_joined_pieces
from trnconv.runtime.pricing import Price
from trnconv.runtime.tuning import (
    Effort,
    TunedLaunch,
    better_launch,
    fastest_launch,
    tuned_launch,
)
from trnconv.traces import ModelTrace, shipped

SHIPPED_LAUNCHES = (("trn2", 2), ("trn2", 1), ("trn3", 2))  # machine and cores
_PART = ".part"
_SAVED_EVERY = 10  # convolutions

Watch = Callable[[int, int], None]  # convolutions done, of how many


@dataclass(frozen=True)
class Making:
    """A file to be made: whose plans, and how much is tried for each."""

    entry: ModelEntry
    machine: str
    cores: int
    accuracy: str
    effort: Effort
    folder: Path
    again: bool = False  # search also what has plans, and keep those that are faster

    def traces(self) -> Iterator[tuple[Size, ModelTrace]]:
        """Its stored sizes, encoded and decoded."""
        for size in planned_sizes(self.entry):
            for phase in self.entry.phases:
                trace = shipped(self.entry, size, phase)
                if trace is not None:
                    yield size, trace

    def problems(self) -> list[ConvProblem]:
        """The convolutions of its stored sizes, encoded and decoded; equal ones once.

        Those with a norm at their end are planned without it, too: the norm may be faster apart.
        """
        machine, policy = find_machine(self.machine), policy_of(self.accuracy)
        asked = (
            with_joined_pieces(problem)
            for _, trace in self.traces()
            for work, _ in trace.works
            for whole in [work.problem(machine, policy=policy)]
            for problem in (without_norm(whole), whole)
        )
        return [problem for problem in dict.fromkeys(asked) if not problem.reproducible]

    def file(self, plans: dict[str, Entry]) -> ShippedFile:
        """These plans, with the stamp of today."""
        return ShippedFile(self.machine, self.cores, self.entry.name, cache.stamp(), plans)

    @property
    def path(self) -> Path:
        """Where it will lie."""
        return self.folder / self.file({}).name


def make_plans(making: Making, watch: Watch) -> ShippedFile:
    """Make a file, or what is missing of it, and put it in place whole."""
    begun = _begun(making)
    problems = making.problems()
    with plans_in_making(making.file(begun.plans)):  # it sees plans as they are added
        for done, problem in enumerate(problems, 1):
            begun.plan(problem)
            watch(done, len(problems))
            if done % _SAVED_EVERY == 0 or done == len(problems):
                begun.save()
        _plan_graphs(making, _MakingPrices(watch=watch, cores=making.cores, begun=begun))
    begun.save()
    begun.part.replace(making.path)
    return begun.file


def _plan_graphs(making: Making, prices: Prices) -> None:
    """Plan what was traced: all that planning asks for is made."""
    options = PlanOptions(making.machine, making.accuracy, making.cores)
    for size, trace in making.traces():
        plan_trace(trace, size, options, prices)


@dataclass(frozen=True)
class _Begun:
    """Plans of a file under way."""

    making: Making
    plans: dict[str, Entry]  # of all models
    own: set[str]  # keys of this model's: a key stands in one file
    again: set[str]  # those that are still to be searched again

    @property
    def part(self) -> Path:
        """Where they lie until they are whole."""
        return self.making.path.with_suffix(_PART)

    @property
    def file(self) -> ShippedFile:
        """This model's."""
        return self.making.file({key: self.plans[key] for key in self.own})

    def save(self) -> None:
        """Write what there is."""
        self.part.write_text(self.file.text(), encoding="utf-8")

    def plan(self, problem: ConvProblem) -> None:
        """Store the plans of all its launches; of a norm that has none, that it is done apart."""
        try:
            list(planned_parts(problem, self._plan_launch))
        except PlanError:
            if problem.epilogue.norm is None:
                raise

    def _plan_launch(self, problem: ConvProblem) -> None:
        """Store the plans of a launch, if they are new, or this file's and to be tried harder."""
        making, key = self.making, digest_of(problem)
        if problem.budget > DEFAULT_BUDGET:  # not shipped; searching shows there is one
            tuned_launch(problem, making.cores, Effort(1))
            return
        known = stored_key(problem, self.plans)
        taken = None if known is None else self._still_good(problem, known)
        if taken is not None and (known != key or key not in self.own or self._is_done(key)):
            return
        self.again.discard(key)
        try:
            launch = self._tuned(problem, taken)
        except PlanError:
            self._store(key, refusal())
            raise
        self._store(key, entry_of(problem, launch.plans, launch.tried))

    def _tuned(self, problem: ConvProblem, taken: Answer | None) -> TunedLaunch:
        """The best of what is tried, of what was stored, and of what serves others by now."""
        making, effort = self.making, self.making.effort
        launch = (
            tuned_launch(problem, making.cores, effort)
            if taken is None or making.again
            else better_launch(problem, taken, effort)
        )
        stored = (taken, narrower_answer(problem, making.cores), *self._elsewhere(problem))
        known = [launch.plans, *(answer for answer in stored if answer is not None)]
        return replace(launch, plans=fastest_launch(known, effort))

    def _elsewhere(self, problem: ConvProblem) -> Iterator[Answer]:
        """What other machines have for it, priced on this one; if more is tried than a search."""
        making = self.making
        for machine, cores in SHIPPED_LAUNCHES if making.effort.candidates > 1 else ():
            entry = shipped_set(machine, cores).entries.get(digest_of(problem))
            if entry is None or machine == making.machine or cores != making.cores:
                continue
            try:
                answer = answer_of(problem, entry)
            except (ShippedError, PlanError):  # not legal here, or nothing was found there
                continue
            if is_short(answer, problem):
                yield answer

    def _still_good(self, problem: ConvProblem, key: str) -> Answer | None:
        """The plans of an entry; None if they are illegal by now, too long, or to be found again.

        A PlanError is the stored answer where there are none.
        """
        try:
            taken = answer_of(problem, self.plans[key])
        except ShippedError:
            return None
        except PlanError:
            if key in self.again:
                return None
            raise
        return taken if is_short(taken, problem) else None

    def _is_done(self, key: str) -> bool:
        """Whether an entry was tried as hard as it shall be, and is not to be searched again."""
        wanted = self.making.effort.candidates
        if key in self.again:
            return False
        return wanted == 1 or self.plans[key]["tried"] >= wanted

    def _store(self, key: str, entry: Entry) -> None:
        self.plans[key] = entry
        self.own.add(key)


@dataclass(frozen=True)
class _MakingPrices(Prices):
    """Prices of what is stored before it is asked for."""

    begun: _Begun = field(kw_only=True)

    def of(self, problem: ConvProblem) -> Price:
        """What the convolution costs with the plans that are stored by now."""
        if problem not in self._known:
            self.begun.plan(with_joined_pieces(problem))
            self.begun.save()
        return super().of(problem)


def _begun(making: Making) -> _Begun:
    """What was made before with the same constants, and which are this model's.

    Other models may have the same convolutions, and a file may have plans of other accuracies. Of
    other sources' plans those are kept that are legal with today's.
    """
    plans: dict[str, Entry] = {}
    own: set[str] = set()
    named = f"{making.machine}_{making.cores}_*"
    for path in sorted(making.folder.glob(named)):
        try:
            file = parse(path.read_text(encoding="utf-8"), str(path))
        except ShippedError:
            if path.suffix != _PART:
                raise
            continue  # cut off while it was written: it is made anew
        if file.stamp["constants"] == cache.stamp()["constants"]:
            plans.update(file.plans)
            own |= set(file.plans) if file.model == making.entry.name else set()
    return _Begun(making, plans, own, set(own) if making.again else set())
